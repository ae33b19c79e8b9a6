// The baseline that citations are measured against: the first sentence that contains the answer's words.
//
// Threads: any. Errors: none. Cost: O(text of the passages).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/dataset.h"
#include "eval/subject.h"

namespace rhapsode::eval {

struct CitedText {
  std::string text;
  Span span;
};

// In reading order; both sides normalised. Nothing when no sentence contains it.
std::optional<CitedText> first_sentence_with(const std::vector<PlacedPassage>& passages,
                                             std::string_view answer);

}  // namespace rhapsode::eval
