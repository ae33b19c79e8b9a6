#include "recall/prompt_frame.h"

namespace rhapsode::recall {

namespace {

// Stands where the documents go while the template is rendered: in front of all that users wrote, so the
// first one found is ours.
constexpr std::string_view kMark = "RHAPSODEDOCUMENTSRHAPSODE";
constexpr std::string_view kOpening = "Documents:\n\n";

std::string_view without_trailing_space(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n\f\v");
  return end == std::string_view::npos ? std::string_view{} : text.substr(0, end + 1);
}

std::string asked(std::string_view question) {
  return "Question: " + std::string(without_trailing_space(question));
}

}  // namespace

Result<PromptFrame> PromptFrame::make(std::shared_ptr<const text::Tokenizer> tokenizer,
                                      std::shared_ptr<const text::ChatTemplate> chat,
                                      std::string instruction) {
  PromptFrame frame;
  frame.tokenizer_ = std::move(tokenizer);
  frame.chat_ = std::move(chat);
  frame.instruction_ = std::move(instruction);
  RH_TRY(const std::vector<text::RenderedPart> parts, frame.render("x", {}));
  std::vector<text::TextPart> before;
  for (const text::RenderedPart& part : parts) {
    const size_t mark = part.from_message ? part.text.find(kMark) : std::string::npos;
    if (mark == std::string::npos) {
      before.push_back({part.text, !part.from_message});
      continue;
    }
    const std::string opening = part.text.substr(0, mark) + std::string(kOpening);
    before.push_back({opening, false});
    RH_TRY(frame.prefix_, frame.tokenizer_->encode_parts(before, /*add_special=*/false));
    const bool begins = !frame.prefix_.empty() && frame.prefix_.front() == frame.tokenizer_->bos();
    if (frame.tokenizer_->adds_bos() && !begins) {
      frame.prefix_.insert(frame.prefix_.begin(), frame.tokenizer_->bos());
    }
    return frame;
  }
  return make_error(ErrorKind::kUnsupported,
                    "the model's chat template changes the user's text, so documents cannot stand in it");
}

Result<std::vector<text::RenderedPart>> PromptFrame::render(const std::string& question,
                                                            std::span<const Message> history) const {
  std::vector<Message> messages;
  if (!instruction_.empty()) messages.push_back({"system", instruction_});
  for (const Message& turn : history) {
    messages.push_back(turn.role == "user" ? Message{"user", asked(turn.content)} : turn);
  }
  messages.push_back({"user", asked(question)});
  Message& first = messages[instruction_.empty() ? 0 : 1];
  if (first.role != "user") {
    return make_error(ErrorKind::kInvalidArgument,
                      "a conversation's history begins with a message of the user; this one with '{}'",
                      first.role);
  }
  first.content = std::string(kMark) + first.content;
  if (chat_) return chat_->render_parts(messages);
  std::vector<text::RenderedPart> parts;
  for (const Message& message : messages) {
    const std::string lead = message.role == "assistant" ? "Answer: " : "";
    parts.push_back({lead + message.content + "\n", true});
  }
  parts.push_back({"Answer:", true});
  return parts;
}

Result<PassageTokens> PromptFrame::passage(std::string_view header, std::string_view text) const {
  PassageTokens passage;
  if (!header.empty()) {
    RH_TRY(passage.tokens, tokenizer_->encode(std::string(header) + "\n"));
  }
  passage.header_tokens = static_cast<int>(passage.tokens.size());
  RH_TRY(const std::vector<int32_t> body, tokenizer_->encode(without_trailing_space(text)));
  passage.text_tokens = static_cast<int>(body.size());
  RH_TRY(const std::vector<int32_t> blank, tokenizer_->encode("\n\n"));
  passage.tokens.insert(passage.tokens.end(), body.begin(), body.end());
  passage.tokens.insert(passage.tokens.end(), blank.begin(), blank.end());
  return passage;
}

Result<std::vector<int32_t>> PromptFrame::tail(const std::string& question,
                                               std::span<const Message> history) const {
  RH_TRY(const std::vector<text::RenderedPart> parts, render(question, history));
  std::vector<std::string> texts;
  std::vector<text::TextPart> behind;
  texts.reserve(parts.size());
  bool found = false;
  for (const text::RenderedPart& part : parts) {
    const size_t mark = !found && part.from_message ? part.text.find(kMark) : std::string::npos;
    if (!found && mark == std::string::npos) continue;
    texts.push_back(found ? part.text : part.text.substr(mark + kMark.size()));
    found = true;
    behind.push_back({texts.back(), !part.from_message});
  }
  return tokenizer_->encode_parts(behind, /*add_special=*/false);
}

Result<TurnFrame> PromptFrame::turn_frame() const {
  constexpr std::string_view kAnswer = "RHAPSODEANSWERRHAPSODE";
  constexpr std::string_view kNext = "RHAPSODENEXTRHAPSODE";
  const std::vector<Message> history = {{"user", "x"}, {"assistant", std::string(kAnswer)}};
  RH_TRY(const std::vector<text::RenderedPart> parts, render(std::string(kNext), history));
  const std::string next = asked(kNext);
  TurnFrame frame;
  // Behind the answer's mark up to the next question's, then from there to the end.
  int passed = 0;
  for (const text::RenderedPart& part : parts) {
    std::string_view rest = part.text;
    if (passed == 0) {
      const size_t mark = part.from_message ? rest.find(kAnswer) : std::string_view::npos;
      if (mark == std::string_view::npos) continue;
      rest.remove_prefix(mark + kAnswer.size());
      passed = 1;
    }
    if (passed == 1) {
      const size_t mark = part.from_message ? rest.find(next) : std::string_view::npos;
      const std::string_view behind = rest.substr(0, mark);
      if (!behind.empty()) frame.behind_answer.push_back({std::string(behind), part.from_message});
      if (mark == std::string_view::npos) continue;
      rest.remove_prefix(mark + next.size());
      passed = 2;
    }
    if (!rest.empty()) frame.before_answer.push_back({std::string(rest), part.from_message});
  }
  if (passed == 2) return frame;
  return make_error(ErrorKind::kUnsupported,
                    "the model's chat template changes the messages' text, so a conversation cannot go on in "
                    "it");
}

Result<std::vector<int32_t>> PromptFrame::message(std::string_view text,
                                                  std::span<const text::RenderedPart> behind) const {
  std::vector<text::TextPart> parts;
  if (!text.empty()) parts.push_back({text, false});
  for (const text::RenderedPart& part : behind) parts.push_back({part.text, !part.from_message});
  return tokenizer_->encode_parts(parts, /*add_special=*/false);
}

std::string PromptFrame::question_text(std::string_view question) {
  return asked(question);
}

Result<std::vector<int32_t>> PromptFrame::documents_opening() const {
  return tokenizer_->encode(kOpening);
}

Result<std::vector<int32_t>> PromptFrame::routing_question(std::string_view question) const {
  return tokenizer_->encode(asked(question) + "\n");
}

}  // namespace rhapsode::recall
