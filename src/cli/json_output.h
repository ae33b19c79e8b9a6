// What the library returns, as JSON with stable snake_case fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rhapsode/engine.h"
#include "rhapsode/result.h"

namespace rhapsode::cli {

using Json = nlohmann::ordered_json;

// One line and a line feed; bytes that are not UTF-8 become U+FFFD.
std::string to_line(const Json& json);
// Indented, for objects that people read too.
std::string to_text(const Json& json);

Json error_json(const Error& error);  // {"error": {"kind", "message"}}
Json usage_json(const Usage& usage);
Json timing_json(const StageTimes& timing, const ModelInfo& model);
Json model_json(const ModelInfo& model);

// {text, finish, tokens?, prompt_logprobs?, usage, timing, model}; the engine names the tokens.
Json response_json(const Response& response, bool with_tokens, const Engine& engine);

}  // namespace rhapsode::cli
