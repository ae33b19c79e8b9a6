// Rows and records of catalog.h: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/segment_file.h"
#include "store/selection.h"
#include "store/time_types.h"

namespace rhapsode::store {

// Settings that the catalog itself reads.
inline constexpr std::string_view kFingerprintSetting = "fingerprint";  // of the KV in use
inline constexpr std::string_view kKvCapSetting = "kv_cap_bytes";       // decimal; absent or 0: no cap

struct CatalogOptions {
  std::filesystem::path folder;
  bool create = false;
  bool read_only = false;
  uint64_t segment_bytes =
      256ull << 20;  // a segment is sealed when it is longer (or than 1/16 of the KV cap)
  // For another process: a reader that still holds what was erased, a busy catalog.
  int wait_ms = 5000;
  bool holes = true;  // evicted KV gives its blocks back at once; false: only by rewriting files
};

struct ContentKey {
  std::string sha256;  // of the source's bytes, lower-case hex
  std::string recipe;  // reader, cutter, header and tokenizer versions: whatever changes passages
};

// What a passage speaks of. Kinds are the caller's numbers, 0 to 255; of one key in one passage the smallest
// counts.
struct MentionKey {
  std::string key;
  int kind = 0;
};

struct PassagePlace {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string header;
  int line = 1;
  int page = 0;
  int tokens = 0;                      // of header, text and closing blank line, as encoded
  std::vector<std::string> terms;      // of header and text, for BM25
  std::vector<int32_t> unique_tokens;  // of the text, for document frequencies
  std::vector<MentionKey> mentions;
};

struct ContentRecord {
  std::string text;
  std::string kind;         // this and the title are kept with each version (SourceRecord), not here:
  std::string title;        // equal bytes may be read under different names
  std::string named_after;  // the source whose name stands in headers; empty: none does
  std::vector<PassagePlace> passages;
  int mentions_version = 0;  // by which the passages' mentions were found; 0: they were not looked for
};

// A content with everything done that needs no look at the catalog: the text durable, the lists packed.
struct PreparedContent {
  struct Words {
    std::vector<std::byte> terms;
    std::vector<std::byte> tokens;
  };
  ContentRecord record;
  std::string text_sha256;
  uint64_t stored_bytes = 0;  // of the text's file
  std::vector<Words> words;   // [passages]
};

struct ContentInfo {
  int64_t id = 0;
  bool complete = false;
  std::string named_after;
  std::vector<int64_t> passages;  // ids by ordinal
};

struct EncodedPassage {
  int ordinal = 0;
  int chunks = 0;
  std::string whitening_id;
  std::span<const std::byte> codes;
  std::string fingerprint;        // of kv
  std::span<const std::byte> kv;  // empty: index only
};

struct KvRecord {
  int64_t passage = 0;
  std::span<const std::byte> kv;
};

struct SourceRecord {
  std::string name;
  std::string kind;
  std::string title;
  std::string author;
  std::vector<std::string> tags;
  std::string event_time;       // ISO 8601; empty: unknown
  std::string added;            // ISO 8601 UTC
  uint64_t bytes = 0;           // of the source as it was read
  std::string user = {};        // whose own it is; empty: everybody's. A source never changes hands.
  std::string identifier = {};  // by which other documents call it ("PEP 333"); empty: none
  std::vector<SupersessionClaim> supersessions = {};
};

// A content whose headers carry the name of an erased source, while another source still holds it.
struct RenamedContent {
  int64_t content = 0;
  std::string source;  // the first by name that holds it
};

struct Erased {
  std::vector<std::string> sources;  // in the order asked for, each once
  int passages = 0;
  uint64_t bytes = 0;  // of texts, codes and KV
  std::vector<RenamedContent> renamed;
};

struct SourceRow {
  SourceRecord record;
  int64_t content = 0;
  std::string sha256;
  int version = 1;
  int versions = 1;
  int passages = 0;
  uint64_t tokens = 0;
};

struct VersionRow {
  int version = 1;
  int64_t content = 0;
  std::string added;
  std::string replaced;  // empty: current
  std::string event_time;
  std::string sha256;
  uint64_t bytes = 0;
};

struct PassageRow {
  int64_t id = 0;
  int64_t content = 0;
  int ordinal = 0;
  std::string source;  // one that has it, the first by name of the selection's
  int version = 1;
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string header;
  int line = 1;
  int page = 0;
  int tokens = 0;
  bool has_kv = false;  // under the fingerprint set in settings
};

struct TermHit {
  int64_t passage = 0;
  double score = 0;
};

struct PassageMentionRow {
  int64_t passage = 0;
  int64_t mention = 0;
  int kind = 0;
  int64_t passages = 0;  // of complete contents, that hold the mention
};

// A passage that has a mention as its title.
struct TitledPassage {
  int64_t passage = 0;
  int64_t mention = 0;
  size_t key = 0;  // which of those asked for
};

// A content whose mentions are to be found.
struct UnlinkedContent {
  int64_t content = 0;
  std::string title;              // of a version that has it; empty: none does
  std::vector<int64_t> passages;  // ids by ordinal
};

struct ContentMentions {
  int64_t content = 0;
  std::vector<std::vector<MentionKey>> by_ordinal;
};

struct TokenFrequencies {
  int64_t passages = 0;
  std::vector<int64_t> counts;  // in the order asked for
};

struct CodeView {
  std::span<const std::byte> bytes;
  int chunks = 0;
};

struct CodedPassage {
  int64_t passage = 0;
  int chunks = 0;
};

struct KvExtent {
  int64_t passage = 0;
  Extent extent;
};

struct CatalogStats {
  int sources = 0, versions = 0, contents = 0;
  int passages = 0, passages_with_kv = 0;
  uint64_t tokens = 0;
  uint64_t text_bytes = 0;
  uint64_t catalog_bytes = 0;
  uint64_t code_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t stale_bytes = 0;
  uint64_t foreign_kv_entries = 0;
  uint64_t quarantined = 0;
};

struct CheckResult {
  int extents = 0;
  int texts = 0;
  std::vector<std::string> problems;
};

}  // namespace rhapsode::store
