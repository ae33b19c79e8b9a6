// What find_bench and its comparison with faiss share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "find_corpus.h"
#include "index/find_monitor.h"
#include "index/passage_index.h"

namespace rhapsode::bench {

struct FindSetting {
  FindCorpus corpus;
  std::vector<index::PassageCodes> passages;  // id = place
  std::vector<index::QuestionVectors> questions;
  std::vector<std::vector<index::ScanHit>> exact;  // the best `count` of each question
  int count = 40;
  int threads = 2;
};

class ArrayCodes final : public index::CodeSource {
 public:
  explicit ArrayCodes(std::span<const index::PassageCodes> passages) : passages_(passages) {}
  Result<std::vector<index::PassageCodes>> codes(std::span<const int64_t> ids) override {
    std::vector<index::PassageCodes> found;
    found.reserve(ids.size());
    for (const int64_t id : ids) found.push_back(passages_[static_cast<size_t>(id)]);
    return found;
  }

 private:
  std::span<const index::PassageCodes> passages_;
};

// Times of single questions and the mean recall of their answers.
struct FindScore {
  std::vector<double> ms;  // wall
  double cpu_ms = 0;       // of all threads, mean
  double recall = 0;
  double quantile(double share) const;
};

double process_cpu_ms();

// Runs `find` (number of a question to its hits) for every question.
template <class Find>
FindScore score(const FindSetting& setting, const Find& find) {
  FindScore score;
  const double cpu = process_cpu_ms();
  for (size_t q = 0; q < setting.questions.size(); ++q) {
    const int64_t begin = now_ns();
    const std::vector<index::ScanHit> hits = find(q);
    score.ms.push_back(ms_between(begin, now_ns()));
    score.recall += index::recall_of(hits, setting.exact[q]);
  }
  const auto questions = static_cast<double>(setting.questions.size());
  score.cpu_ms = (process_cpu_ms() - cpu) / questions;
  score.recall /= questions;
  return score;
}

double seconds_since(int64_t ns);
void print_row(const std::string& name, const FindScore& score, double build_s, double bytes_a_token);

// faiss's indices over single chunks: their passages are scored exactly, `candidates` of them.
void compare_with_faiss(const FindSetting& setting, size_t candidates, bool float_indices);

}  // namespace rhapsode::bench
