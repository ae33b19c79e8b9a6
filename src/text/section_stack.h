// The path of headings above a place in a document: "Usage > Options".
//
// Ownership: a value. Threads: one at a time. Cost: O(path), at most kMostDepth titles of kMostTitleBytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::text {

class SectionStack {
 public:
  static constexpr size_t kMostDepth = 8;
  static constexpr size_t kMostTitleBytes = 120;

  // A heading of `level` (1 is the highest) closes those of its own level and below. Titles are put on one
  // line and shortened; deeper levels than kMostDepth replace the last one.
  void enter(int level, std::string_view title);
  // Closes what stands at `level` and below.
  void leave(int level);
  std::string path() const;
  bool empty() const { return open_.empty(); }

 private:
  struct Open {
    int level;
    std::string title;
  };
  std::vector<Open> open_;
};

// At most `most_bytes`, cut at a character, an ellipsis in place of what is missing.
std::string shortened(std::string_view text, size_t most_bytes);

}  // namespace rhapsode::text
