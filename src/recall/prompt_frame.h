// The prompt of a memory: what stands before, between and behind the passages, as token ids.
//
//   encoding prefix   system turn with the memory's instruction, opening of the user turn, "Documents:"
//   each passage      header line, text, blank line; tokenised on its own, so that its ids never depend on
//   where
//                     it is read
//   tail              "Question: ...", end of the user turn, (earlier turns,) the assistant's opening
//
// Text of documents, questions and history is tokenised without control tokens, always. A model without a
// chat template gets the same without turns. Ownership: keeps the tokenizer and template. Threads: const,
// any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rhapsode/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace rhapsode::recall {

struct PassageTokens {
  std::vector<int32_t> tokens;
  int header_tokens = 0;  // at the start: visible, but without routing keys and never cited
  int text_tokens = 0;    // behind them; the blank line is the rest
};

// What stands between the messages of a conversation whose every turn the template renders alike. A turn is
// question, `before_answer`, answer, `behind_answer`; the first question stands behind the prefix.
struct TurnFrame {
  std::vector<text::RenderedPart> before_answer;  // ends the user's turn, opens the assistant's
  std::vector<text::RenderedPart> behind_answer;  // ends it and opens the user's next
};

class PromptFrame {
 public:
  // `chat` may be null. kUnsupported when the template does not keep the user's text in one piece.
  static Result<PromptFrame> make(std::shared_ptr<const text::Tokenizer> tokenizer,
                                  std::shared_ptr<const text::ChatTemplate> chat, std::string instruction);

  const std::string& instruction() const { return instruction_; }
  const std::vector<int32_t>& prefix() const { return prefix_; }

  Result<PassageTokens> passage(std::string_view header, std::string_view text) const;
  // `history`: user and assistant in turn, the oldest first; the last turn is the question.
  Result<std::vector<int32_t>> tail(const std::string& question, std::span<const Message> history) const;
  // kUnsupported when the template does not keep messages in one piece.
  Result<TurnFrame> turn_frame() const;
  // A message and what stands behind it; nothing when both are empty.
  Result<std::vector<int32_t>> message(std::string_view text,
                                       std::span<const text::RenderedPart> behind) const;
  // "Question: ..." as it stands in front of before_answer.
  static std::string question_text(std::string_view question);
  // What opens a block of documents within a conversation, as prefix() does at its beginning.
  Result<std::vector<int32_t>> documents_opening() const;
  // The question as routing reads it: "Question: ..." and a line feed.
  Result<std::vector<int32_t>> routing_question(std::string_view question) const;

 private:
  PromptFrame() = default;
  Result<std::vector<text::RenderedPart>> render(const std::string& question,
                                                 std::span<const Message> history) const;

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatTemplate> chat_;
  std::string instruction_;
  std::vector<int32_t> prefix_;
};

}  // namespace rhapsode::recall
