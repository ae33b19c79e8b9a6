// Abstention: whether a memory holds what a question asks for.
//
// Two moments: before reading, from how much of the question the chosen passages cover; after answering, from
// the answer itself (the instruction of a memory asks the model to say when the documents hold nothing).
// Thresholds are calibrated on held-out questions (docs/results.md). Threads: any.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::recall {

// The share of the question's terms that occur in the chosen passages; numbers count double. 1 without terms.
// `texts`: header and text of each passage.
double coverage_of(std::span<const std::string> terms, std::span<const std::string> texts);

// True when the passages hold nothing that the question is about.
bool is_unfit(double coverage);

// True for an answer that says that the documents do not hold it.
bool is_refusal(std::string_view answer);

}  // namespace rhapsode::recall
