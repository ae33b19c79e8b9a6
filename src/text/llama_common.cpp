#include "text/llama_common.h"

#include <jinja/caps.h>
#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>
#include <json-schema-to-grammar.h>

#include <exception>

#include "base/result.h"
#include "text/library_log.h"

namespace rhapsode::text {
namespace {

// The engine wraps what went wrong into an excerpt of the template; the reason is the last line then, else
// the first one.
std::string reason(const std::exception& exception) {
  std::string text = exception.what();
  constexpr std::string_view kMark = "\nError: ";
  constexpr std::string_view kRaised = "Jinja Exception: ";
  if (const size_t mark = text.rfind(kMark); mark != std::string::npos) text.erase(0, mark + kMark.size());
  if (text.starts_with(kRaised)) text.erase(0, kRaised.size());
  return text.substr(0, text.find('\n'));
}

jinja::value string_value(const std::string& text, bool from_message) {
  auto value = jinja::mk_val<jinja::value_string>(text);
  if (from_message) value->mark_input();
  return value;
}

void set(const jinja::value_object& object, const char* key, const jinja::value& value) {
  object->insert(string_value(key, false), value);
}

// A few templates want content as a list of typed parts instead of a string.
jinja::value content_value(const std::string& content, bool as_list) {
  jinja::value text = string_value(content, true);
  if (!as_list) return text;
  auto part = jinja::mk_val<jinja::value_object>();
  set(part, "type", string_value("text", false));
  set(part, "text", text);
  auto list = jinja::mk_val<jinja::value_array>();
  list->push_back(part);
  return list;
}

}  // namespace

Result<std::string> json_schema_to_gbnf(std::string_view schema) {
  const LibraryLog log;
  try {
    return json_schema_to_grammar(common_json::parse(std::string(schema)), /*force_gbnf=*/true);
  } catch (const std::exception& exception) {
    return make_error(ErrorKind::kInvalidArgument, "the JSON schema cannot become a grammar: {}",
                      exception.what());
  }
}

struct JinjaTemplate::Program {
  std::string source;
  jinja::program program;
  jinja::caps caps;
};

Result<JinjaTemplate> JinjaTemplate::parse(const std::string& source) {
  const LibraryLog log;
  try {
    auto program = std::make_shared<Program>();
    jinja::lexer lexer;
    const jinja::lexer_result tokens = lexer.tokenize(source);
    program->source = tokens.source;
    program->program = jinja::parse_from_tokens(tokens);
    program->caps = jinja::caps_get(program->program);
    return JinjaTemplate(std::move(program));
  } catch (const std::exception& exception) {
    return make_error(ErrorKind::kUnsupported, "the chat template cannot be read: {}", reason(exception));
  }
}

Result<std::vector<RenderedPart>> JinjaTemplate::render(std::span<const Message> messages,
                                                        const JinjaVariables& variables) const {
  const LibraryLog log;
  try {
    const bool as_list = !program_->caps.supports_string_content && program_->caps.supports_typed_content;
    auto list = jinja::mk_val<jinja::value_array>();
    for (const Message& message : messages) {
      auto object = jinja::mk_val<jinja::value_object>();
      set(object, "role", string_value(message.role, false));
      set(object, "content", content_value(message.content, as_list));
      list->push_back(object);
    }
    jinja::context context(program_->source);
    context.set_val("messages", list);
    context.set_val("bos_token", string_value(variables.bos_token, false));
    context.set_val("eos_token", string_value(variables.eos_token, false));
    context.set_val("add_generation_prompt",
                    jinja::mk_val<jinja::value_bool>(variables.add_generation_prompt));
    jinja::runtime runtime(context);
    const jinja::value_string text = jinja::runtime::gather_string_parts(runtime.execute(program_->program));
    std::vector<RenderedPart> parts;
    for (const jinja::string_part& part : text->val_str.parts) parts.push_back({part.val, part.is_input});
    return parts;
  } catch (const std::exception& exception) {
    return make_error(ErrorKind::kInvalidArgument, "the chat template refuses these messages: {}",
                      reason(exception));
  }
}

bool JinjaTemplate::supports_system_role() const {
  return program_->caps.supports_system_role;
}

const std::string& JinjaTemplate::source() const {
  return program_->source;
}

}  // namespace rhapsode::text
