#include "cli/memory_json.h"

#include <cmath>

namespace rhapsode::cli {
namespace {

double rounded(double value) {
  return std::round(value * 1000.0) / 1000.0;
}

// JSON has neither infinity nor NaN.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json page_json(int page) {
  return page == 0 ? Json(nullptr) : Json(page);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json citation_json(const Citation& citation) {
  return {{"n", citation.n},
          {"source", citation.source},
          {"version", citation.version},
          {"start_byte", citation.start_byte},
          {"end_byte", citation.end_byte},
          {"line", citation.line},
          {"page", page_json(citation.page)},
          {"quote", citation.quote},
          {"support", number(citation.support)}};
}

Json ask_usage_json(const AskUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"cached_tokens", usage.cached_tokens},
          {"recomputed_tokens", usage.recomputed_tokens},
          {"evaluated_tokens", usage.evaluated_tokens},
          {"probe_tokens", usage.probe_tokens},
          {"generated_tokens", usage.generated_tokens},
          {"sparse_tokens", usage.sparse_tokens},
          {"memory_tokens_read", usage.memory_tokens_read},
          {"reroutings", usage.reroutings},
          {"joined_passages", usage.joined_passages},
          {"cold_candidates", usage.cold_candidates},
          {"charged_tokens", rounded(usage.charged_tokens)}};
}

Json ask_timing_json(const AskTiming& timing) {
  return {
      {"route_ms", rounded(timing.route_ms)}, {"load_ms", rounded(timing.load_ms)},
      {"blend_ms", rounded(timing.blend_ms)}, {"prefill_ms", rounded(timing.prefill_ms)},
      {"ttft_ms", rounded(timing.ttft_ms)},   {"decode_tokens_per_s", rounded(timing.decode_tokens_per_s)},
      {"cite_ms", rounded(timing.cite_ms)},   {"total_ms", rounded(timing.total_ms)}};
}

template <typename T, typename ToJson>
Json list_of(const std::vector<T>& values, const ToJson& to_json) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

}  // namespace

Json passage_json(const PassageInfo& passage) {
  return {{"id", passage.id},
          {"source", passage.source},
          {"version", passage.version},
          {"start_byte", passage.start_byte},
          {"end_byte", passage.end_byte},
          {"line", passage.line},
          {"page", page_json(passage.page)},
          {"tokens", passage.tokens},
          {"header", passage.header},
          {"tier", to_string(passage.tier)},
          {"superseded_by", text_or_null(passage.superseded_by)}};
}

Json found_json(const FoundPassage& found) {
  Json json = passage_json(found.passage);
  json["score"] = number(found.score);
  json["latent"] = number(found.latent);
  json["keywords"] = number(found.keywords);
  json["judged"] = found.judged ? number(*found.judged) : Json(nullptr);
  json["chained"] = found.chained ? number(*found.chained) : Json(nullptr);
  json["found_by"] = found.link ? "link" : "search";
  json["link"] =
      found.link ? Json{{"from", found.link->from}, {"mention", found.link->mention}} : Json(nullptr);
  json["text"] = found.text;
  return json;
}

