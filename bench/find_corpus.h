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

// A file that cannot be read or written ends the program with a sentence.
void save_corpus(const FindCorpus& corpus, const std::string& path);
FindCorpus load_corpus(const std::string& path);
void save_questions(std::span<const index::QuestionVectors> questions, const std::string& path);
std::vector<index::QuestionVectors> load_questions(const std::string& path);

}  // namespace rhapsode::bench
