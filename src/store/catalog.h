// The catalog and the texts of a memory folder: what is stored, under which name, and since when.
//
// One SQLite database (WAL) whose commit is the only commit; texts are zstd files named by their SHA-256;
// extents of codes and KV lie in segment files (segment_file.h) that this class owns. Format: docs/formats/.
// A *content* is one text with its passages, shared by all sources of equal bytes; a *version* says which
// content a source had from when to when; a passage is *visible* when its content is complete and some
// version of a source, current at the time asked for, has it. Threads: one thread at a time an object (but
// prepare_content()); any number of read-only objects in any process beside one writer. Errors:
// kPermission/kCancelled when another process writes or the catalog is read-only, kNoSpace when the disk is
// full (nothing changes then), kCorrupt with file and what to do. Ids of contents and passages are never used
// twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/catalog_types.h"
#include "store/segment_file.h"

namespace rhapsode::store {

struct CatalogState;
class ConversationLog;

class Catalog {
 public:
  // Makes the folder when `create`. A writer holds LOCK, cuts segments to their committed length and removes
  // temporary files.
  static Result<std::unique_ptr<Catalog>> open(const CatalogOptions& options);
  ~Catalog();
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  // Settings: a small durable map (fingerprint, model, instruction, whitening id, caps, ...).
  Result<std::optional<std::string>> setting(std::string_view key) const;
  Status set_settings(const std::map<std::string, std::string>& values);

  // --- Writing ---
  // The content of these bytes and this recipe (reader, cutter and tokenizer versions), complete or begun.
  Result<std::optional<ContentInfo>> find_content(const ContentKey& key) const;
  // Stores the text durably and the passages' places; nothing is visible yet. Returns the new content, or the
  // one that was begun before with the same key and `named_after`.
  Result<ContentInfo> begin_content(const ContentKey& key, const ContentRecord& record);
  // The same in two steps. The first takes all of the time and may be made by any thread at any time while
  // the catalog is open; its text is a left-over until the second.
  Result<PreparedContent> prepare_content(ContentRecord record);
  Result<ContentInfo> begin_content(const ContentKey& key, const PreparedContent& content);
  // Whatever `change` writes becomes one commit, or nothing of it when it or a call in it fails. Not for
  // erase(); make room for KV before (evict_kv()).
  Status in_one_commit(const std::function<Status()>& change);
  // Passages of a begun content that have codes already: a killed add() goes on behind them.
  Result<std::vector<int>> encoded_ordinals(int64_t content) const;
  // Appends codes and KV (may be empty), syncs, and commits them in one transaction; what a passage had is
  // replaced. KV makes its own room under the cap as evict_kv() does; kTooLarge when it cannot.
  Status put_encoded(int64_t content, std::span<const EncodedPassage> passages);
  // Makes the content complete and the source's current version, replacing what was there, in one commit.
  // A version is what the source's bytes were: with the same bytes no version begins; its content (read anew
  // by another recipe, or renamed), title, tags and event time are brought up to date in place. Publishing
  // what is there already changes nothing. kInvalidArgument while passages lack codes.
  // What the user says it supersedes holds for later versions too. kPermission for another user's source.
  Status publish(const SourceRecord& source, int64_t content);
  // Records what was said of a fact: `source` is the fact (kind, title and so on of the new version) and
  // `content` its value, already encoded; unset for a retraction, and for what fact_in_force() says already.
  // Versions of a fact follow event times, not the order of telling: each is valid from its own to the next
  // one's. A corrected value takes the place and the event time of the one that was current. False, and
  // nothing changes, when the event's key is known.
  Result<bool> record_fact(const SourceRecord& source, std::optional<int64_t> content,
                           const FactEvent& event);
  // Ends the sources' current versions (what `as_of` finds stays). Unknown names are ignored and not counted.
  Result<int> retire(std::span<const std::string> sources);
  // Erases sources and conversations (exact names), all versions, and every content that was begun and not
  // published: rewrites the segments, the text index and the database, so that no byte of contents that
  // nothing else holds remains in any file. Old versions of other sources whose headers carry an erased name
  // go as well; current ones are listed in `renamed` and stay usable, but carry that name: begin, encode and
  // publish them under the source given there (find_content() no longer finds them), which drops the old
  // ones, then erase() the same names again. kCancelled when another process still reads what was erased: the
  // erasure is done except for the catalog's own file, and the next writer that opens finishes it.
  Result<Erased> erase(std::span<const std::string> sources);

  // Drops contents that were begun and never published. Returns how many.
  Result<int> drop_unfinished();

  // --- KV made later ---
  Status put_kv(std::string_view fingerprint, std::span<const KvRecord> records);
  // Removes KV extents: of other fingerprints first, then what is not current, then by (tokens x uses) /
  // bytes and age, until `bytes` are free on the disk below the cap (kKvCapSetting). Returns what was freed;
  // kTooLarge, and nothing is removed, when `bytes` is more than the cap.
  Result<uint64_t> evict_kv(std::string_view fingerprint, uint64_t bytes);
  // The passage's KV is damaged: it is never handed out again, and counted.
  Status quarantine(int64_t passage);
  // Replaces the mentions of contents' passages, found by `version` of the extractor, in one commit.
  Status put_mentions(int version, std::span<const ContentMentions> contents);
  // Drops codes and KV of every passage (another model takes over); texts and sources stay.
  Status drop_encodings();

