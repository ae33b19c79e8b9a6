#include "text/chat_template.h"

#include <algorithm>

#include "base/result.h"
#include "text/message_mask.h"
#include "text/utf8_gate.h"

namespace rhapsode::text {
namespace {

// Templates write roles next to their control tokens, so a role is a plain word.
Status check_roles(std::span<const Message> messages) {
  if (messages.empty()) return make_error(ErrorKind::kInvalidArgument, "there are no messages to render");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const bool plain =
        std::all_of(role.begin(), role.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
    if (role.empty() || role.size() > 32 || !plain) {
      return make_error(
          ErrorKind::kInvalidArgument,
          "message {}: the role must be a word in lower case, such as system, user or assistant", i + 1);
    }
  }
  return {};
}

std::vector<Message> with_valid_text(std::span<const Message> messages) {
  std::vector<Message> valid(messages.begin(), messages.end());
  for (Message& message : valid) message.content = to_valid_utf8(message.content);
  return valid;
}

// As llama.cpp does for templates that know no system role.
void merge_system_message(std::vector<Message>& messages) {
  if (messages.size() < 2 || messages[0].role != "system") return;
  messages[1].content = messages[0].content + "\n" + messages[1].content;
  messages.erase(messages.begin());
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::load(const Tokenizer& tokenizer) {
  if (!tokenizer.chat_template()) {
    return make_error(
        ErrorKind::kNotFound,
        "the model has no chat template: it was not trained on conversations; use --raw to give it text");
  }
  return parse(tokenizer, *tokenizer.chat_template());
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(const Tokenizer& tokenizer,
                                                                const std::string& source) {
  RH_TRY(const GuardedTemplate guarded, guard_template(source));
  RH_TRY(JinjaTemplate jinja, JinjaTemplate::parse(guarded));
  return std::shared_ptr<const ChatTemplate>(
      new ChatTemplate(tokenizer.shared_from_this(), std::move(jinja)));
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, JinjaTemplate jinja)
    : tokenizer_(std::move(tokenizer)), jinja_(std::move(jinja)) {}

Result<std::vector<RenderedPart>> ChatTemplate::render(std::span<const Message> messages,
                                                       ChatTemplateOptions options) const {
  RH_TRY_STATUS(check_roles(messages));
  std::vector<Message> valid = with_valid_text(messages);
  if (!jinja_.supports_system_role()) merge_system_message(valid);
  RH_TRY(const MessageMask mask, MessageMask::apply(tokenizer_->control_tokens(), jinja_.source(), valid));
  RH_TRY(std::vector<RenderedPart> parts,
         jinja_.render(valid, {tokenizer_->piece(tokenizer_->bos(), true),
                               tokenizer_->piece(tokenizer_->eos(), true), options.add_generation_prompt}));
  return mask.remove(std::move(parts));
}

Result<std::vector<int32_t>> ChatTemplate::render_tokens(std::span<const Message> messages,
                                                         ChatTemplateOptions options) const {
  RH_TRY(const std::vector<RenderedPart> parts, render(messages, options));
  std::vector<TextPart> texts;
  for (const RenderedPart& part : parts) texts.push_back({part.text, !part.from_message});
  RH_TRY(std::vector<int32_t> tokens, tokenizer_->encode_parts(texts, /*add_special=*/false));
  const bool begins = !tokens.empty() && tokens.front() == tokenizer_->bos();
  if (tokenizer_->adds_bos() && !begins) tokens.insert(tokens.begin(), tokenizer_->bos());
  return tokens;
}

Result<std::string> ChatTemplate::render_text(std::span<const Message> messages,
                                              ChatTemplateOptions options) const {
  RH_TRY(const std::vector<RenderedPart> parts, render(messages, options));
  std::string text;
  for (const RenderedPart& part : parts) text += part.text;
  return text;
}

}  // namespace rhapsode::text
