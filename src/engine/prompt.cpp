#include "engine/prompt.h"

#include <algorithm>

namespace rhapsode::engine {

Result<std::unique_ptr<PromptBuilder>> PromptBuilder::make(std::shared_ptr<const text::Tokenizer> tokenizer) {
  std::unique_ptr<PromptBuilder> builder(new PromptBuilder(std::move(tokenizer)));
  auto loaded = text::ChatTemplate::load(*builder->tokenizer_);
  if (loaded.ok()) {
    builder->template_ = std::move(loaded).value();
  } else {
    builder->template_error_ = loaded.error();
  }
  return builder;
}

Result<std::vector<int32_t>> PromptBuilder::render(const std::vector<Message>& messages) const {
  if (!template_) return template_error_;
  return template_->render_tokens(messages);
}

Result<Prompt> PromptBuilder::build(const Request& request, int context_tokens) const {
  const int kinds = !request.messages.empty() + !request.text.empty() + !request.tokens.empty();
  if (kinds != 1) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a request has exactly one of messages, text and tokens; this one has {}", kinds);
  }
  if (request.max_tokens < 0) {
    return make_error(ErrorKind::kInvalidArgument, "max_tokens is {}; it cannot be negative",
                      request.max_tokens);
  }
  Prompt prompt;
  if (!request.messages.empty()) {
    RH_TRY(prompt.tokens, render(request.messages));
  } else if (!request.text.empty()) {
    RH_TRY(prompt.tokens, tokenizer_->encode(request.text, {.add_special = true, .parse_special = false}));
  } else {
    prompt.tokens = request.tokens;
  }
  for (int32_t token : prompt.tokens) {
    if (!tokenizer_->contains(token)) {
      return make_error(ErrorKind::kInvalidArgument, "token id {} is outside the vocabulary of {}", token,
                        tokenizer_->size());
    }
  }
  if (prompt.tokens.empty()) return make_error(ErrorKind::kInvalidArgument, "the prompt has no tokens");

  const int count = static_cast<int>(prompt.tokens.size());
  const int most = request.max_tokens == 0 ? context_tokens : context_tokens - 1;
  if (count <= most) return prompt;
  if (!request.truncate_prompt) {
    return make_error(
        ErrorKind::kTooLarge,
        "the prompt has {} tokens; at most {} fit the context of {} with room for an answer: shorten it, "
        "raise --context, or allow cutting its front with --truncate-prompt",
        count, most, context_tokens);
  }
  // Room for the answer that was asked for, but never less than half of the context for the prompt.
  const int kept = std::max(context_tokens / 2, most - std::max(0, request.max_tokens - 1));
  prompt.truncated_tokens = count - kept;
  prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - kept);
  return prompt;
}

}  // namespace rhapsode::engine
