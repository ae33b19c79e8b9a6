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
