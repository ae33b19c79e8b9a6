// The records of a JSON text without a tree of the whole: lines of JSON Lines, elements of one array, or
// values one behind the other.
//
// Ownership: refers to the text. Threads: one at a time. Cost: O(text) in all, no recursion.
#pragma once

#include <cstddef>
#include <string_view>

namespace rhapsode::text {

class JsonRecords {
 public:
  enum class Form { kLines, kArray, kValues };

  explicit JsonRecords(std::string_view text);

  struct Record {
    size_t begin = 0;
    size_t end = 0;     // without the comma or line end behind it
    bool sound = true;  // brackets and strings are closed, and no deeper than kMostDepth
  };
  // False at the end.
  bool next(Record& record);

  Form form() const { return form_; }

  static constexpr int kMostDepth = 64;

 private:
  Record value_at(size_t begin, size_t end) const;
  void skip_blanks();

  std::string_view text_;
  size_t at_ = 0;
  Form form_ = Form::kValues;
};

}  // namespace rhapsode::text
