// The ingester: sources to passages, codes and KV in the catalog, so that a kill at any moment costs at most
// the batch being encoded.
//
// Content comes first: bytes that are known (by SHA-256) are linked, not encoded. A new content is begun
// (text and places stored), its passages are encoded in batches that are committed one by one, and the source
// becomes visible when all of them are there. add() and plan() spread that over threads: the caller's reads
// sources and writes the catalog, others cut the next documents (DocumentCutter) and encode what is cut
// (EncodingLine). Everything is taken in the order of the sources, so what is stored does not depend on how
// many threads there are. Threads: one at a time; callbacks on the caller's. Memory: a bounded look ahead.
// Errors: of single sources in the report; a Result error (disk full, cancelled engine) keeps what was
// committed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "index/whitening.h"
#include "recall/document_cutter.h"
#include "recall/encoding_line.h"
#include "rhapsode/memory_options.h"
#include "rhapsode/memory_results.h"
#include "store/catalog.h"
#include "text/reader.h"

namespace rhapsode::recall {

struct IngestSetting {
  std::string kv_fingerprint;
  kernels::KvType stored_kv = kernels::KvType::kF16;
  uint64_t disk_cap_bytes = 0;  // of KV; 0: none
  int threads = 1;              // of the host's work in add() and plan()
};

// How the memory names a user's own source: "@ana/notes.md"; everybody's keep their names.
std::string name_for(const std::string& user, const std::string& name);

// What tells vocabularies apart: a hash over their pieces.
std::string vocabulary_id(const text::Tokenizer& tokenizer);

class Ingester {
 public:
  Ingester(store::Catalog& catalog, PassRunner& runner, Encoder& encoder, const PromptFrame& frame,
           const index::Whitening& whitening, IngestSetting setting)
      : catalog_(catalog),
        runner_(runner),
        encoder_(encoder),
        whitening_(whitening),
        setting_(std::move(setting)),
        cutter_(runner.tokenizer(), frame),
        vocabulary_id_(vocabulary_id(runner.tokenizer())) {}

  Result<AddPlan> plan(const AddOptions& options);
  // Cuts and encodes documents that were read elsewhere, for sources of the user (empty: everybody's) that
  // the caller publishes. Returns the content of each; texts that are known already cost nothing.
  Result<std::vector<int64_t>> encode(std::vector<text::Document> documents, const std::string& user);
  // Reads, cuts and encodes the stored text of a source again and makes it the content of the current
  // version, for another model or after the source that its headers were named after is gone. Nothing is done
  // when that has happened already.
  Status rebuild(const store::SourceRow& source);
  // `expected_tokens`: what plan() found, for progress; 0: unknown.
  Result<AddReport> add(const AddOptions& options, uint64_t expected_tokens);

 private:
  // Sources that add() and plan() cut ahead, for each thread, and their bytes.
  static constexpr size_t kAheadPerThread = 8;
  static constexpr uint64_t kMostBytesAhead = 64 << 20;

  struct CutSource;   // a document with what can be stored of it ahead
  struct Coming;      // a source that is being cut
  struct Cut;         // one that was cut, to begin
  struct Publishing;  // a source that waits for its content
  struct Run;         // the state of one add()
  struct Planning;    // of one plan()

  // By what a source's content is known, and what the catalog has of it.
  struct KnownContent {
    store::ContentKey key;
    std::optional<store::ContentInfo> known;
    // The name under which the source is to be read: that of the known content's headers.
    std::string read_as(const std::string& name) const {
      return known && !known->named_after.empty() ? known->named_after : name;
    }
  };
  std::string recipe_of(const std::string& name, const std::string& user) const;
  Result<KnownContent> look_up(const text::SourceBytes& source, const std::string& user) const;
  void count(Planning& planning, size_t most_coming) const;
  Result<double> measured_tokens_per_s(bool index_only);

  CutSource cut(text::SourceBytes source, const KnownContent& content, const AddOptions& options) const;
  static bool is_unchanged(const std::string& name, const KnownContent& content, const Run& run);
  static void note_unchanged(Run& run);
  Status take_source(text::SourceBytes source, Run& run);
  Status take_coming(size_t most_coming, Run& run);
  Status take_cut(Coming coming, Run& run);
  Status begin_cut(Run& run);
  Status begin(Cut& cut, Run& run);
  Result<int64_t> begin_unpublished(CutDocument cut, const store::ContentKey& key, Run& run);
  Status queue_passages(CutDocument& cut, int64_t content, bool fresh, Run& run);
  size_t batch_tokens(bool index_only) const;  // between two commits
  Status flush(Run& run);
  Status heed_cap(uint64_t bytes, Run& run);
  Status store_made(Run& run);
  Status store_next(Run& run);
  Status store(const EncodingBatch& batch, Run& run);
  Status finish(Run& run);
  Status publish(Run& run);
  Status remove_vanished(Run& run);
  Status report_supersessions(Run& run);
  void report_progress(Run& run);

  store::Catalog& catalog_;
  PassRunner& runner_;
  Encoder& encoder_;
  const index::Whitening& whitening_;
  IngestSetting setting_;
  DocumentCutter cutter_;
  std::string vocabulary_id_;
};

}  // namespace rhapsode::recall
