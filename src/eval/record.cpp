#include "eval/record.h"

#include <cmath>

namespace rhapsode::eval {
namespace {

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json span_json(const Span& span) {
  Json json{{"document", span.document}};
  if (!span.whole()) {
    json["begin"] = span.begin;
    json["end"] = span.end;
  }
  return json;
}

Json passages_json(const std::vector<RankedPassage>& passages) {
  Json list = Json::array();
  for (const RankedPassage& ranked : passages) {
    Json json = span_json(ranked.passage.span);
    json["source"] = ranked.passage.source;
    json["score"] = number(ranked.passage.score);
    json["gold"] = ranked.gold;
    if (!ranked.passage.evidence.empty()) {
      Json& evidence = json["evidence"] = Json::array();
      // Four digits are enough to train on, and a tenth of the file.
      for (const float value : ranked.passage.evidence) {
        evidence.push_back(number(std::round(value * 1e4) / 1e4));
      }
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json citations_json(const std::vector<PlacedCitation>& citations) {
  Json list = Json::array();
  for (const PlacedCitation& citation : citations) {
    Json json = span_json(citation.span);
    json["quote"] = citation.quote;
    json["support"] = number(citation.support);
    list.push_back(std::move(json));
  }
  return list;
}

Json usage_json(const AskUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},         {"cached_tokens", usage.cached_tokens},
          {"recomputed_tokens", usage.recomputed_tokens}, {"evaluated_tokens", usage.evaluated_tokens},
          {"probe_tokens", usage.probe_tokens},           {"generated_tokens", usage.generated_tokens},
          {"sparse_tokens", usage.sparse_tokens},         {"memory_tokens_read", usage.memory_tokens_read},
          {"charged_tokens", usage.charged_tokens}};
}

Json timing_json(const AskTiming& timing) {
  return {{"route_ms", number(timing.route_ms)},
          {"load_ms", number(timing.load_ms)},
          {"prefill_ms", number(timing.prefill_ms)},
          {"ttft_ms", number(timing.ttft_ms)},
          {"cite_ms", number(timing.cite_ms)},
          {"total_ms", number(timing.total_ms)},
          {"decode_tokens_per_s", number(timing.decode_tokens_per_s)}};
}

Error bad_record(const char* what) {
  return make_error(ErrorKind::kCorrupt, "a record {}", what);
}

}  // namespace

Json to_json(const Record& record) {
  Json json{{"group", record.group}, {"id", record.id}, {"context", record.context}};
  if (!record.type.empty()) json["type"] = record.type;
  json["question"] = record.question;
  json["answers"] = record.answers;
  if (!record.error.empty()) {
    json["error"] = record.error;
    return json;
  }
  Json& scores = json["scores"] = Json::object();
  for (const auto& [name, value] : record.scores) scores[name] = number(value);
  if (record.golds > 0) json["golds"] = record.golds;
  if (!record.ranked.empty()) json["ranked"] = passages_json(record.ranked);
  if (!record.answered) return json;
  json["prediction"] = record.prediction;
  json["reply"] = record.reply.text;
  json["abstained"] = record.reply.abstained;
  json["read"] = passages_json(record.read);
  if (!record.reply.citations.empty()) json["citations"] = citations_json(record.reply.citations);
  json["policy"] = record.reply.policy;
  if (!record.reply.policy_reason.empty()) json["policy_reason"] = record.reply.policy_reason;
  json["usage"] = usage_json(record.reply.usage);
  json["timing"] = timing_json(record.reply.timing);
  return json;
}

Result<Record> parse_record(const Json& json) {
  if (!json.is_object()) return bad_record("is no object");
  Record record;
  const auto text = [&](const char* key, std::string& out) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return false;
    out = found->get<std::string>();
    return true;
  };
  if (!text("group", record.group) || !text("id", record.id) || !text("context", record.context)) {
    return bad_record("lacks a group, id or context");
  }
  if (text("error", record.error)) return record;
  const auto scores = json.find("scores");
  if (scores == json.end() || !scores->is_object()) return bad_record("lacks its scores");
  for (const auto& [name, value] : scores->items()) {
    if (value.is_number()) record.scores[name] = value.get<double>();
  }
  return record;
}

}  // namespace rhapsode::eval
