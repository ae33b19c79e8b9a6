// What memory.h returns: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rhapsode/engine.h"
#include "rhapsode/memory_options.h"

namespace rhapsode {

struct AddPlan {
  int sources_new = 0;
  int sources_changed = 0;
  int sources_unchanged = 0;
  uint64_t tokens = 0;      // to encode
  uint64_t kv_bytes = 0;    // to store
  double seconds = 0;       // estimated from a measured pass
  bool index_only = false;  // chosen since the KV would not fit the cap (or as asked)
};

struct SourceIssue {
  std::string source;
  std::string reason;
};

struct AddReport {
  int added = 0;
  int updated = 0;
  int unchanged = 0;
  int removed = 0;
  std::vector<SourceIssue> skipped;   // nothing to read there: binary, empty, ignored
  std::vector<SourceIssue> failed;    // should have been read but could not be
  std::vector<SourceIssue> warnings;  // stored, with a remark
  int passages = 0;
  uint64_t encoded_tokens = 0;
  uint64_t evaluated_tokens = 0;  // through the model, the encoding prefix included
  uint64_t kv_bytes = 0;
  bool index_only = false;
  bool cancelled = false;
  double seconds = 0;
};

enum class KvTier : uint8_t { kText, kDisk, kMemory };  // where a passage's KV is; kText: made on demand
const char* to_string(KvTier tier);                     // "text", "disk", "memory"

struct PassageInfo {
  int64_t id = 0;
  std::string source;
  int version = 1;
  uint64_t start_byte = 0;  // of Memory::text(source)
  uint64_t end_byte = 0;
  int line = 1;
  int page = 0;  // 0: none
  int tokens = 0;
  std::string header;
  KvTier tier = KvTier::kText;
  std::string superseded_by = {};  // a source; empty: none that is seen
};

// How a passage that no search found was reached.
struct PassageLink {
  int64_t from = 0;     // the passage it shares the mention with
  std::string mention;  // "edda morvane"
};

struct FoundPassage {
  PassageInfo passage;
  std::string text;
  double score = 0;   // the fused one, by which they are ranked
  double latent = 0;  // raw signals
  double keywords = 0;
  double latent_z = 0;  // the same against a fixed sample of passages
  double keywords_z = 0;
  std::optional<double> judged;  // nats that the passage adds to the question's likelihood; unset: not judged
  std::optional<double> chained;    // nats that it adds behind those before it in a chain of evidence
  std::optional<PassageLink> link;  // unset: it was found
  std::vector<float> evidence;      // what a trained ranker weighed (docs/formats/evidence.md); else empty
};

struct SourceInfo {
  std::string source;
  std::string kind;  // "markdown"
  std::string title;
  std::vector<std::string> tags;
  int version = 1;
  int versions = 1;
  uint64_t bytes = 0;
  int passages = 0;
  uint64_t tokens = 0;
  std::string added;            // ISO 8601
  std::string event_time;       // empty: unknown
  std::string user = {};        // whose own it is; empty: everybody's
  std::string identifier = {};  // by which other documents call it: "PEP 333"; empty: none
  std::vector<std::string> superseded_by = {}, supersedes = {};  // sources
};

struct VersionInfo {
  int version = 1;
  std::string added;
  std::string replaced;  // empty: current
  std::string event_time;
  uint64_t bytes = 0;
  std::string sha256;
};

struct SourceDetail {
  SourceInfo info;
  std::vector<VersionInfo> versions;
  std::vector<PassageInfo> passages;       // of the version that the filter shows
  std::vector<std::string> problems = {};  // of its supersessions: unknown sources, cycles
};

// An answer in a conversation that was given with a source in view, or over KV that had seen it.
struct DerivedAnswer {
  std::string conversation;
  int64_t message = 0;
  std::string time;
  std::string text;
};

struct ForgetReport {
  std::vector<std::string> sources;
  int passages = 0;
  uint64_t bytes = 0;                  // freed on disk
  std::vector<DerivedAnswer> derived;  // of conversations that stay: left as they are, or erased as asked
};

struct MemoryStats {
  std::string model, fingerprint;
  int sources = 0, versions = 0, contents = 0;  // contents: distinct ones
  int passages = 0, passages_with_kv = 0;
  uint64_t tokens = 0;
  uint64_t text_bytes = 0, catalog_bytes = 0, code_bytes = 0, kv_bytes = 0;  // on disk, texts compressed
  uint64_t kv_cap_bytes = 0;                                                 // 0: none
  uint64_t stale_bytes = 0;                          // in segments, belonging to nothing
  uint64_t foreign_kv_entries = 0, quarantined = 0;  // of another fingerprint, invisible; damaged extents
  // Passages read from stored KV, or text, since this was opened; stored, but slower than from their text.
  uint64_t kv_hits = 0, kv_misses = 0, kv_outrun = 0;
  uint64_t kv_resident_bytes = 0, kv_ram_bytes = 0;  // of passages: in pages, and beside a GPU's
  bool approximate = false;  // passages are found by an index; else by scanning all routing keys
  int indexed_passages = 0;
  uint64_t index_bytes = 0, device_bytes = 0;  // on disk; of routing keys on the GPU, from the first question
  std::string index_problem;                   // why there is no index although the memory is large enough
  int64_t recall_questions = 0;                // answered both ways, a sample
  double recall = 0, lowest_recall = 0;  // share of the exact best that the index found: mean, worst question
  std::string found_on;        // where routing keys are searched: "cuda", "cpu"; empty without a model
  std::string device_problem;  // why the CPU searches although the model is on a GPU
};

struct RoutingReport {
  std::string file;
  std::string id;
  int64_t chunks = 0;
  double seconds = 0;
};

struct VerifyReport {
  int extents_checked = 0;
  int texts_checked = 0;
  int passages_encoded = 0;
  double largest_difference = 0;      // of stored and fresh K and V, root mean square over a head, relative
  std::vector<SourceIssue> problems;  // empty: sound
};

}  // namespace rhapsode
