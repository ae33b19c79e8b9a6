// Catalog: what add() does, from a content's text to the version that shows it.
#include <algorithm>

#include "base/iso_time.h"
#include "base/sha256.h"
#include "base/text_check.h"
#include "store/catalog_state.h"
#include "store/word_lists.h"

namespace rhapsode::store {
namespace {

constexpr std::string_view kInsertPassage =
    "INSERT INTO passages(content, ordinal, begin_byte, end_byte, header, line, page, tokens) "
    "VALUES(?, ?, ?, ?, ?, ?, ?, ?)";

Status check_key(const ContentKey& key) {
  if (is_sha256(key.sha256)) return {};
  return make_error(ErrorKind::kInvalidArgument, "'{}' is no SHA-256 of a source", shown(key.sha256));
}

Status check_places(const ContentRecord& record) {
  for (const PassagePlace& place : record.passages) {
    if (place.begin > place.end || place.end > record.text.size() || place.tokens < 0) {
      return make_error(ErrorKind::kInvalidArgument,
                        "a passage of bytes {} to {} and {} tokens is not of a text of {}", place.begin,
                        place.end, place.tokens, record.text.size());
    }
  }
  return {};
}

struct StoredVersion {
  int64_t id = 0;
  int64_t number = 0;
  int64_t content = 0;
};

std::string joined_tags(const SourceRecord& source) {
  std::vector<std::string> tags = source.tags;
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  return fmt::format("{}", fmt::join(tags, "\n"));
}

struct SourceTimes {
  int64_t added_ms = 0;
  int64_t valid_from_ms = 0;
};

Result<SourceTimes> check_source(const SourceRecord& source) {
  if (source.name.empty() || source.name.find('\0') != std::string::npos) {
    return make_error(ErrorKind::kInvalidArgument, "'{}' is no name of a source", shown(source.name));
  }
  for (const std::string& tag : source.tags) {
    if (!tag.empty() && tag.find_first_of(std::string_view("\n\0", 2)) == std::string::npos) continue;
    return make_error(ErrorKind::kInvalidArgument, "{}: '{}' is no tag", shown(source.name), shown(tag));
  }
  RH_TRY(const IsoPeriod added, parse_iso_time(source.added));
  if (source.event_time.empty()) return SourceTimes{added.first_ms, added.first_ms};
  RH_TRY(const IsoPeriod event, parse_iso_time(source.event_time));
  return SourceTimes{added.first_ms, event.first_ms};
}

Result<std::optional<StoredVersion>> current_version(Database& database, int64_t source) {
  RH_TRY(Statement rows,
         database.prepare("SELECT id, number, content FROM versions WHERE source = ? AND valid_to IS NULL"));
  rows.bind(1, source);
  RH_TRY(const bool row, rows.step());
  if (!row) return std::optional<StoredVersion>();
  return std::optional<StoredVersion>({rows.integer(0), rows.integer(1), rows.integer(2)});
}

// What a user has said of a source holds for its next versions too.
Status keep_claims_of_user(Database& database, int64_t version, SourceRecord& source) {
  RH_TRY(Statement rows,
         database.prepare(
             "SELECT reference FROM supersessions WHERE version = ? AND reverse = 0 AND by_user = 1"));
  rows.bind(1, version);
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) break;
    source.supersessions.push_back({false, std::string(rows.text(0)), true});
  }
  // One claim a reference, the user's before the document's.
  std::stable_sort(source.supersessions.begin(), source.supersessions.end(),
                   [](const auto& a, const auto& b) { return a.by_user > b.by_user; });
  std::vector<SupersessionClaim> kept;
  for (const SupersessionClaim& claim : source.supersessions) {
    const bool there = std::any_of(kept.begin(), kept.end(), [&](const SupersessionClaim& other) {
      return other.reverse == claim.reverse && other.reference == claim.reference;
    });
    if (!there) kept.push_back(claim);
  }
  source.supersessions = std::move(kept);
  return {};
}

