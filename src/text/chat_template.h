// ChatTemplate: messages to the prompt that a model was trained on, by the Jinja template in its file.
//
// Messages are never searched for control tokens; the template's own text is. Which text is whose is kept
// track of through whatever the template does with a message (message_mask.h, llama_common.h).
// The ids are those of the model's reference tokenizer for the whole rendered text, whatever the borders
// between template and messages, and the default system prompt of templates that have one is there. The begin
// token stands as often as the reference has it: where the template writes it, else once in front if the
// model's file asks for it. A template without a system role gets the system message's text in front of the
// next message.
// Ownership: keeps the tokenizer alive. Threads: every call may run on any thread at any time.
// Errors: kNotFound for a model without a template, kUnsupported for a template that cannot be used,
// kInvalidArgument for messages that it refuses.
// Cost: a few milliseconds to load, below one to render; then the tokenizer's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rhapsode/options.h"
#include "rhapsode/result.h"
#include "text/llama_common.h"
#include "text/tokenizer.h"

namespace rhapsode::text {

struct ChatTemplateOptions {
  bool add_generation_prompt = true;  // end with the opening of the assistant's turn
};

class ChatTemplate {
 public:
  // The template of the model's file.
  static Result<std::shared_ptr<const ChatTemplate>> load(const Tokenizer& tokenizer);
  // Another one, in Jinja.
  static Result<std::shared_ptr<const ChatTemplate>> parse(const Tokenizer& tokenizer,
                                                           const std::string& source);

  Result<std::vector<int32_t>> render_tokens(std::span<const Message> messages,
                                             ChatTemplateOptions options = {}) const;

  // The rendered text in parts, each marked as the template's own or a message's.
  Result<std::vector<RenderedPart>> render_parts(std::span<const Message> messages,
                                                 ChatTemplateOptions options = {}) const {
    return render(messages, options);
  }

  // The same as text, to be read by people: control tokens of the template and of messages look alike in it.
  Result<std::string> render_text(std::span<const Message> messages, ChatTemplateOptions options = {}) const;

 private:
  ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, JinjaTemplate jinja);
  Result<std::vector<RenderedPart>> render(std::span<const Message> messages,
                                           ChatTemplateOptions options) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  JinjaTemplate jinja_;
};

}  // namespace rhapsode::text
