// The trace of an answer as JSON: docs/formats/trace.md.
#pragma once

#include <filesystem>
#include <string>

#include "cli/json_output.h"
#include "rhapsode/answer.h"

namespace rhapsode::cli {

// {format, version, question, answer, policy, policy_reason, model, passages, routings, tokens, probe_tokens,
// probe_ms}; null for an answer without a trace.
Json trace_json(const std::string& question, const Answer& answer, const ModelInfo& model);

// Before a question is asked: whether the file can be written, as far as its name tells.
Status check_trace_file(const std::filesystem::path& file);
// Replaces the file.
Status write_trace(const std::filesystem::path& file, const Json& trace);

}  // namespace rhapsode::cli
