// What the parts of the catalog share: the open database, files and caches. Internal to store/catalog_*.cpp.
//
// Threads: as Catalog. Every change goes through a WriteScope: one transaction over the database, with the
// segment files following it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "io/file.h"
#include "store/catalog.h"
#include "store/recent_texts.h"
#include "store/segment_set.h"
#include "store/sqlite_database.h"
#include "store/text_files.h"

namespace rhapsode::store {

// What the SQL functions rh_selected(name, tags), rh_conversing(name), rh_listed(id), rh_user(name) and
// rh_live(source) ask; set before a statement is stepped.
struct RowFilter {
  std::set<std::string, std::less<>> names;  // of sources or folders above them; empty: all
  std::vector<std::string> tags;
  std::set<std::string, std::less<>> conversations;
  std::string user;
  std::vector<int64_t> superseded;  // sources, ascending
  std::span<const int64_t> ids;     // ascending
};

// What the passages of one content add to the counts.
struct ContentWords {
  int64_t passages = 0;
  std::map<int32_t, int64_t> frequencies;  // in how many of them each token occurs
};

// A supersession claim that leads somewhere, between two sources that a selection's users and time show.
struct SupersessionEdge {
  int64_t older = 0;
  int64_t newer = 0;
  int64_t since_ms = 0;
  bool in_cycle = false;
};

// SQL about a version `v`: that it is current, or was at the time ?1.
std::string time_condition(bool then);
// The same about any version `w`, without saying which of several.
std::string time_condition_of_any(bool then);
// SQL about `versions v`: that its source is everybody's or the filter's user's.
extern const char* const kOfUser;

// SQL about `versions v JOIN sources s`: what a selection sees. Parameter ?1 is the time, where there is one.
struct VisibleRows {
  std::string where;
  std::optional<int64_t> at_ms;
};

inline constexpr uint64_t kRecentTextBytes = 32u << 20;

struct CatalogState {
  CatalogState(CatalogOptions given, FileLock held, std::unique_ptr<Database> opened);
  ~CatalogState();

  CatalogOptions options;
  FileLock lock;
  std::unique_ptr<Database> database;
  TextFiles texts;
  SegmentSet segments;
  RowFilter filter;

  // Uses of KV that no commit has counted yet, by passage and fingerprint label.
  std::map<std::pair<int64_t, int64_t>, int64_t> pending_uses;
  std::unordered_set<uint64_t> sound_codes;    // places (code_place) whose bytes matched their checksum
  std::unordered_set<uint64_t> damaged_codes;  // and those whose did not
  RecentTexts recent_texts{kRecentTextBytes};
  bool joins_changes = false;   // the scopes of changes are parts of one that is open
  bool joined_failed = false;   // one of them was not committed
  int64_t damaged_extents = 0;  // lost while segments were rewritten, since open()
  std::optional<std::vector<int64_t>> visible_now;
  int64_t visible_data_version = -1;
  int64_t views_let_go = 0;  // how often
  int64_t viewed_data_version = -1;

  Status register_functions();
  // Cuts and removes what no commit knows: left-overs of killed or failed calls.
  Status sweep();
  Status recover();
  Status flush_uses();
  // After every change of ours, and on refresh().
  void forget_views();

  Result<int64_t> label(std::string_view text);              // made when it is new
  Result<int64_t> known_label(std::string_view text) const;  // 0: unknown
  Result<std::optional<std::string>> setting(std::string_view key) const;
  Result<uint64_t> kv_cap() const;  // 0: none

  // A reader laid empty tables over a catalog of this version (0: it did not); kCancelled once a writer has
  // made the real ones, which it does not see.
  int64_t overlaid_version = 0;
  Status follow_migration();
  // Sets the row filter to the selection. kPermission when users' own sources are there and nobody is named.
  Result<VisibleRows> visible_rows(const Selection& selection);
  // Of users and time only.
  Result<VisibleRows> scope_rows(const Selection& selection);
  Result<std::vector<SupersessionEdge>> supersession_edges(const VisibleRows& scope) const;
  Result<bool> has_users() const;
  // After a version's row was written: its identifier and claims, and what they and older claims lead to.
  Status store_claims(int64_t version, const SourceRecord& source);
  Result<std::optional<int64_t>> resolve_claim(const SourceRecord& claiming,
                                               std::string_view reference) const;
  Status adopt_open_claims(const SourceRecord& source, int64_t source_id);
  Status check_user(const SourceRecord& source, int64_t source_id) const;
  Result<int64_t> source_id_of(const SourceRecord& source);
  Status order_fact_versions(int64_t source, std::string_view now);
  Result<int64_t> add_version(int64_t source, int64_t content, const SourceRecord& record);