// A passage that was read, and how; of an answer that was refused, only what was found.
Json read_passages_json(const Answer& answer) {
  Json list = Json::array();
  for (size_t i = 0; i < answer.passages.size(); ++i) {
    Json json = found_json(answer.passages[i]);
    if (i < answer.readings.size()) {
      const PassageReading& reading = answer.readings[i];
      json["exact_tokens"] = reading.exact_tokens;
      json["approximate_tokens"] = reading.approximate_tokens;
      json["recomputed_tokens"] = reading.recomputed_tokens;
      json["miss"] = reading.miss.empty() ? Json(nullptr) : Json(reading.miss);
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json self_check_json(const SelfCheck& check) {
  if (check.passage == 0) return nullptr;
  return {{"passage", check.passage},
          {"difference", number(check.difference)},
          {"problem", check.problem.empty() ? Json(nullptr) : Json(check.problem)}};
}

Json hop_json(const Hop& hop) {
  return {{"query", hop.query}, {"passages", list_of(hop.passages, found_json)}, {"answer", hop.answer}};
}

Json answer_json(const Answer& answer, const ModelInfo& model) {
  return {{"answer", answer.text},
          {"abstained", answer.abstained},
          {"citations", list_of(answer.citations, citation_json)},
          {"usage", ask_usage_json(answer.usage)},
          {"timing", ask_timing_json(answer.timing)},
          {"policy", to_string(answer.policy)},
          {"policy_reason", answer.policy_reason},
          {"passages", read_passages_json(answer)},
          {"self_check", self_check_json(answer.self_check)},
          {"hops", list_of(answer.hops, hop_json)},
          {"as_of", text_or_null(answer.as_of)},
          {"notes", answer.notes},
          {"finish", to_string(answer.finish)},
          {"model", model_json(model)}};
}

Json recalled_json(const RecalledPassage& recalled) {
  Json json = found_json(recalled.found);
  json["read_tokens"] = recalled.tokens;
  json["conversation"] = recalled.conversation;
  json["as_computed"] = recalled.as_computed;
  json["exact_tokens"] = recalled.reading.exact_tokens;
  json["approximate_tokens"] = recalled.reading.approximate_tokens;
  json["miss"] = text_or_null(recalled.reading.miss);
  return json;
}

Json reply_json(const Reply& reply, const std::string& conversation, const ModelInfo& model) {
  const auto spilled_json = [](const SpilledPassage& spilled) {
    return Json{{"passage", spilled.passage},
                {"source", spilled.source},
                {"tokens", spilled.tokens},
                {"first_message", spilled.first_message},
                {"last_message", spilled.last_message}};
  };
  const TurnUsage& usage = reply.usage;
  return {{"turn", reply.turn},
          {"message", reply.message},
          {"answer", reply.text},
          {"recalled", list_of(reply.recalled, recalled_json)},
          {"spilled", list_of(reply.spilled, spilled_json)},
          {"usage",
           {{"message_tokens", usage.message_tokens},
            {"generated_tokens", usage.generated_tokens},
            {"evaluated_tokens", usage.evaluated_tokens},
            {"made_anew_tokens", usage.made_anew_tokens},
            {"index_tokens", usage.index_tokens},
            {"probe_tokens", usage.probe_tokens},
            {"recalled_tokens", usage.recalled_tokens},
            {"live_tokens", usage.live_tokens}}},
          {"timing", ask_timing_json(reply.timing)},
          {"policy", to_string(reply.policy)},
          {"policy_reason", reply.policy_reason},
          {"finish", to_string(reply.finish)},
          {"conversation", conversation},
          {"model", model_json(model)}};
}

Json derived_json(const std::vector<DerivedAnswer>& derived) {
  return list_of(derived, [](const DerivedAnswer& answer) {
    return Json{{"conversation", answer.conversation},
                {"message", answer.message},
                {"time", answer.time},
                {"text", answer.text}};
  });
}

Json issues_json(const std::vector<SourceIssue>& issues) {
  return list_of(issues, [](const SourceIssue& issue) {
    return Json{{"source", issue.source}, {"reason", issue.reason}};
  });
}

Json plan_json(const AddPlan& plan) {
  return {{"sources_new", plan.sources_new},
          {"sources_changed", plan.sources_changed},
          {"sources_unchanged", plan.sources_unchanged},
          {"tokens", plan.tokens},
          {"kv_bytes", plan.kv_bytes},
          {"seconds", number(rounded(plan.seconds))},
          {"index_only", plan.index_only}};
}

Json add_json(const AddReport& report) {
  return {{"added", report.added},
          {"updated", report.updated},
          {"unchanged", report.unchanged},
          {"removed", report.removed},
          {"skipped", issues_json(report.skipped)},
          {"failed", issues_json(report.failed)},
          {"warnings", issues_json(report.warnings)},
          {"passages", report.passages},
          {"encoded_tokens", report.encoded_tokens},
          {"evaluated_tokens", report.evaluated_tokens},
          {"kv_bytes", report.kv_bytes},
          {"index_only", report.index_only},
          {"cancelled", report.cancelled},
          {"seconds", number(rounded(report.seconds))}};
}

Json source_json(const SourceInfo& source) {
  return {{"source", source.source},
          {"kind", source.kind},
          {"title", source.title},
          {"tags", source.tags},
          {"version", source.version},
          {"versions", source.versions},
          {"bytes", source.bytes},
          {"passages", source.passages},
          {"tokens", source.tokens},
          {"added", source.added},
          {"event_time", text_or_null(source.event_time)},
          {"user", text_or_null(source.user)},
          {"identifier", text_or_null(source.identifier)},
          {"superseded_by", source.superseded_by},
          {"supersedes", source.supersedes}};
}

Json fact_json(const FactInfo& fact) {
  return {{"action", to_string(fact.action)},
          {"source", fact.source},
          {"user", text_or_null(fact.user)},
          {"subject", fact.subject},
          {"attribute", fact.attribute},
          {"value", text_or_null(fact.value)},
          {"quote", fact.quote},
          {"message", text_or_null(fact.message)},
          {"speaker", text_or_null(fact.speaker)},
          {"told", text_or_null(fact.told)},
          {"made_by", fact.made_by},
          {"event_time", text_or_null(fact.event_time)},
          {"version", fact.version == 0 ? Json(nullptr) : Json(fact.version)},
          {"valid_from", text_or_null(fact.valid_from)},
          {"valid_to", text_or_null(fact.valid_to)},
          {"current", fact.current}};
}

Json facts_json(const std::vector<FactInfo>& facts) {
  return list_of(facts, fact_json);
}

Json remember_json(const RememberReport& remembered) {
  const FactReport& report = remembered.report;
  return {{"recorded", report.recorded},
          {"known", report.known},
          {"superseded", report.superseded},
          {"facts", facts_json(report.facts)},
          {"problems", report.problems},
          {"evaluated_tokens", report.evaluated_tokens},
          {"generations", remembered.generations},
          {"prompt_tokens", remembered.prompt_tokens},
          {"generated_tokens", remembered.generated_tokens}};
}

Json detail_json(const SourceDetail& detail) {
  const auto version_json = [](const VersionInfo& version) {
    return Json{{"version", version.version},
                {"added", version.added},
                {"replaced", text_or_null(version.replaced)},
                {"event_time", text_or_null(version.event_time)},
                {"bytes", version.bytes},
                {"sha256", version.sha256}};
  };
  return {{"source", source_json(detail.info)},
          {"versions", list_of(detail.versions, version_json)},
          {"passages", list_of(detail.passages, passage_json)},
          {"problems", detail.problems}};
}

Json stats_json(const MemoryStats& stats) {
  return {{"model", stats.model},
          {"fingerprint", stats.fingerprint},
          {"sources", stats.sources},
          {"versions", stats.versions},
          {"contents", stats.contents},
          {"passages", stats.passages},
          {"passages_with_kv", stats.passages_with_kv},
          {"tokens", stats.tokens},
          {"text_bytes", stats.text_bytes},
          {"catalog_bytes", stats.catalog_bytes},
          {"code_bytes", stats.code_bytes},
          {"kv_bytes", stats.kv_bytes},
          {"kv_cap_bytes", stats.kv_cap_bytes},
          {"stale_bytes", stats.stale_bytes},
          {"foreign_kv_entries", stats.foreign_kv_entries},
          {"quarantined", stats.quarantined},
          {"kv_hits", stats.kv_hits},
          {"kv_misses", stats.kv_misses},
          {"kv_outrun", stats.kv_outrun},
          {"kv_resident_bytes", stats.kv_resident_bytes},
          {"kv_ram_bytes", stats.kv_ram_bytes},
          {"search", stats.approximate ? "approximate" : "exact"},
          {"indexed_passages", stats.indexed_passages},
          {"index_bytes", stats.index_bytes},
          {"index_problem", stats.index_problem},
          {"recall_questions", stats.recall_questions},
          {"recall", number(stats.recall)},
          {"lowest_recall", number(stats.lowest_recall)},
          {"found_on", stats.found_on},
          {"device_bytes", stats.device_bytes},
          {"device_problem", stats.device_problem}};
}

Json verify_json(const VerifyReport& report) {
  return {{"sound", report.problems.empty()},
          {"extents_checked", report.extents_checked},
          {"texts_checked", report.texts_checked},
          {"passages_encoded", report.passages_encoded},
          {"largest_difference", number(report.largest_difference)},
          {"problems", issues_json(report.problems)}};
}

}  // namespace rhapsode::cli
