// Codes and questions with a structure like real ones, for tests of the index: chunks lean towards a few of
// many topics, question tokens are topics with noise of their own.
#pragma once

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "index/anchor_set.h"
#include "index/passage_index.h"

namespace rhapsode::index {

inline constexpr int kTestDimensions = 192;
inline constexpr size_t kTestWords = kTestDimensions / 64;

class TestTopics {
 public:
  explicit TestTopics(int topics, uint64_t seed = 1) : random_(seed) {
    for (int t = 0; t < topics; ++t) topics_.push_back(noise());
  }

  std::vector<uint64_t> codes(int chunks) {
    std::vector<uint64_t> words(static_cast<size_t>(chunks) * kTestWords);
    for (size_t c = 0; c < static_cast<size_t>(chunks); ++c) {
      const std::vector<float>& a = topics_[random_() % topics_.size()];
      const std::vector<float>& b = topics_[random_() % topics_.size()];
      const std::vector<float> own = noise();
      for (size_t i = 0; i < own.size(); ++i) {
        const bool positive = a[i] + 0.7f * b[i] + 2.0f * own[i] > 0.0f;
        words[c * kTestWords + i / 64] |= uint64_t{positive} << (i % 64);
      }
    }
    return words;
  }

  QuestionVectors question(int tokens) {
    QuestionVectors question;
    question.dimensions = kTestDimensions;
    for (int t = 0; t < tokens; ++t) {
      std::vector<float> vector = topics_[random_() % topics_.size()];
      const std::vector<float> own = noise();
      double squares = 0.0;
      for (size_t i = 0; i < own.size(); ++i) {
        vector[i] += 0.7f * own[i];
        squares += vector[i] * vector[i];
      }
      for (const float value : vector) {
        question.vectors.push_back(value / static_cast<float>(std::sqrt(squares)));
      }
      question.weights.push_back(0.5f + static_cast<float>(random_() % 1000) / 200.0f);
    }
    return question;
  }

  std::shared_ptr<const AnchorSet> anchors(int count) {
    std::vector<float> points;
    for (int i = 0; i < count; ++i) {
      const QuestionVectors states = question(8);
      points.insert(points.end(), states.vectors.begin(), states.vectors.end());
    }
    AnchorTraining training;
    training.count = count;
    return std::make_shared<const AnchorSet>(*AnchorSet::train(kTestDimensions, points, training));
  }

  std::mt19937_64& random() { return random_; }

 private:
  std::vector<float> noise() {
    std::normal_distribution<float> normal;
    std::vector<float> values(kTestDimensions);
    for (float& value : values) value = normal(random_);
    return values;
  }

  std::mt19937_64 random_;
  std::vector<std::vector<float>> topics_;
};

// The oracle: passages by id, and what is right by looking at all of them.
class TestStore final : public CodeSource {
 public:
  Result<std::vector<PassageCodes>> codes(std::span<const int64_t> ids) override {
    std::vector<PassageCodes> found;
    for (const int64_t id : ids) found.push_back(passage(id));
    return found;
  }
  PassageCodes passage(int64_t id) const {
    const auto found = codes_.find(id);
    if (found == codes_.end()) return {id, nullptr, 0};
    return {id, reinterpret_cast<const std::byte*>(found->second.data()),
            static_cast<int32_t>(found->second.size() / kTestWords)};
  }
  void put(int64_t id, std::vector<uint64_t> codes) { codes_[id] = std::move(codes); }
  void drop(int64_t id) { codes_.erase(id); }
  std::vector<int64_t> ids() const {
    std::vector<int64_t> ids;
    for (const auto& [id, codes] : codes_) ids.push_back(id);
    return ids;
  }
  std::vector<PassageCodes> passages(std::span<const int64_t> ids) const {
    std::vector<PassageCodes> found;
    for (const int64_t id : ids) found.push_back(passage(id));
    return found;
  }
  std::vector<ScanHit> best(const QuestionVectors& question, std::span<const int64_t> ids, int count) const {
    return best_passages(question, passages(ids), QuestionForm::kFourBits, count, 1);
  }

 private:
  std::map<int64_t, std::vector<uint64_t>> codes_;
};

inline bool same_hits(const std::vector<ScanHit>& a, const std::vector<ScanHit>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].id != b[i].id || a[i].score != b[i].score) return false;
  }
  return true;
}

}  // namespace rhapsode::index
