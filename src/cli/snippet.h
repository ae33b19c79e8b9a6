// Short pieces of stored text for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rhapsode::cli {

// On one line: runs of white space become one space, the ends are trimmed.
std::string flattened(std::string_view text);

// The sentence of `text` that shares most with the question: its distinct words count by their length, each
// character of a script without spaces is a word. Rows, items and headings of Markdown count as sentences;
// when nothing is shared it is the first that is no heading. O(length).
std::string best_sentence(std::string_view text, std::string_view question);

// "docs/guide.md:12", "paper.pdf:40 (page 3)", as far as editors and people find it.
std::string place_in_source(const std::string& source, int line, int page);

}  // namespace rhapsode::cli
