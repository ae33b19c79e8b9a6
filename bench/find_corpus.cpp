#include "find_corpus.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

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

}  // namespace

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
