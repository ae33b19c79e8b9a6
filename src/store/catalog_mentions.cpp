// Catalog: what passages speak of, and who else speaks of it.
#include <map>

#include "store/catalog_schema.h"
#include "store/catalog_state.h"

namespace rhapsode::store {
namespace {

constexpr char kCount[] =
    "UPDATE mentions SET passages = mentions.passages + ?2 * held.many FROM (SELECT m.mention, count(*) AS "
    "many "
    "FROM passages p JOIN passage_mentions m ON m.passage = p.id WHERE p.content = ?1 GROUP BY m.mention) AS "
    "held WHERE mentions.id = held.mention";

// The mentions of the passages, weighed before their holders are looked at.
constexpr char kSharers[] =
    "SELECT h.passage, h.mention, h.kind, n.passages FROM (SELECT DISTINCT mention FROM passage_mentions "
    "WHERE "
    "passage IN (SELECT value FROM json_each(?1))) q JOIN mentions n ON n.id = q.mention JOIN "
    "passage_mentions h "
    "ON h.mention = n.id WHERE n.passages BETWEEN 2 AND ?2 AND EXISTS (SELECT 1 FROM passage_mentions t "
    "WHERE "
    "t.mention = n.id AND t.kind < ?3) ORDER BY h.mention, h.passage";

constexpr char kDropUnheld[] =
    "DELETE FROM mentions WHERE id IN (SELECT value FROM json_each(?)) AND NOT EXISTS "
    "(SELECT 1 FROM passage_mentions m WHERE m.mention = mentions.id)";

// A reader takes catalogs that had no mentions yet as they are.
Result<bool> has_mentions(Database& database) {
  RH_TRY(const int64_t version, database.number("PRAGMA user_version"));
  return version >= kMentionsSince;
}

PassageMentionRow mention_row(const Statement& row) {
  return {row.integer(0), row.integer(1), row.small(2), row.integer(3)};
}

}  // namespace

Status CatalogState::store_mentions(int64_t content, int version, std::span<const int64_t> passages,
                                    std::span<const std::vector<MentionKey>> mentions) {
  std::map<std::string_view, int64_t> known;
  for (size_t i = 0; i < passages.size(); ++i) {
    for (const MentionKey& mention : mentions[i]) {
      int64_t& id = known[mention.key];
      if (id == 0) {
        RH_TRY_STATUS(database->run("INSERT INTO mentions(key, passages) VALUES(?, 0) ON CONFLICT DO NOTHING",
                                    std::string_view(mention.key)));
        RH_TRY(id, database->number("SELECT id FROM mentions WHERE key = ?", std::string_view(mention.key)));
      }
      RH_TRY_STATUS(
          database->run("INSERT INTO passage_mentions(passage, mention, kind) VALUES(?, ?, ?) ON CONFLICT DO "
                        "UPDATE SET kind = min(kind, excluded.kind)",
                        passages[i], id, int64_t{mention.kind}));
    }
  }
  return database->run("UPDATE contents SET mentions = ? WHERE id = ?", int64_t{version}, content);
}

Status CatalogState::count_mentions(int64_t content, int sign) {
  return database->run(kCount, content, int64_t{sign});
}

Status CatalogState::drop_mentions(int64_t content) {
  std::vector<int64_t> held;
  {
    RH_TRY(Statement rows,
           database->prepare("SELECT DISTINCT m.mention FROM passages p JOIN passage_mentions m "
                             "ON m.passage = p.id WHERE p.content = ?"));
    rows.bind(1, content);
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      held.push_back(rows.integer(0));
    }
  }
  if (held.empty()) return {};
  RH_TRY_STATUS(database->run(
      "DELETE FROM passage_mentions WHERE passage IN (SELECT id FROM passages WHERE content = ?)", content));
  return database->run(kDropUnheld, json_list(held));
}