// True when identifier and supersessions are stored as `source` has them.
Result<bool> has_claims(Database& database, int64_t version, const SourceRecord& source) {
  RH_TRY(const int64_t identified,
         database.number("SELECT coalesce((SELECT identifier FROM identifiers WHERE version = ?), '') = ?",
                         version, source.identifier));
  if (identified == 0) return false;
  RH_TRY(Statement rows,
         database.prepare("SELECT reverse, reference, by_user FROM supersessions WHERE version = ?"));
  rows.bind(1, version);
  size_t count = 0;
  for (;; ++count) {
    RH_TRY(const bool row, rows.step());
    if (!row) break;
    const SupersessionClaim stored{rows.small(0) != 0, std::string(rows.text(1)), rows.small(2) != 0};
    const auto& claims = source.supersessions;
    if (std::find(claims.begin(), claims.end(), stored) == claims.end()) return false;
  }
  return count == source.supersessions.size();
}

// True when the version's row says already what `source` says.
Result<bool> is_up_to_date(Database& database, const StoredVersion& version, int64_t content,
                           const SourceRecord& source) {
  if (version.content != content) return false;
  RH_TRY(Statement row,
         database.prepare("SELECT kind, title, author, tags, event_time FROM versions WHERE id = ?"));
  row.bind(1, version.id);
  RH_TRY(const bool there, row.step());
  if (!there || row.text(0) != source.kind || row.text(1) != source.title || row.text(2) != source.author ||
      row.text(3) != joined_tags(source) || row.text(4) != source.event_time) {
    return false;
  }
  RH_TRY(const bool same_claims, has_claims(database, version.id, source));
  return same_claims;
}

Status update_version(Database& database, const StoredVersion& version, const SourceRecord& source,
                      SourceTimes times) {
  if (source.event_time.empty()) {
    RH_TRY(Statement row, database.prepare("SELECT added FROM versions WHERE id = ?"));
    row.bind(1, version.id);
    RH_TRY(const bool there, row.step());
    RH_TRY(const IsoPeriod added, parse_iso_time(there ? row.text(0) : std::string_view()));
    times.valid_from_ms = added.first_ms;
  }
  RH_TRY(Statement update,
         database.prepare("UPDATE versions SET kind = ?, title = ?, author = ?, tags = ?, event_time = "
                          "?, valid_from = ?, bytes = ? WHERE id = ?"));
  update.bind(1, source.kind).bind(2, source.title).bind(3, source.author).bind(4, joined_tags(source));
  update.bind(5, source.event_time).bind(6, times.valid_from_ms).bind(7, static_cast<int64_t>(source.bytes));
  return update.bind(8, version.id).run();
}

Result<int64_t> insert_version(Database& database, int64_t source_id, int64_t content,
                               const SourceRecord& source, SourceTimes times) {
  RH_TRY_STATUS(
      database.run("UPDATE versions SET replaced = ?, valid_to = ? WHERE source = ? AND valid_to IS NULL",
                   source.added, times.added_ms, source_id));
  RH_TRY(Statement insert,
         database.prepare(
             "INSERT INTO versions(source, number, content, kind, title, author, tags, event_time, added, "
             "replaced, valid_from, bytes) VALUES(?1, (SELECT coalesce(max(number), 0) + 1 FROM versions "
             "WHERE source = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, '', ?9, ?10)"));
  insert.bind(1, source_id)
      .bind(2, content)
      .bind(3, source.kind)
      .bind(4, source.title)
      .bind(5, source.author);
  insert.bind(6, joined_tags(source)).bind(7, source.event_time).bind(8, source.added);
  RH_TRY_STATUS(insert.bind(9, times.valid_from_ms).bind(10, static_cast<int64_t>(source.bytes)).run());
  return database.last_insert_id();
}

// Whether `old` is the same source bytes as `fresh`, and whether it was cut by the same recipe.
struct Likeness {
  bool bytes = false;
  bool recipe = false;
};
Result<Likeness> compare_contents(Database& database, int64_t old, int64_t fresh) {
  RH_TRY(Statement row,
         database.prepare("SELECT a.sha256 = b.sha256, a.recipe = b.recipe FROM contents a, contents b "
                          "WHERE a.id = ? AND b.id = ?"));
  row.bind(1, old).bind(2, fresh);
  RH_TRY(const bool there, row.step());
  if (!there) return Likeness{};
  return Likeness{row.small(0) != 0, row.small(1) != 0};
}

}  // namespace

// Without a place in time yet: of the order of versions, the caller takes care.
Result<int64_t> CatalogState::add_version(int64_t source, int64_t content, const SourceRecord& record) {
  RH_TRY(const SourceTimes times, check_source(record));
  return insert_version(*database, source, content, record, times);
}