  // --- Reading ---
  Result<std::vector<SourceRow>> sources(const Selection& selection) const;
  // All versions of a source, if the selection's user may see it.
  Result<std::vector<VersionRow>> versions(std::string_view source, const Selection& whose = {}) const;
  // Who supersedes whom among what the selection sees, and claims of its sources that lead nowhere.
  Result<std::vector<SupersessionRow>> supersessions(const Selection& selection) const;
  // What was said of facts, in the order of recording: of those that hold at the selection's time the last
  // word each, or with `history` everything.
  Result<std::vector<FactRow>> facts(const Selection& selection) const;
  Result<bool> knows_fact(std::string_view key) const;
  // The value that a fact has at a time (empty: now); empty when it has none.
  Result<std::string> fact_in_force(std::string_view source, std::string_view at) const;
  // True when some source is a user's own.
  Result<bool> has_users() const;
  Result<bool> has_facts() const;
  // True when the selection leaves out nothing that anybody sees now.
  Result<bool> sees_all(const Selection& selection) const;
  // Ids of visible passages, ascending.
  Result<std::vector<int64_t>> visible_passages(const Selection& selection) const;
  // Those of the ids that are visible, in their order.
  Result<std::vector<PassageRow>> passages(std::span<const int64_t> ids, const Selection& selection) const;
  // Of the version of a source that the selection sees.
  Result<std::vector<PassageRow>> passages_of(std::string_view source, const Selection& selection = {}) const;
  // The text of a content, checked against its hash; a range of it.
  Result<std::string> text(int64_t content) const;
  Result<std::string> passage_text(int64_t passage) const;
  // BM25 (k1 1.2, b 0.75) of the passages among `allowed` (ascending ids; empty: all that are visible now,
  // refused where sources are users' own) that hold any of the terms, best first; scores are positive.
  // Repeated terms count once.
  Result<std::vector<TermHit>> best_by_terms(std::span<const std::string> terms,
                                             std::span<const int64_t> allowed, int count) const;
  // The same score for given passages, 0 where no term occurs; in their order.
  Result<std::vector<double>> scores_by_terms(std::span<const std::string> terms,
                                              std::span<const int64_t> ids) const;
  // In how many passages each term occurs. Cost: the term's postings.
  Result<std::vector<int64_t>> term_frequencies(std::span<const std::string> terms) const;
  // In how many passages each token occurs, and how many passages there are.
  Result<TokenFrequencies> token_frequencies(std::span<const int32_t> tokens) const;
  // At most `most` contents whose mentions were found by another version of the extractor, or never.
  Result<std::vector<UnlinkedContent>> contents_without_mentions(int version, int most) const;
  // What passages mention, by passage and mention. Nothing in a catalog of version 1 that no writer has
  // opened since.
  Result<std::vector<PassageMentionRow>> mentions_of(std::span<const int64_t> passages) const;
  // Every holder, by mention and passage, of what any of these passages mentions, if 2 to `most` passages
  // hold it and one of them with a kind below `weak_kind`. Holders may be of old or unfinished contents.
  Result<std::vector<PassageMentionRow>> sharers_of(std::span<const int64_t> passages, int most,
                                                    int weak_kind) const;
  Result<std::string> mention_key(int64_t mention) const;
  // Passages that have one of these keys as their title, by key and passage; of a key at most `most` of them.
  Result<std::vector<TitledPassage>> titled(std::span<const std::string> keys, int most) const;
  // The codes of passages in their order (empty where there are none or they are damaged, which stats() and
  // check() count), owned by the catalog until the next writing call or refresh().
  Result<std::vector<CodeView>> codes(std::span<const int64_t> ids) const;
  // Every passage that has codes, of old versions too; ids ascending.
  Result<std::vector<CodedPassage>> coded_passages() const;
  // Changes whenever something in the catalog may have (by this object or another process), or views of codes
  // have been let go: what was read before is worth keeping only while this stays the same.
  Result<int64_t> generation() const;
  // The KV extent of a passage under a fingerprint; nullopt when there is none. Counts its use (writers
  // only).
  Result<std::optional<KvExtent>> kv_extent(std::string_view fingerprint, int64_t passage) const;
  // kCorrupt: damaged, quarantine() it. kNotFound: a writer has removed it meanwhile.
  Status read_kv(const KvExtent& extent, std::span<std::byte> bytes) const;
  // Many, on several threads, each of which reads the next extent that take() gives until that is none of
  // them: use(i, stream) is called once for each, on any of the threads, reads it (stream.finish() as well:
  // only then it is sound) and gives what becomes of it. [extents] what became of each, as of read_kv();
  // nothing of those that were not taken.
  struct KvReading {
    int threads = 1;
    std::function<size_t()> take;
    std::function<Status(size_t i, RecordStream& stream)> use;
  };
  std::vector<Status> read_kv(std::span<const KvExtent> extents, const KvReading& reading) const;
  // [extents] whether it seems to lie in the system's page cache, so that reading it asks nothing of the
  // disk.
  std::vector<bool> kv_in_page_cache(std::span<const KvExtent> extents) const;
  // Lets go of views and files of an earlier state, if another process has committed since. Reading calls
  // follow other processes' commits anyway.
  Status refresh();

  Result<CatalogStats> stats(std::string_view fingerprint) const;
  // Every checksum of every file; what is wrong, a line each.
  Result<CheckResult> check() const;

 private:
  friend class ConversationLog;  // conversation_log.h: the part of the catalog that conversations are
  explicit Catalog(std::unique_ptr<CatalogState> state);
  // A failed read in the words of read_kv().
  Status explained(const KvExtent& extent, Status read) const;
  std::unique_ptr<CatalogState> state_;
};

}  // namespace rhapsode::store
