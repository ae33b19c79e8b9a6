// A set of passage ids as bits: what a question may see.
//
// Cost: one bit for each id up to the largest; contains() is one load. Ids are small non-negative numbers
// (the catalog counts them up); negative ones are never in a set. Ownership: values. Threads: const functions
// from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rhapsode::index {

class IdSet {
 public:
  IdSet() = default;
  explicit IdSet(std::span<const int64_t> ids) {
    for (const int64_t id : ids) insert(id);
  }

  void insert(int64_t id) {
    if (id < 0) return;
    const auto word = static_cast<size_t>(id) / 64;
    if (word >= words_.size()) words_.resize(word + 1 + word / 2);
    words_[word] |= uint64_t{1} << (id % 64);
  }
  bool contains(int64_t id) const {
    if (id < 0) return false;
    const auto word = static_cast<size_t>(id) / 64;
    return word < words_.size() && (words_[word] >> (id % 64) & 1) != 0;
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace rhapsode::index