Result<ContentInfo> CatalogState::content_info(int64_t content) const {
  ContentInfo info;
  RH_TRY(Statement row, database->prepare("SELECT complete, named_after FROM contents WHERE id = ?"));
  row.bind(1, content);
  RH_TRY(const bool there, row.step());
  if (!there)
    return make_error(ErrorKind::kNotFound, "there is no content {} in {}", content,
                      database->path().string());
  info.id = content;
  info.complete = row.small(0) != 0;
  info.named_after = row.text(1);
  RH_TRY(Statement ids, database->prepare("SELECT id FROM passages WHERE content = ? ORDER BY ordinal"));
  ids.bind(1, content);
  while (true) {
    RH_TRY(const bool more, ids.step());
    if (!more) return info;
    info.passages.push_back(ids.integer(0));
  }
}

Result<std::optional<ContentInfo>> Catalog::find_content(const ContentKey& key) const {
  // A complete content that is named after an erased source waits to be replaced: it is not offered.
  RH_TRY(const int64_t id,
         state_->database->number(
             "SELECT id FROM contents c WHERE sha256 = ? AND recipe = ? AND (named_after = '' OR "
             "complete = 0 OR EXISTS (SELECT 1 FROM sources s WHERE s.name = c.named_after)) "
             "ORDER BY complete DESC, id LIMIT 1",
             key.sha256, key.recipe));
  if (id == 0) return std::optional<ContentInfo>();
  RH_TRY(ContentInfo info, state_->content_info(id));
  return std::optional<ContentInfo>(std::move(info));
}

Result<PreparedContent> Catalog::prepare_content(ContentRecord record) {
  if (state_->options.read_only) RH_TRY_STATUS(WriteScope::begin(*state_));
  RH_TRY_STATUS(check_places(record));
  PreparedContent content;
  for (PassagePlace& place : record.passages) {
    PreparedContent::Words& words = content.words.emplace_back();
    RH_TRY(words.terms, pack_terms(encode_terms(std::exchange(place.terms, {}))));
    RH_TRY(words.tokens, pack_tokens(std::exchange(place.unique_tokens, {})));
  }
  RH_TRY(StoredText text, state_->texts.put(record.text));
  content.text_sha256 = std::move(text.sha256);
  content.stored_bytes = text.stored_bytes;
  content.record = std::move(record);
  return content;
}

Result<ContentInfo> Catalog::begin_content(const ContentKey& key, const ContentRecord& record) {
  RH_TRY_STATUS(check_key(key));
  RH_TRY(const PreparedContent content, prepare_content(record));
  return begin_content(key, content);
}

Result<ContentInfo> Catalog::begin_content(const ContentKey& key, const PreparedContent& content) {
  RH_TRY_STATUS(check_key(key));
  const ContentRecord& record = content.record;
  const auto passages = static_cast<int64_t>(record.passages.size());
  Database& database = *state_->database;
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  RH_TRY(const int64_t known,
         database.number("SELECT id FROM contents WHERE sha256 = ? AND recipe = ? AND named_after = ?",
                         key.sha256, key.recipe, record.named_after));
  if (known != 0) {
    RH_TRY(const int64_t same,
           database.number("SELECT count(*) FROM contents WHERE id = ? AND text_sha256 = ? AND passages = ?",
                           known, content.text_sha256, passages));
    if (same != 0) {
      RH_TRY(ContentInfo info, state_->content_info(known));
      RH_TRY_STATUS(scope.commit());
      return info;
    }
    return make_error(
        ErrorKind::kInvalidArgument,
        "the content {} was begun before with another text or other passages under the same recipe", known);
  }
  RH_TRY_STATUS(
      database.run("INSERT INTO texts(sha256, bytes, stored_bytes) VALUES(?, ?, ?) ON CONFLICT DO NOTHING",
                   content.text_sha256, static_cast<int64_t>(record.text.size()),
                   static_cast<int64_t>(content.stored_bytes)));
  int64_t tokens = 0;
  for (const PassagePlace& place : record.passages) tokens += place.tokens;
  RH_TRY_STATUS(
      database.run("INSERT INTO contents(sha256, recipe, text_sha256, named_after, complete, passages, "
                   "tokens) VALUES(?, ?, ?, ?, 0, ?, ?)",
                   key.sha256, key.recipe, content.text_sha256, record.named_after, passages, tokens));
  RH_TRY(ContentInfo info, state_->store_passages(database.last_insert_id(), content));
  RH_TRY_STATUS(scope.commit());
  return info;
}

