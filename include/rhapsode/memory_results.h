// What memory.h returns: plain values.
#pragma once

#include <cstdint>
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
};

struct FoundPassage {
  PassageInfo passage;
  std::string text;
  double score = 0;   // the fused one, by which they are ranked
  double latent = 0;  // raw signals
  double keywords = 0;
  double latent_z = 0;  // the same against a fixed sample of passages
  double keywords_z = 0;
};

struct Citation {
  int n = 0;  // from 1
  std::string source;
  int version = 1;
  uint64_t start_byte = 0;
  uint64_t end_byte = 0;
  int line = 1;
  int page = 0;
  std::string quote;   // the bytes [start_byte, end_byte) of the source's text
  double support = 0;  // nats that the answer's likelihood loses without it
};

struct AskUsage {
  int prompt_tokens = 0;      // of the whole prompt, passages included
  int cached_tokens = 0;      // not evaluated: stored KV and equal prefixes
  int recomputed_tokens = 0;  // of those, evaluated again to blend
  int evaluated_tokens = 0;   // run for the answer itself
  int probe_tokens = 0;       // run for routing, judging and citing
  int generated_tokens = 0;
  int memory_tokens_read = 0;
  // What reading the memory cost, in tokens through the whole model: passages' tokens evaluated for whatever
  // reason, and choosing which ones to blend, tokens that ran through some layers counted by their share.
  double charged_tokens = 0;
};

struct AskTiming {
  double route_ms = 0;
  double load_ms = 0;   // KV from disk, or made from text
  double blend_ms = 0;  // choosing the tokens to evaluate again
  double prefill_ms = 0;
  double ttft_ms = 0;  // from ask() to the first piece of text
  double cite_ms = 0;
  double total_ms = 0;
  double decode_tokens_per_s = 0;
};

// How the tokens of one passage came to be read; together they are all of it.
struct PassageReading {
  int exact_tokens = 0;  // KV equal to that of full attention: nothing in front of it, or evaluated as text
  int approximate_tokens = 0;  // stored KV that has not seen the passages in front of it
  int recomputed_tokens = 0;   // blended: evaluated again in their place
  std::string miss;            // why its KV was not reused, or had to be made first; empty: it was there
};

// A stored passage encoded again and compared, after the answer was told.
struct SelfCheck {
  int64_t passage = 0;    // 0: none was looked at this time
  double difference = 0;  // root mean square over a head, relative
  std::string problem;    // empty: sound; else its KV was set aside and will be made again
};

struct Answer {
  std::string text;
  bool abstained = false;
  FinishReason finish = FinishReason::kEnd;
  std::vector<Citation> citations;
  AskUsage usage;
  AskTiming timing;
  ReadPolicy policy = ReadPolicy::kFull;
  std::string policy_reason;
  std::vector<FoundPassage> passages;    // as read: best last
  std::vector<PassageReading> readings;  // of each of them; empty when nothing was read
  SelfCheck self_check;
};

struct AnswerScore {
  std::vector<int32_t> tokens;             // of the answer
  std::vector<std::vector<float>> logits;  // [tokens][vocabulary], of what stands in each token's place
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
  std::string added;       // ISO 8601
  std::string event_time;  // empty: unknown
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
  std::vector<PassageInfo> passages;  // of the current version
};

struct ForgetReport {
  std::vector<std::string> sources;
  int passages = 0;
  uint64_t bytes = 0;  // freed on disk
};

struct MemoryStats {
  std::string model;
  std::string fingerprint;
  int sources = 0;
  int versions = 0;
  int contents = 0;  // distinct ones
  int passages = 0;
  int passages_with_kv = 0;
  uint64_t tokens = 0;
  uint64_t text_bytes = 0;  // compressed, on disk
  uint64_t catalog_bytes = 0;
  uint64_t code_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t kv_cap_bytes = 0;        // 0: none
  uint64_t stale_bytes = 0;         // in segments, belonging to nothing
  uint64_t foreign_kv_entries = 0;  // of another fingerprint, invisible
  uint64_t quarantined = 0;         // damaged extents set aside
  uint64_t kv_hits = 0;             // passages read from stored KV, since this memory was opened
  uint64_t kv_misses = 0;           // made from text instead
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
