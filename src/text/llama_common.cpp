#include "text/llama_common.h"

#include <jinja/caps.h>
#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>
#include <json-schema-to-grammar.h>

#include <exception>
#include <functional>

#include "base/result.h"
#include "text/deep_stack.h"
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

// Runs a call into the engine, whose exceptions become errors that begin with `what`.
Status run_engine(bool needs_deep_stack, ErrorKind kind, const char* what,
                  const std::function<void()>& call) {
  Status status;
  const auto guarded_call = [&] {
    const LibraryLog log;
    try {
      call();
    } catch (const std::exception& exception) {
      status = make_error(kind, "{}: {}", what, reason(exception));
    }
  };
  if (needs_deep_stack) {
    RH_TRY_STATUS(on_deep_stack(guarded_call));
  } else {
    guarded_call();
  }
  return status;
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
  bool counts_calls = false;
  bool needs_deep_stack = false;
  jinja::program program;
  jinja::caps caps;

  void read(const GuardedTemplate& guarded) {
    jinja::lexer lexer;
    const jinja::lexer_result tokens = lexer.tokenize(guarded.source);
    source = tokens.source;
    counts_calls = guarded.counts_calls;
    needs_deep_stack = guarded.needs_deep_stack;
    program = jinja::parse_from_tokens(tokens);
    caps = jinja::caps_get(program);
  }

  std::vector<RenderedPart> render(std::span<const Message> messages, const JinjaVariables& variables) const {
    jinja::context context(source);
    context.set_val("messages", messages_value(messages));
    context.set_val("bos_token", string_value(variables.bos_token, false));
    context.set_val("eos_token", string_value(variables.eos_token, false));
    context.set_val("add_generation_prompt",
                    jinja::mk_val<jinja::value_bool>(variables.add_generation_prompt));
    if (counts_calls) {
      auto counter = jinja::mk_val<jinja::value_object>();
      set(counter, "count", jinja::mk_val<jinja::value_int>(0));
      context.set_val(kCallCounter, counter);
    }
    jinja::runtime runtime(context);
    const jinja::value_string text = jinja::runtime::gather_string_parts(runtime.execute(program));
    std::vector<RenderedPart> parts;
    for (const jinja::string_part& part : text->val_str.parts) parts.push_back({part.val, part.is_input});
    return parts;
  }

  jinja::value messages_value(std::span<const Message> messages) const {
    const bool as_list = !caps.supports_string_content && caps.supports_typed_content;
    auto list = jinja::mk_val<jinja::value_array>();
    for (const Message& message : messages) {
      auto object = jinja::mk_val<jinja::value_object>();
      set(object, "role", string_value(message.role, false));
      set(object, "content", content_value(message.content, as_list));
      list->push_back(object);
    }
    return list;
  }
};

Result<JinjaTemplate> JinjaTemplate::parse(const GuardedTemplate& guarded) {
  auto program = std::make_shared<Program>();
  RH_TRY_STATUS(run_engine(guarded.needs_deep_stack, ErrorKind::kUnsupported,
                           "the chat template cannot be read", [&] { program->read(guarded); }));
  return JinjaTemplate(std::move(program));
}

Result<std::vector<RenderedPart>> JinjaTemplate::render(std::span<const Message> messages,
                                                        const JinjaVariables& variables) const {
  std::vector<RenderedPart> parts;
  RH_TRY_STATUS(run_engine(program_->needs_deep_stack, ErrorKind::kInvalidArgument,
                           "the chat template refuses these messages",
                           [&] { parts = program_->render(messages, variables); }));
  return parts;
}

bool JinjaTemplate::supports_system_role() const {
  return program_->caps.supports_system_role;
}

const std::string& JinjaTemplate::source() const {
  return program_->source;
}

}  // namespace rhapsode::text