Result<ContentInfo> CatalogState::store_passages(int64_t content, const PreparedContent& prepared) {
  const ContentRecord& record = prepared.record;
  std::vector<std::vector<MentionKey>> mentions;
  for (size_t i = 0; i < record.passages.size(); ++i) {
    const PassagePlace& place = record.passages[i];
    const PreparedContent::Words& words = prepared.words[i];
    RH_TRY_STATUS(database->run(kInsertPassage, content, static_cast<int64_t>(i),
                                static_cast<int64_t>(place.begin), static_cast<int64_t>(place.end),
                                place.header, int64_t{place.line}, int64_t{place.page},
                                int64_t{place.tokens}));
    const int64_t passage = database->last_insert_id();
    RH_TRY_STATUS(database->run("INSERT INTO passage_words(passage, terms, tokens) VALUES(?, ?, ?)", passage,
                                std::span<const std::byte>(words.terms),
                                std::span<const std::byte>(words.tokens)));
    mentions.push_back(place.mentions);
  }
  RH_TRY(ContentInfo info, content_info(content));
  RH_TRY_STATUS(store_mentions(content, record.mentions_version, info.passages, mentions));
  return info;
}

Result<std::vector<int>> Catalog::encoded_ordinals(int64_t content) const {
  RH_TRY(Statement rows, state_->database->prepare(
                             "SELECT p.ordinal, e.segment, e.offset FROM passages p JOIN code_extents e ON "
                             "e.passage = p.id WHERE p.content = ? ORDER BY p.ordinal"));
  rows.bind(1, content);
  std::vector<int> ordinals;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return ordinals;
    const uint64_t place = code_place(rows.integer(1), rows.size(2));
    if (!state_->damaged_codes.contains(place)) ordinals.push_back(rows.small(0));
  }
}

Status CatalogState::store_codes(int64_t passage, const EncodedPassage& encoded) {
  RH_TRY_STATUS(drop_code_extent(passage));
  Extent extent;
  if (!encoded.codes.empty()) {
    RH_TRY(extent, segments.append(SegmentKind::kCodes, encoded.codes));
  }
  RH_TRY(const int64_t whitening, label(encoded.whitening_id));
  return database->run(
      "INSERT INTO code_extents(passage, segment, offset, bytes, checksum, chunks, whitening) "
      "VALUES(?, ?, ?, ?, ?, ?, ?)",
      passage, extent.segment, static_cast<int64_t>(extent.offset), static_cast<int64_t>(extent.bytes),
      static_cast<int64_t>(extent.checksum), int64_t{encoded.chunks}, whitening);
}

Status Catalog::put_encoded(int64_t content, std::span<const EncodedPassage> passages) {
  RH_TRY(const ContentInfo info, state_->content_info(content));
  uint64_t room = 0;
  for (const EncodedPassage& passage : passages) {
    if (passage.ordinal < 0 || static_cast<size_t>(passage.ordinal) >= info.passages.size()) {
      return make_error(ErrorKind::kInvalidArgument, "the content {} has {} passages, none of number {}",
                        content, info.passages.size(), passage.ordinal);
    }
    if (!passage.kv.empty() && passage.fingerprint.empty()) {
      return make_error(ErrorKind::kInvalidArgument, "KV of passage {} of content {} has no fingerprint",
                        passage.ordinal, content);
    }
    room += SegmentSet::room_of(SegmentKind::kKv, passage.kv.size());
  }
  if (room != 0)
    RH_TRY_STATUS(state_->make_kv_room(passages.front().fingerprint, room + kSegmentHeaderBytes));
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  for (const EncodedPassage& passage : passages) {
    const int64_t id = info.passages[static_cast<size_t>(passage.ordinal)];
    RH_TRY_STATUS(state_->store_codes(id, passage));
    if (passage.kv.empty()) continue;
    RH_TRY(const int64_t fingerprint, state_->label(passage.fingerprint));
    RH_TRY_STATUS(state_->store_kv(id, fingerprint, passage.kv));
  }
  return scope.commit();
}

