// MemorySubject: a model with a memory that is made of a data set's documents, one source each.
//
// open() writes the documents into FOLDER/documents and adds them to the memory FOLDER/memory, so that a
// second run over the same folder evaluates nothing. Documents with a title become Markdown with that
// heading; offsets of the memory are brought back to those of the data. Ownership: owns engine and memory.
// Threads: one at a time. Cost: the first add; then one ask a call. Errors: those of engine and memory, and
// kNotFound for a place that the memory does not hold.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/subject.h"
#include "rhapsode/memory.h"

namespace rhapsode::eval {

struct MemorySubjectOptions {
  EngineOptions engine;
  std::filesystem::path folder;
  std::filesystem::path whitening;  // empty: the one shipped for the model
  std::filesystem::path ranker;     // empty: the one shipped
  std::string instruction;
  std::optional<KvStorage> stored_kv;      // unset: the engine's type
  std::optional<uint64_t> disk_cap_bytes;  // of stored KV; unset: no limit
  JudgeOptions judge;                      // of Signal::kJudged and kChain
  ChainOptions chain;                      // of Signal::kChain
  LinkOptions links;                       // of rankings with links, `on` aside
  bool heed_times = true;                  // what questions say of time is used
  std::vector<int> documents;              // those to be held, by number
  bool encode = false;                     // store KV of all of them now
  std::function<bool(const AddProgress&)> on_progress;
};

// Of the memory `name` in the folder of the options, which is made where it is not there.
MemoryOptions memory_options(const MemorySubjectOptions& options, const std::string& name);

class MemorySubject final : public Subject {
 public:
  static Result<std::unique_ptr<MemorySubject>> open(const Dataset& dataset, MemorySubjectOptions options);

  SubjectInfo info() const override { return info_; }
  // What the memory could not take in, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  const AddReport& added() const { return added_; }

  Result<Reply> answer(const ReadRequest& request) override;
  Status warm(const std::vector<Span>& places) override;
  Result<ScoredAnswer> score(const ReadRequest& request, const std::string& answer, int most_tokens) override;
  Result<std::vector<PlacedPassage>> rank(const std::string& question, const Ranking& ranking) override;
  Result<std::vector<int32_t>> tokenize(const std::string& text) override;

 private:
  explicit MemorySubject(const Dataset& dataset) : dataset_(dataset) {}
  Status fill(const MemorySubjectOptions& options);
  Status read_names();
  Result<std::vector<PassageInfo>> stored(int document);
  Result<std::vector<PassageInfo>> passages_at(const std::vector<Span>& places);
  Result<AskOptions> ask_options(const ReadRequest& request);
  // The number of the document that a source of the memory is; kNotFound for one that is none of ours.
  Result<int> document_of(const std::string& source) const;
  Result<Span> span_of(const std::string& source, uint64_t begin, uint64_t end) const;
  Result<PlacedPassage> placed(const FoundPassage& found) const;

  const Dataset& dataset_;
  MemorySubjectOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;  // behind the engine, which it refers to
  SubjectInfo info_;
  AddReport added_;
  std::vector<std::string> notes_;
  std::map<std::string, int> documents_;  // by file name
  std::map<int, std::string> sources_;    // as the memory calls them, by document
  std::map<int, std::vector<PassageInfo>> passages_;
};

// How a memory is searched for a ranking.
SearchOptions search_options(const Ranking& ranking, const MemorySubjectOptions& measured);

// How a document is written for a memory to read, and how many bytes stand before its text.
struct DocumentFile {
  std::string name;
  std::string content;
  size_t text_begin = 0;
};
DocumentFile document_file(const Document& document, int number);

}  // namespace rhapsode::eval
