// The files of find_bench: codes of a memory, states of questions, and corpora of any size made of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "index/code_scan.h"

namespace rhapsode::bench {

struct CorpusPassage {
  int32_t content = 0;
  int32_t chunks = 0;
};

struct FindCorpus {
  int dimensions = 0;
  std::vector<CorpusPassage> passages;
  std::vector<uint64_t> codes;
  int words() const { return (dimensions + 63) / 64; }
  int64_t chunks() const { return static_cast<int64_t>(codes.size()) / words(); }
};

// Mean over chunks of sources of 20 chunks or more (at most 4,000 chunks): the largest dot product with
// another chunk of the same source, and the mean one, both in units of d.
struct SourceSpread {
  double nearest = 0;
  double mean = 0;
};
SourceSpread measure_spread(const FindCorpus& corpus);

// One corpus behind the other.
void append(FindCorpus& corpus, const FindCorpus& more);
// The corpus again and again, until it has `chunks`: each copy's bits are turned over at random so that a
// chunk and its copy have the dot product `keep` (rounded to 1/128) on average. The first round is the corpus
// itself.
FindCorpus tile(const FindCorpus& corpus, int64_t chunks, double keep);

// A file that cannot be read or written ends the program with a sentence.
void save_corpus(const FindCorpus& corpus, const std::string& path);
FindCorpus load_corpus(const std::string& path);
void save_questions(std::span<const index::QuestionVectors> questions, const std::string& path);
std::vector<index::QuestionVectors> load_questions(const std::string& path);

}  // namespace rhapsode::bench