Result<ContentWords> CatalogState::each_passage_words(
    int64_t content, const std::function<Status(int64_t passage, const std::string& terms)>& on_passage) {
  ContentWords words;
  RH_TRY(Statement rows,
         database->prepare("SELECT w.passage, w.terms, w.tokens FROM passages p JOIN passage_words w ON "
                           "w.passage = p.id WHERE p.content = ? ORDER BY p.id"));
  rows.bind(1, content);
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return words;
    ++words.passages;
    RH_TRY(const std::string terms, unpack_terms(rows.blob(1)));
    RH_TRY_STATUS(on_passage(rows.integer(0), terms));
    RH_TRY(const std::vector<int32_t> tokens, unpack_tokens(rows.blob(2)));
    for (const int32_t token : tokens) ++words.frequencies[token];
  }
}

Status CatalogState::complete_content(int64_t content) {
  RH_TRY(const int64_t bare,
         database->number("SELECT count(*) FROM passages p WHERE p.content = ? AND NOT EXISTS (SELECT "
                          "1 FROM code_extents e WHERE e.passage = p.id)",
                          content));
  if (bare != 0) {
    return make_error(ErrorKind::kInvalidArgument,
                      "{} passages of content {} have no codes yet: encode them first", bare, content);
  }
  RH_TRY(const ContentWords words,
         each_passage_words(content, [&](int64_t passage, const std::string& terms) {
           return database->run("INSERT INTO term_index(rowid, terms) VALUES(?, ?)", passage, terms);
         }));
  for (const auto& [token, passages] : words.frequencies) {
    RH_TRY_STATUS(
        database->run("INSERT INTO token_df(token, passages) VALUES(?1, ?2) ON CONFLICT(token) DO UPDATE SET "
                      "passages = passages + excluded.passages",
                      int64_t{token}, passages));
  }
  RH_TRY_STATUS(
      database->run("INSERT INTO counters(name, value) VALUES('passages', ?) ON CONFLICT(name) DO UPDATE SET "
                    "value = value + excluded.value",
                    words.passages));
  RH_TRY_STATUS(count_mentions(content, 1));
  return database->run("UPDATE contents SET complete = 1 WHERE id = ?", content);
}

Status Catalog::publish(const SourceRecord& given, int64_t content) {
  RH_TRY(const SourceTimes times, check_source(given));
  SourceRecord source = given;
  RH_TRY(const ContentInfo info, state_->content_info(content));
  Database& database = *state_->database;
  RH_TRY(const int64_t known, database.number("SELECT id FROM sources WHERE name = ?", source.name));
  RH_TRY(const auto before, current_version(database, known));
  RH_TRY_STATUS(state_->check_user(source, known));
  if (before) {
    RH_TRY_STATUS(keep_claims_of_user(database, before->id, source));
    RH_TRY(const bool same, is_up_to_date(database, *before, content, source));
    if (same) return {};
  }
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  if (!info.complete) RH_TRY_STATUS(state_->complete_content(content));
  RH_TRY(const int64_t source_id, state_->source_id_of(source));
  Likeness likeness;
  if (before) {
    RH_TRY(likeness, compare_contents(database, before->content, content));
  }
  Erased dropped;
  int64_t version = 0;
  if (!likeness.bytes) {
    RH_TRY(version, insert_version(database, source_id, content, source, times));
  } else {
    version = before->id;
    RH_TRY_STATUS(update_version(database, *before, source, times));
  }
  RH_TRY_STATUS(state_->store_claims(version, source));
  RH_TRY_STATUS(state_->adopt_open_claims(source, source_id));
  if (likeness.bytes && before->content != content) {
    // Read anew: of this source all versions with these bytes; renamed: whoever holds the old content.
    RH_TRY_STATUS(database.run("UPDATE versions SET content = ?1 WHERE content = ?2 AND (?3 OR source = ?4)",
                               content, before->content, int64_t{likeness.recipe}, source_id));
    RH_TRY(const int64_t holders,
           database.number("SELECT count(*) FROM versions WHERE content = ?", before->content));
    if (holders == 0) RH_TRY_STATUS(state_->drop_content(before->content, dropped));
  }
  return scope.commit();
}

Result<int> Catalog::retire(std::span<const std::string> sources) {
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  const int64_t now = wall_clock_ms();
  int64_t ended = 0;
  for (const std::string& name : sources) {
    RH_TRY_STATUS(state_->database->run(
        "UPDATE versions SET replaced = ?, valid_to = ? WHERE valid_to IS NULL AND source = "
        "(SELECT id FROM sources WHERE name = ?)",
        format_iso_time(now), now, name));
    ended += state_->database->changes();
  }
  RH_TRY_STATUS(scope.commit());
  return static_cast<int>(ended);
}

}  // namespace rhapsode::store
