#include "find_corpus.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>

namespace rhapsode::bench {
namespace {

constexpr char kCorpusMagic[8] = {'R', 'H', 'F', 'C', 'O', 'D', 'E', '1'};
constexpr char kQuestionMagic[8] = {'R', 'H', 'F', 'Q', 'U', 'E', 'S', '1'};

[[noreturn]] void fail(const std::string& path, const char* what) {
  std::cerr << path << ": " << what << "\n";
  std::exit(1);
}

class Writer {
 public:
  explicit Writer(const std::string& path) : path_(path), out_(path, std::ios::binary) {}
  template <class T>
  void put(const T* values, size_t count) {
    out_.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
  }
  void put_number(int32_t value) { put(&value, 1); }
  void finish() {
    out_.close();
    if (!out_) fail(path_, "cannot be written");
  }

 private:
  std::string path_;
  std::ofstream out_;
};

class Reader {
 public:
  Reader(const std::string& path, const char* magic) : path_(path), in_(path, std::ios::binary) {
    char found[8] = {};
    get(found, sizeof(found));
    if (std::memcmp(found, magic, sizeof(found)) != 0) fail(path_, "is not a file of dump_routing_states");
  }
  template <class T>
  void get(T* values, size_t count) {
    in_.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
    if (!in_) fail(path_, "cannot be read, or ends too early");
  }
  int32_t number() {
    int32_t value = 0;
    get(&value, 1);
    if (value < 0) fail(path_, "holds a negative size");
    return value;
  }

 private:
  std::string path_;
  std::ifstream in_;
};

uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A word whose bits are 1 with the probability `share` / 256.
uint64_t random_bits(unsigned share, uint64_t& state) {
  uint64_t word = 0;
  for (int bit = 0; bit < 8; ++bit) {
    const uint64_t random = mixed(state++);
    word = (share >> bit & 1) != 0 ? word | random : word & random;
  }
  return word;
}

}  // namespace

SourceSpread measure_spread(const FindCorpus& corpus) {
  const auto words = static_cast<size_t>(corpus.words());
  std::map<int32_t, std::vector<size_t>> sources;
  size_t chunk = 0;
  for (const CorpusPassage& passage : corpus.passages) {
    for (int32_t c = 0; c < passage.chunks; ++c) sources[passage.content].push_back(chunk++);
  }
  SourceSpread spread;
  int64_t chunks = 0;
  for (const auto& [source, own] : sources) {
    if (own.size() < 20 || chunks > 4000) continue;
    for (const size_t a : own) {
      double best = -1.0;
      double sum = 0.0;
      for (const size_t b : own) {
        if (a == b) continue;
        int different = 0;
        for (size_t w = 0; w < words; ++w) {
          different += std::popcount(corpus.codes[a * words + w] ^ corpus.codes[b * words + w]);
        }
        const double dot = 1.0 - 2.0 * different / corpus.dimensions;
        best = std::max(best, dot);
        sum += dot;
      }
      spread.nearest += best;
      spread.mean += sum / static_cast<double>(own.size() - 1);
      ++chunks;
    }
  }
  spread.nearest /= static_cast<double>(std::max<int64_t>(chunks, 1));
  spread.mean /= static_cast<double>(std::max<int64_t>(chunks, 1));
  return spread;
}

void append(FindCorpus& corpus, const FindCorpus& more) {
  corpus.dimensions = more.dimensions;
  corpus.passages.insert(corpus.passages.end(), more.passages.begin(), more.passages.end());
  corpus.codes.insert(corpus.codes.end(), more.codes.begin(), more.codes.end());
}

FindCorpus tile(const FindCorpus& corpus, int64_t chunks, double keep) {
  const auto words = static_cast<size_t>(corpus.words());
  const auto turned = static_cast<unsigned>((1.0 - keep) / 2.0 * 256.0 + 0.5);
  FindCorpus tiled;
  tiled.dimensions = corpus.dimensions;
  tiled.codes.reserve((static_cast<size_t>(chunks) + 1000) * words);
  uint64_t state = 1;
  while (tiled.chunks() < chunks) {
    const bool first = tiled.codes.empty();
    size_t from = 0;
    for (size_t p = 0; p < corpus.passages.size() && tiled.chunks() < chunks; ++p) {
      tiled.passages.push_back(corpus.passages[p]);
      for (size_t w = 0; w < static_cast<size_t>(corpus.passages[p].chunks) * words; ++w, ++from) {
        tiled.codes.push_back(corpus.codes[from] ^ (first ? 0 : random_bits(turned, state)));
      }
    }
  }
  return tiled;
}

void save_corpus(const FindCorpus& corpus, const std::string& path) {
  Writer out(path);
  out.put(kCorpusMagic, 8);
  out.put_number(corpus.dimensions);
  out.put_number(static_cast<int32_t>(corpus.passages.size()));
  out.put(corpus.passages.data(), corpus.passages.size());
  out.put(corpus.codes.data(), corpus.codes.size());
  out.finish();
}

FindCorpus load_corpus(const std::string& path) {
  Reader in(path, kCorpusMagic);
  FindCorpus corpus;
  corpus.dimensions = in.number();
  corpus.passages.resize(static_cast<size_t>(in.number()));
  in.get(corpus.passages.data(), corpus.passages.size());
  size_t chunks = 0;
  for (const CorpusPassage& passage : corpus.passages) chunks += static_cast<size_t>(passage.chunks);
  corpus.codes.resize(chunks * static_cast<size_t>(corpus.words()));
  in.get(corpus.codes.data(), corpus.codes.size());
  return corpus;
}

void save_questions(std::span<const index::QuestionVectors> questions, const std::string& path) {
  Writer out(path);
  out.put(kQuestionMagic, 8);
  out.put_number(questions.empty() ? 0 : questions[0].dimensions);
  out.put_number(static_cast<int32_t>(questions.size()));
  for (const index::QuestionVectors& question : questions) {
    out.put_number(question.tokens());
    out.put(question.weights.data(), question.weights.size());
    out.put(question.vectors.data(), question.vectors.size());
  }
  out.finish();
}

std::vector<index::QuestionVectors> load_questions(const std::string& path) {
  Reader in(path, kQuestionMagic);
  const int dimensions = in.number();
  std::vector<index::QuestionVectors> questions(static_cast<size_t>(in.number()));
  for (index::QuestionVectors& question : questions) {
    question.dimensions = dimensions;
    question.weights.resize(static_cast<size_t>(in.number()));
    in.get(question.weights.data(), question.weights.size());
    question.vectors.resize(question.weights.size() * static_cast<size_t>(dimensions));
    in.get(question.vectors.data(), question.vectors.size());
  }
  return questions;
}

}  // namespace rhapsode::bench
