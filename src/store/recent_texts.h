// The texts of contents that were read last, so that passages of a few documents asked for in any order do
// not decompress each of them once a passage.
//
// Ownership: copies of the texts, the least recently used out first, up to `cap_bytes` (one text larger than
// that is kept alone). Threads: one at a time. Cost: a lookup.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

namespace rhapsode::store {

class RecentTexts {
 public:
  explicit RecentTexts(uint64_t cap_bytes) : cap_bytes_(cap_bytes) {}

  // Null: not here. Valid until the next call.
  const std::string* find(int64_t content);
  const std::string& insert(int64_t content, std::string text);
  void clear();
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    int64_t content;
    std::string text;
  };
  uint64_t cap_bytes_;
  uint64_t bytes_ = 0;
  std::list<Entry> entries_;  // most recent first
  std::unordered_map<int64_t, std::list<Entry>::iterator> places_;
};

}  // namespace rhapsode::store
