#include "text/json_records.h"

#include <algorithm>

#include "text/text_scan.h"

namespace rhapsode::text {

JsonRecords::JsonRecords(std::string_view text) : text_(text), at_(mark_bytes(text)) {
  skip_blanks();
  if (at_ >= text_.size()) return;
  if (text_[at_] == '[') {
    form_ = Form::kArray;
    ++at_;
    return;
  }
  const Line line = line_at(text_, at_);
  const Record first = value_at(at_, line.end);
  if (first.sound && trim(text_.substr(first.end, line.end - first.end)).empty()) form_ = Form::kLines;
}

void JsonRecords::skip_blanks() {
  while (at_ < text_.size() && (is_ascii_space(text_[at_]) || text_[at_] == '\0')) ++at_;
}

bool JsonRecords::next(Record& record) {
  skip_blanks();
  if (form_ == Form::kArray) {
    while (at_ < text_.size() && text_[at_] == ',') {
      ++at_;
      skip_blanks();
    }
    if (at_ < text_.size() && text_[at_] == ']') {
      at_ = text_.size();
      return false;
    }
  }
  if (at_ >= text_.size()) return false;
  if (form_ == Form::kLines) {
    const Line line = line_at(text_, at_);
    record = value_at(at_, line.end);
    record.sound = record.sound && trim(text_.substr(record.end, line.end - record.end)).empty();
    record.end = line.end;
    at_ = line.next;
    return true;
  }
  record = value_at(at_, text_.size());
  at_ = record.end;
  return true;
}

// A value that begins at `begin`; a bare word or number ends at a comma, bracket or line end.
JsonRecords::Record JsonRecords::value_at(size_t begin, size_t end) const {
  Record record{begin, end, false};
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = begin; i < end; ++i) {
    const char c = text_[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      if (quoted || depth > 0) continue;
    } else if (c == '"') {
      quoted = true;
      continue;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
      continue;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (depth > 0 || (c != ',' && c != '\n')) {
      continue;
    }
    if (depth > 0) continue;
    // At a closing bracket or quote the value ends behind it, at what follows a bare one before it.
    const bool bare = c == ',' || c == '\n' || depth < 0;
    record.end = std::max(begin + 1, bare ? i : i + 1);
    record.sound = deepest <= kMostDepth && depth == 0;
    return record;
  }
  return record;
}

}  // namespace rhapsode::text
