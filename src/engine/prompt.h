// From a request to the token ids of its prompt, and the limits that hold for it.
//
// Exactly one of messages, text and tokens must be given. The limit is exact: a prompt may hold context - 1
// tokens, one less than the context, so that at least one token can follow (all of it when nothing is to be
// generated). Too long a prompt is refused with both counts, or loses its oldest tokens when the request asks
// for that (cases G1-G3). Threads: const functions from any thread.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "rhapsode/options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace rhapsode::engine {

struct Prompt {
  std::vector<int32_t> tokens;
  int truncated_tokens = 0;
};

class PromptBuilder {
 public:
  static Result<std::unique_ptr<PromptBuilder>> make(std::shared_ptr<const text::Tokenizer> tokenizer);

  Result<Prompt> build(const Request& request, int context_tokens) const;
  Result<std::vector<int32_t>> render(const std::vector<Message>& messages) const;

 private:
  explicit PromptBuilder(std::shared_ptr<const text::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  // Null when the model has no template; the reason is then told to whoever asks for a chat.
  std::shared_ptr<const text::ChatTemplate> template_;
  Error template_error_;
};

}  // namespace rhapsode::engine
