#include "cli/trace_json.h"

#include <cmath>

#include "cli/memory_json.h"
#include "io/file.h"

namespace rhapsode::cli {
namespace {

constexpr int kVersion = 1;

// Shares and times to six digits: what is measured is not known better.
double rounded(double value) {
  return std::round(value * 1e6) / 1e6;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(rounded(*value)) : Json(nullptr);
}

// All signals; the text is left to the memory.
Json candidate_json(const FoundPassage& found) {
  Json evidence = nullptr;
  if (!found.evidence.empty()) {
    evidence = Json::array();
    for (const float value : found.evidence) evidence.push_back(rounded(value));
  }
  Json link = nullptr;
  if (found.link) link = {{"from", found.link->from}, {"mention", found.link->mention}};
  return {{"passage", found.passage.id},
          {"source", found.passage.source},
          {"line", found.passage.line},
          {"score", number_or_null(found.score)},
          {"latent", number_or_null(found.latent)},
          {"latent_z", number_or_null(found.latent_z)},
          {"keywords", number_or_null(found.keywords)},
          {"keywords_z", number_or_null(found.keywords_z)},
          {"judged", number_or_null(found.judged)},
          {"chained", number_or_null(found.chained)},
          {"evidence", std::move(evidence)},
          {"link", std::move(link)}};
}

Json place_json(const TracedPlace& place) {
  return {{"passage", place.passage},
          {"position", place.position},
          {"tokens", place.tokens},
          {"exact_tokens", place.reading.exact_tokens},
          {"approximate_tokens", place.reading.approximate_tokens},
          {"recomputed_tokens", place.reading.recomputed_tokens},
          {"miss", text_or_null(place.reading.miss)}};
}

Json routing_json(const TracedRouting& routing) {
  Json found = Json::array();
  for (const FoundPassage& one : routing.found) found.push_back(candidate_json(one));
  Json places = Json::array();
  for (const TracedPlace& place : routing.places) places.push_back(place_json(place));
  return {{"cause", to_string(routing.cause)},
          {"token", routing.token},
          {"signal", rounded(routing.signal)},
          {"query", routing.query},
          {"found", std::move(found)},
          {"joined", routing.joined},
          {"left", routing.left},
          {"places", std::move(places)},
          {"probe_tokens", routing.probe_tokens},
          {"evaluated_tokens", routing.evaluated_tokens},
          {"route_ms", rounded(routing.route_ms)},
          {"read_ms", rounded(routing.read_ms)},
          {"problem", text_or_null(routing.problem)}};
}

Json token_json(const TracedToken& token) {
  Json passages = Json::array();
  for (const float share : token.passages) passages.push_back(rounded(share));
  return {{"token", token.token},
          {"text", token.text},
          {"routing", token.routing},
          {"entropy", rounded(token.entropy)},
          {"attention",
           {{"prefix", rounded(token.prefix)},
            {"passages", std::move(passages)},
            {"question", rounded(token.question)},
            {"answer", rounded(token.answer)}}}};
}

}  // namespace

Json trace_json(const std::string& question, const Answer& answer, const ModelInfo& model) {
  if (!answer.trace) return nullptr;
  const AnswerTrace& trace = *answer.trace;
  Json passages = Json::array();
  for (const PassageInfo& passage : trace.passages) passages.push_back(passage_json(passage));
  Json routings = Json::array();
  for (const TracedRouting& routing : trace.routings) routings.push_back(routing_json(routing));
  Json tokens = Json::array();
  for (const TracedToken& token : trace.tokens) tokens.push_back(token_json(token));
  return {{"format", "rhapsode-answer-trace"},
          {"version", kVersion},
          {"question", question},
          {"answer", answer.text},
          {"policy", to_string(answer.policy)},
          {"policy_reason", answer.policy_reason},
          {"model", model_json(model)},
          {"passages", std::move(passages)},
          {"routings", std::move(routings)},
          {"tokens", std::move(tokens)},
          {"probe_tokens", trace.probe_tokens},
          {"probe_ms", rounded(trace.probe_ms)}};
}

Status check_trace_file(const std::filesystem::path& file) {
  if (file.empty()) return {};
  if (file == "-") {
    return make_error(ErrorKind::kInvalidArgument,
                      "--answer-trace writes a file: --heat-map shows the trace here, and with --json it is "
                      "part of the answer");
  }
  std::error_code code;
  if (std::filesystem::is_directory(file, code)) {
    return make_error(ErrorKind::kInvalidArgument, "--answer-trace: {} is a folder", file.string());
  }
  const std::filesystem::path folder = file.parent_path();
  if (folder.empty() || std::filesystem::is_directory(folder, code)) return {};
  return make_error(ErrorKind::kNotFound, "--answer-trace: there is no folder {}", folder.string());
}

Status write_trace(const std::filesystem::path& file, const Json& trace) {
  return replace_file(file, to_text(trace));
}

}  // namespace rhapsode::cli
