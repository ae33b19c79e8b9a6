// BM25 over a handful of documents in memory: picks the distractors of a question, and checks what a memory's
// own keyword search is worth.
//
// Words are runs of letters, digits, '_' and bytes above ASCII, in lower case, without the commonest English
// function words; k1 1.2, b 0.75. It shares nothing with the search of a memory, so that a change of that
// does not change which distractors a question gets. Threads: const, any. Cost: O(text) to build, O(postings)
// a question.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "eval/dataset.h"

namespace rhapsode::eval {

class Bm25 {
 public:
  explicit Bm25(const std::vector<Document>& documents);

  // The best `count` documents, best first; ties by number. Documents without a common word are left out.
  std::vector<int> best(std::string_view question, size_t count) const;

 private:
  struct Posting {
    int document;
    int times;
  };
  std::unordered_map<std::string, std::vector<Posting>> postings_;
  std::vector<double> length_norm_;  // of each document: 1 - b + b * length / mean length
};

}  // namespace rhapsode::eval
