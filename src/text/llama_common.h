// What is taken from libllama-common: its Jinja engine and its conversion of JSON schemas to grammars.
//
// llama_common.cpp is the only file that includes that library's headers. They promise no stable interface,
// so the release is pinned and nothing of theirs shows here. Ownership: values. Threads: a JinjaTemplate is
// immutable and may render on several threads. Errors: what the library throws, in its words. Cost: parsing a
// template runs it a few times to learn what it supports, milliseconds in all; rendering takes a fraction of
// one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/options.h"
#include "rhapsode/result.h"
#include "text/template_guard.h"

namespace rhapsode::text {

// A JSON schema that grammar_of_json_schema() has checked, as a grammar in GBNF.
Result<std::string> json_schema_to_gbnf(std::string_view schema);

// A stretch of rendered text and where it is from. The engine keeps the origin through trimming, case
// changes, cutting and joining with '+'; text that it mixes in other ways may count as the template's.
struct RenderedPart {
  std::string text;
  bool from_message = false;
};

struct JinjaVariables {
  std::string bos_token;
  std::string eos_token;
  bool add_generation_prompt = true;
};

class JinjaTemplate {
 public:
  static Result<JinjaTemplate> parse(const GuardedTemplate& guarded);

  // Contents are messages' text; roles count as the template's, so they must have been checked.
  Result<std::vector<RenderedPart>> render(std::span<const Message> messages,
                                           const JinjaVariables& variables) const;

  bool supports_system_role() const;
  const std::string& source() const;

 private:
  struct Program;
  explicit JinjaTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

}  // namespace rhapsode::text
