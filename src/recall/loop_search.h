// A device for tests that searches codes with plain loops over copies, as a GPU keeps them. Full after `room`
// passages. Codes are those of index_test_support.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "index/index_test_support.h"
#include "kernels/code_search.h"

namespace rhapsode::recall {

class LoopSearch final : public kernels::CodeSearch {
 public:
  explicit LoopSearch(size_t room) : room_(room) {}

  Status add(std::span<const kernels::CodeRun> passages) override {
    if (slots_.size() + passages.size() > room_) return make_error(ErrorKind::kNoSpace, "the device is full");
    for (const kernels::CodeRun& passage : passages) {
      const auto* words = reinterpret_cast<const uint64_t*>(passage.codes);
      slots_.push_back(
          {passage.id, {words, words + static_cast<size_t>(passage.chunks) * index::kTestWords}});
    }
    return {};
  }
  size_t slots() const override { return slots_.size(); }
  uint64_t chunks() const override { return 0; }
  uint64_t device_bytes() const override { return slots_.size(); }

  Result<std::vector<std::vector<kernels::CodeHit>>> best(std::span<const kernels::CodeQuestion> questions,
                                                          std::span<const uint64_t> visible,
                                                          int count) override {
    if (visible.size() != (slots_.size() + 63) / 64) return make_error(ErrorKind::kInvalidArgument, "bits");
    std::vector<std::vector<kernels::CodeHit>> found;
    for (const kernels::CodeQuestion& question : questions) {
      std::vector<kernels::CodeHit> hits;
      for (size_t s = 0; s < slots_.size(); ++s) {
        if ((visible[s / 64] >> (s % 64) & 1) != 0)
          hits.push_back({slots_[s].id, score(question, slots_[s])});
      }
      std::sort(hits.begin(), hits.end(), [](const auto& a, const auto& b) {
        return a.score != b.score ? a.score > b.score : a.id < b.id;
      });
      hits.resize(std::min(hits.size(), static_cast<size_t>(count)));
      found.push_back(std::move(hits));
    }
    return found;
  }

 private:
  struct Slot {
    int64_t id;
    std::vector<uint64_t> words;
  };
  static float score(const kernels::CodeQuestion& question, const Slot& slot) {
    double sum = 0;
    for (int t = 0; t < question.tokens; ++t) {
      int best = INT32_MIN;
      for (size_t c = 0; c < slot.words.size(); c += index::kTestWords) {
        int dot = 0;
        for (size_t i = 0; i < index::kTestDimensions; ++i) {
          const int level = question.levels[static_cast<size_t>(t) * index::kTestDimensions + i];
          dot += (slot.words[c + i / 64] >> (i % 64) & 1) != 0 ? level : -level;
        }
        best = std::max(best, dot);
      }
      sum += question.factors[static_cast<size_t>(t)] * best;
    }
    return static_cast<float>(sum / std::sqrt(static_cast<double>(index::kTestDimensions)));
  }

  size_t room_;
  std::vector<Slot> slots_;
};

}  // namespace rhapsode::recall
