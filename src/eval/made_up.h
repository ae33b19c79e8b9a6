// Made-up facts in real text: names and values that nobody can guess, and texts cut into sections to hide
// them in. Threads: any. Cost: linear in the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"

namespace rhapsode::eval {

// A section of a text, as a list of paragraphs: views of it.
struct Section {
  std::string title;
  std::vector<std::string_view> paragraphs;
};

// Runs of lines that are not blank, without white space at the end; all within the first bytes.
std::vector<std::string_view> paragraphs_of(std::string_view text, size_t most_bytes);
// Opens a section whenever the one before has reached `section_bytes`.
void add_sections(const std::string& title, const std::vector<std::string_view>& paragraphs,
                  size_t section_bytes, std::vector<Section>& sections);

std::string made_up_name(Random& random);   // "Velmanend"
std::string made_up_value(Random& random);  // six digits

}  // namespace rhapsode::eval
