// Mentions: what a passage speaks of, found without any model, by which passages are linked to one another.
//
// Names (runs of capitalised words, "University of Leeds", and their parts of two to five words), code
// symbols (snake_case, CamelCase, qualified::names), web addresses, and the passage's own title (also without
// a bracket behind it, its part before a comma, and "Re:" before it, so that the messages of a thread share
// one). A single capitalised word is worth a link only to a passage that has it as its title: it is of a kind
// of its own. Keys are lower case with single spaces; equal keys are the same mention, whatever their kind.
// That a mention of many passages links nothing is the graph's business (index/passage_graph.h). Threads:
// any. Cost: O(text). Any bytes will do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::text {

enum class MentionKind : uint8_t {
  kTitle,   // of the passage itself
  kName,    // two words or more
  kWord,    // one capitalised word: only links to titles
  kSymbol,  // of code
  kAddress,
};

struct Mention {
  std::string key;
  MentionKind kind = MentionKind::kName;
  bool operator==(const Mention&) const = default;
};

// Each key once, with the first of its kinds in the order above; keys ascending. `title` may be empty.
std::vector<Mention> find_mentions(std::string_view text, std::string_view title);

// Keys of all runs of one to eight words of a question, whatever their case: titles may be among them. Single
// words that are short or stand in every text are left out. Each once, in their order.
std::vector<std::string> phrase_keys(std::string_view question);

}  // namespace rhapsode::text