  Result<ContentInfo> content_info(int64_t content) const;
  Result<ContentInfo> store_passages(int64_t content, const PreparedContent& prepared);
  Result<const std::vector<int64_t>*> visible_passages_now();
  Result<std::vector<int64_t>> visible_ids(const VisibleRows& visible) const;
  Result<std::optional<std::span<const std::byte>>> sound_code(const Extent& extent);
  Status complete_content(int64_t content);
  // Hands over the terms of each passage of a content and sums up the rest.
  Result<ContentWords> each_passage_words(
      int64_t content, const std::function<Status(int64_t passage, const std::string& terms)>& on_passage);
  // Mentions of a content (catalog_mentions.cpp): stored, counted while the content is complete, dropped with
  // the keys that nothing else holds.
  Status store_mentions(int64_t content, int version, std::span<const int64_t> passages,
                        std::span<const std::vector<MentionKey>> mentions);
  Status count_mentions(int64_t content, int sign);
  Status drop_mentions(int64_t content);
  // Drops a content that no version has and counts it in `erased`. The text's file goes with the next sweep,
  // at once by scrub().
  Status drop_content(int64_t content, Erased& erased);
  // KV that was computed while the content was in view, of whatever passage, and what else refers to it.
  Status drop_views_of(int64_t content);
  // Removes what was said; false when there is no such conversation. Its passages' sources are still to drop.
  Result<bool> drop_conversation(std::string_view name, std::vector<std::string>& sources);
  Result<int> drop_contents(std::string_view where, Erased& erased);
  Status unindex_content(int64_t content);
  Status drop_code_extent(int64_t passage);
  Status drop_kv_extents(std::string_view where);
  Status store_codes(int64_t passage, const EncodedPassage& encoded);
  Status store_kv(int64_t passage, int64_t fingerprint, std::span<const std::byte> kv);
  // Frees `bytes` below the cap; what that gave back.
  Result<uint64_t> make_kv_room(std::string_view fingerprint, uint64_t bytes);
  Result<uint64_t> drop_least_valuable_kv(std::string_view fingerprint, uint64_t bytes);
  // Gives the room of stale extents back: empty segments go, KV becomes holes, mostly stale ones are
  // rewritten.
  Status reclaim();
  // Inside a transaction: no stale byte stays in any segment.
  Status rewrite_stale();
  // Removes left-over files; rewrites the text index, the database and its log, so that nothing dropped is
  // left in them.
  Status scrub();
  Status truncate_log();
};

// The scope of one change: begin, work, commit; everything is undone without commit(). Inside
// Catalog::in_one_commit() that is so for all of its changes together.
class WriteScope {
 public:
  // kPermission on a read-only catalog.
  static Result<WriteScope> begin(CatalogState& state);
  WriteScope(WriteScope&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), transaction_(std::move(other.transaction_)) {}
  WriteScope& operator=(WriteScope&&) = delete;
  ~WriteScope();
  // Syncs segments, commits, then removes the files that the change made superfluous.
  Status commit();

 private:
  explicit WriteScope(CatalogState* state) : state_(state) {}
  CatalogState* state_ = nullptr;
  std::optional<Transaction> transaction_;  // unset: of the scope around this one
};

// A number for where a code extent lies: records begin at multiples of 64 bytes, files are far below 2^42.
inline uint64_t code_place(int64_t segment, uint64_t offset) {
  return (static_cast<uint64_t>(segment) << 36) ^ (offset >> 6);
}

// "[1,2,3]" for json_each().
std::string json_list(std::span<const int64_t> ids);

}  // namespace rhapsode::store