Status Catalog::put_mentions(int version, std::span<const ContentMentions> contents) {
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  for (const auto& [content, by_ordinal] : contents) {
    RH_TRY(const ContentInfo info, state_->content_info(content));
    if (by_ordinal.size() != info.passages.size()) {
      return make_error(ErrorKind::kInvalidArgument,
                        "the content {} has {} passages; mentions of {} were given", content,
                        info.passages.size(), by_ordinal.size());
    }
    if (info.complete) RH_TRY_STATUS(state_->count_mentions(content, -1));
    RH_TRY_STATUS(state_->drop_mentions(content));
    RH_TRY_STATUS(state_->store_mentions(content, version, info.passages, by_ordinal));
    if (info.complete) RH_TRY_STATUS(state_->count_mentions(content, 1));
  }
  return scope.commit();
}

Result<std::vector<UnlinkedContent>> Catalog::contents_without_mentions(int version, int most) const {
  std::vector<UnlinkedContent> contents;
  RH_TRY(const bool there, has_mentions(*state_->database));
  if (!there) return contents;
  // Two ranges of the index: nothing is looked at when all is up to date.
  RH_TRY(
      Statement rows,
      state_->database->prepare(
          "SELECT c.id, coalesce((SELECT v.title FROM versions v WHERE v.content = c.id ORDER BY v.id LIMIT "
          "1), '') FROM contents c WHERE c.mentions < ?1 OR c.mentions > ?1 LIMIT ?2"));
  rows.bind(1, int64_t{version}).bind(2, int64_t{most});
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return contents;
    RH_TRY(ContentInfo info, state_->content_info(rows.integer(0)));
    contents.push_back({info.id, std::string(rows.text(1)), std::move(info.passages)});
  }
}

Result<std::vector<PassageMentionRow>> Catalog::mentions_of(std::span<const int64_t> passages) const {
  std::vector<PassageMentionRow> found;
  RH_TRY(const bool there, has_mentions(*state_->database));
  if (!there || passages.empty()) return found;
  RH_TRY(Statement rows, state_->database->prepare(
                             "SELECT m.passage, m.mention, m.kind, n.passages FROM passage_mentions m JOIN "
                             "mentions n ON n.id = m.mention WHERE m.passage IN (SELECT value FROM "
                             "json_each(?)) ORDER BY m.passage, m.mention"));
  rows.bind(1, json_list(passages));
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return found;
    found.push_back(mention_row(rows));
  }
}

Result<std::vector<PassageMentionRow>> Catalog::sharers_of(std::span<const int64_t> passages, int most,
                                                           int weak_kind) const {
  std::vector<PassageMentionRow> found;
  RH_TRY(const bool there, has_mentions(*state_->database));
  if (!there || passages.empty()) return found;
  RH_TRY(Statement rows, state_->database->prepare(kSharers));
  rows.bind(1, json_list(passages)).bind(2, int64_t{most}).bind(3, int64_t{weak_kind});
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return found;
    found.push_back(mention_row(rows));
  }
}

Result<std::string> Catalog::mention_key(int64_t mention) const {
  RH_TRY(const bool there, has_mentions(*state_->database));
  if (!there) return make_error(ErrorKind::kNotFound, "the catalog has no mentions yet");
  RH_TRY(Statement row, state_->database->prepare("SELECT key FROM mentions WHERE id = ?"));
  row.bind(1, mention);
  RH_TRY(const bool known, row.step());
  if (!known) return make_error(ErrorKind::kNotFound, "there is no mention {}", mention);
  return std::string(row.text(0));
}

Result<std::vector<TitledPassage>> Catalog::titled(std::span<const std::string> keys, int most) const {
  std::vector<TitledPassage> found;
  RH_TRY(const bool there, has_mentions(*state_->database));
  if (!there) return found;
  RH_TRY(Statement rows,
         state_->database->prepare(
             "SELECT h.passage, h.mention FROM mentions n JOIN passage_mentions h ON h.mention = "
             "n.id WHERE n.key = ? AND h.kind = 0 ORDER BY h.passage LIMIT ?"));
  for (size_t key = 0; key < keys.size(); ++key) {
    rows.reset();
    rows.bind(1, keys[key]).bind(2, int64_t{most});
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      found.push_back({rows.integer(0), rows.integer(1), key});
    }
  }
  return found;
}

}  // namespace rhapsode::store
