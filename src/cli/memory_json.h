// What a memory returns, as JSON with stable snake_case fields. What is unknown is null.
#pragma once

#include "cli/json_output.h"
#include "rhapsode/conversation.h"
#include "rhapsode/memory.h"

namespace rhapsode::cli {

// {answer, abstained, citations, usage, timing, policy, policy_reason, passages, finish, model}
Json answer_json(const Answer& answer, const ModelInfo& model);
// {turn, message, answer, recalled, spilled, usage, timing, policy, policy_reason, finish, conversation,
// model}
Json reply_json(const Reply& reply, const std::string& conversation, const ModelInfo& model);
Json derived_json(const std::vector<DerivedAnswer>& derived);
Json found_json(const FoundPassage& found);
Json passage_json(const PassageInfo& passage);
Json plan_json(const AddPlan& plan);
Json add_json(const AddReport& report);
Json issues_json(const std::vector<SourceIssue>& issues);
Json source_json(const SourceInfo& source);
Json detail_json(const SourceDetail& detail);  // {source, versions, passages, problems}
Json facts_json(const std::vector<FactInfo>& facts);
Json remember_json(const RememberReport& remembered);
Json stats_json(const MemoryStats& stats);
Json verify_json(const VerifyReport& report);

}  // namespace rhapsode::cli
