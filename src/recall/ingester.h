// The ingester: sources to passages, codes and KV in the catalog, so that a kill at any moment costs at most
// the batch being encoded.
//
// Content comes first: bytes that are known (by SHA-256) are linked, not encoded. A new content is begun
// (text and places stored), its passages are encoded in batches that are committed one by one, and the source
// becomes visible when all of them are there. Threads: one at a time; callbacks on the caller's. Errors: of
// single sources in the report; a Result error (disk full, cancelled engine) keeps what was committed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "index/whitening.h"
#include "recall/encoder.h"
#include "rhapsode/memory_options.h"
#include "rhapsode/memory_results.h"
#include "store/catalog.h"
#include "text/reader.h"

namespace rhapsode::recall {

struct IngestSetting {
  std::string kv_fingerprint;
  kernels::KvType stored_kv = kernels::KvType::kF16;
  uint64_t disk_cap_bytes = 0;  // of KV; 0: none
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
        frame_(frame),
        whitening_(whitening),
        setting_(std::move(setting)),
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
  struct Cut;      // a document cut into passages, with their tokens
  struct Content;  // begun, waiting for its passages
  struct Work;     // one passage to encode
  struct Run;      // the state of one add()

  std::string recipe_of(const std::string& name, const std::string& user) const;
  // By what a source's content is known, and what the catalog has of it.
  struct KnownContent {
    store::ContentKey key;
    std::optional<store::ContentInfo> known;
  };
  Result<KnownContent> look_up(const text::SourceBytes& source, const std::string& user) const;
  Result<Cut> cut_bytes(text::SourceBytes source, const KnownContent& content,
                        const AddOptions& options) const;
  Result<Cut> cut(text::Document document) const;
  Status take_source(text::SourceBytes source, Run& run);
  Status begin(Cut cut, Run& run);
  Result<int64_t> begin_unpublished(Cut cut, Run& run);
  Status queue_passages(Cut& cut, Content& content, Run& run);
  Status flush(Run& run);
  size_t batch_tokens() const;  // between two commits
  Status store(std::span<const Work> batch, std::vector<Encoded> encoded, Run& run);
  Status heed_cap(uint64_t bytes, Run& run);
  Status publish(const Content& content, Run& run);
  Status remove_vanished(Run& run);
  Status report_supersessions(Run& run);
  bool report_progress(Run& run);
  Result<double> measured_tokens_per_s(bool index_only);

  store::Catalog& catalog_;
  PassRunner& runner_;
  Encoder& encoder_;
  const PromptFrame& frame_;
  const index::Whitening& whitening_;
  IngestSetting setting_;
  std::string vocabulary_id_;
};

}  // namespace rhapsode::recall
