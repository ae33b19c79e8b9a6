// The terms of a text for keyword search: the same function for documents and questions.
//
// Lower case, compatibility forms and accents folded, soft hyphens and zero-width signs removed, words split
// at what is neither letter, digit nor mark; also the parts of snake_case and CamelCase words. Runs of
// scripts without spaces (Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar) become overlapping bigrams (case
// I12). Threads: any. Cost: O(text). Bytes that are not UTF-8 separate words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::text {

std::vector<std::string> search_terms(std::string_view text);
// The same for a question: no repeated terms, and the commonest English function words left out, unless
// nothing else is there.
std::vector<std::string> question_terms(std::string_view text);

}  // namespace rhapsode::text
