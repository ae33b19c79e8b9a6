// Answers and passages as people read them.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"
#include "rhapsode/answer.h"

namespace rhapsode::cli {

// `[1] docs/guide.md:12 "The quote."`, a line each; on a terminal wrapped to its width.
std::string footnotes(const std::vector<Citation>& citations, const Terminal& terminal);

// "first token after 0.42 s (model loaded in 0.6 s) · 2,560 tokens reused, 61 evaluated · 34 tokens at 12.3/s
// · reuse", with the reason of any other policy.
std::string answer_numbers(const Answer& answer, double model_load_ms);

// A passage found: where it is, each signal's score, and the sentence that shares most with the question, or
// all of it.
std::string found_text(int rank, const FoundPassage& found, const std::string& question, bool whole,
                       const Terminal& terminal);

// Where a passage's KV is: "on disk", "in memory", "to be made".
const char* words_for(KvTier tier);

// The passages an answer was made from, best first, a line each.
// One hop of several: its query, what it added, and its partial answer.
std::string hop_text(int number, const Hop& hop, const Terminal& terminal);
std::string read_table(const std::vector<FoundPassage>& passages, const Terminal& terminal);

}  // namespace rhapsode::cli
