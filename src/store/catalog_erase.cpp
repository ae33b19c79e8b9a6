// Catalog: taking things out, from one content to the last byte in the last file.
#include <algorithm>

#include "store/catalog_state.h"
#include "store/word_lists.h"

namespace rhapsode::store {
namespace {

constexpr char kUnheld[] =
    "complete = 0 OR NOT EXISTS (SELECT 1 FROM versions v WHERE v.content = contents.id)";

constexpr char kRenamed[] =
    "SELECT c.id, min(s.name) FROM contents c JOIN versions v ON v.content = c.id AND v.valid_to IS NULL "
    "JOIN sources s ON "
    "s.id = v.source WHERE c.named_after <> '' AND NOT EXISTS (SELECT 1 FROM sources n WHERE n.name = "
    "c.named_after) GROUP "
    "BY c.id ORDER BY c.id";

// Old versions of other sources that are only known under an erased name.
constexpr char kDropNamelessHistory[] =
    "DELETE FROM versions WHERE valid_to IS NOT NULL AND content IN (SELECT id FROM contents c WHERE "
    "c.named_after <> '' AND "
    "NOT EXISTS (SELECT 1 FROM sources n WHERE n.name = c.named_after) AND NOT EXISTS (SELECT 1 FROM "
    "versions h WHERE "
    "h.content = c.id AND h.valid_to IS NULL))";

Result<std::vector<RenamedContent>> renamed_contents(Database& database) {
  RH_TRY(Statement rows, database.prepare(kRenamed));
  std::vector<RenamedContent> renamed;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return renamed;
    renamed.push_back({rows.integer(0), std::string(rows.text(1))});
  }
}

// Removes the source with its versions; false when there is none.
Result<bool> drop_source(Database& database, const std::string& name) {
  RH_TRY(const int64_t id, database.number("SELECT id FROM sources WHERE name = ?", name));
  if (id == 0) return false;
  RH_TRY_STATUS(database.run("DELETE FROM versions WHERE source = ?", id));
  RH_TRY_STATUS(database.run("DELETE FROM sources WHERE id = ?", id));
  return true;
}

// Sources that lose their last version so go too, and what was named after them, and so on.
Status drop_nameless_history(Database& database) {
  while (true) {
    RH_TRY_STATUS(database.run(kDropNamelessHistory));
    if (database.changes() == 0) return {};
    RH_TRY_STATUS(database.run("DELETE FROM sources WHERE id NOT IN (SELECT source FROM versions)"));
  }
}

Status note_erasing(Database& database) {
  return database.run("INSERT INTO counters(name, value) VALUES('erasing', 1) ON CONFLICT DO NOTHING");
}

}  // namespace

Status CatalogState::drop_code_extent(int64_t passage) {
  RH_TRY_STATUS(
      database->run("INSERT INTO stale_extents(segment, offset, bytes) SELECT segment, offset, bytes FROM "
                    "code_extents WHERE passage = ? AND bytes > 0",
                    passage));
  return database->run("DELETE FROM code_extents WHERE passage = ?", passage);
}

Status CatalogState::unindex_content(int64_t content) {
  RH_TRY(const ContentWords words,
         each_passage_words(content, [&](int64_t passage, const std::string& terms) {
           return database->run("INSERT INTO term_index(term_index, rowid, terms) VALUES('delete', ?, ?)",
                                passage, terms);
         }));
  for (const auto& [token, passages] : words.frequencies) {
    RH_TRY_STATUS(database->run("UPDATE token_df SET passages = passages - ? WHERE token = ?", passages,
                                int64_t{token}));
    RH_TRY_STATUS(database->run("DELETE FROM token_df WHERE token = ? AND passages <= 0", int64_t{token}));
  }
  RH_TRY_STATUS(count_mentions(content, -1));
  return database->run("UPDATE counters SET value = value - ? WHERE name = 'passages'", words.passages);
}

Status CatalogState::drop_content(int64_t content, Erased& erased) {
  RH_TRY(const ContentInfo info, content_info(content));
  RH_TRY_STATUS(drop_views_of(content));
  if (info.complete) RH_TRY_STATUS(unindex_content(content));
  const std::string mine = fmt::format("passage IN (SELECT id FROM passages WHERE content = {})", content);
  for (const char* table : {"code_extents", "kv_extents"}) {
    RH_TRY(const int64_t bytes,
           database->number(fmt::format("SELECT coalesce(sum(bytes), 0) FROM {} WHERE {}", table, mine)));
    erased.bytes += static_cast<uint64_t>(bytes);
  }
  RH_TRY_STATUS(drop_kv_extents(mine));
  for (const int64_t passage : info.passages) RH_TRY_STATUS(drop_code_extent(passage));
  RH_TRY_STATUS(database->run(fmt::format("DELETE FROM passage_words WHERE {}", mine)));
  RH_TRY_STATUS(drop_mentions(content));
  RH_TRY_STATUS(database->run("DELETE FROM passages WHERE content = ?", content));
  RH_TRY_STATUS(database->run("DELETE FROM contents WHERE id = ?", content));
  constexpr char kUnusedTexts[] = "sha256 NOT IN (SELECT text_sha256 FROM contents)";
  RH_TRY(const int64_t stored,
         database->number(
             fmt::format("SELECT coalesce(sum(stored_bytes), 0) FROM texts WHERE {}", kUnusedTexts)));
  RH_TRY_STATUS(database->run(fmt::format("DELETE FROM texts WHERE {}", kUnusedTexts)));
  erased.bytes += static_cast<uint64_t>(stored);
  erased.passages += static_cast<int>(info.passages.size());
  return {};
}

Result<int> CatalogState::drop_contents(std::string_view where, Erased& erased) {
  std::vector<int64_t> contents;
  {
    RH_TRY(Statement rows, database->prepare(fmt::format("SELECT id FROM contents WHERE {}", where)));
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      contents.push_back(rows.integer(0));
    }
  }
  for (const int64_t content : contents) RH_TRY_STATUS(drop_content(content, erased));
  return static_cast<int>(contents.size());
}

Status CatalogState::rewrite_stale() {
  std::vector<int64_t> affected;
  {
    RH_TRY(Statement rows, database->prepare("SELECT DISTINCT segment FROM stale_extents"));
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      affected.push_back(rows.integer(0));
    }
  }
  if (affected.empty()) return {};
  return segments.rewrite(affected, &damaged_extents);
}

Result<int> Catalog::drop_unfinished() {
  Erased dropped;
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  RH_TRY(const int count, state_->drop_contents("complete = 0", dropped));
  if (count == 0) return 0;
  RH_TRY_STATUS(scope.commit());
  RH_TRY_STATUS(state_->reclaim());
  RH_TRY_STATUS(state_->sweep());
  return count;
}

Result<Erased> Catalog::erase(std::span<const std::string> sources) {
  Erased erased;
  Database& database = *state_->database;
  {
    RH_TRY(WriteScope scope, WriteScope::begin(*state_));
    for (const std::string& name : sources) {
      std::vector<std::string> parts;
      RH_TRY(bool gone, state_->drop_conversation(name, parts));
      for (const std::string& part : parts) RH_TRY_STATUS(drop_source(database, part));
      if (!gone) {
        RH_TRY(gone, drop_source(database, name));
      }
      if (gone) erased.sources.push_back(name);
    }
    RH_TRY_STATUS(drop_nameless_history(database));
    RH_TRY(const int dropped, state_->drop_contents(kUnheld, erased));
    RH_TRY(erased.renamed, renamed_contents(database));
    RH_TRY(const int64_t erasing, database.number("SELECT value FROM counters WHERE name = 'erasing'"));
    if (erased.sources.empty() && dropped == 0 && erasing == 0) return erased;
    RH_TRY_STATUS(state_->rewrite_stale());
    RH_TRY_STATUS(note_erasing(database));
    RH_TRY_STATUS(scope.commit());
  }
  RH_TRY_STATUS(state_->scrub());
  return erased;
}

Status CatalogState::scrub() {
  {
    RH_TRY(WriteScope scope, WriteScope::begin(*this));
    RH_TRY_STATUS(rewrite_stale());
    // Merging the whole text index drops the terms of removed rows, which until then stay beside their
    // removal marks.
    RH_TRY_STATUS(database->execute("INSERT INTO term_index(term_index) VALUES('optimize')"));
    RH_TRY_STATUS(scope.commit());
  }
  RH_TRY_STATUS(sweep());
  RH_TRY_STATUS(database->execute("VACUUM"));
  RH_TRY_STATUS(truncate_log());
  // The note stays while the name of an erased source still stands in headers.
  RH_TRY(const std::vector<RenamedContent> renamed, renamed_contents(*database));
  if (!renamed.empty()) return {};
  return database->run("DELETE FROM counters WHERE name = 'erasing'");
}

Status CatalogState::truncate_log() {
  const int code =
      sqlite3_wal_checkpoint_v2(database->handle(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  if (code == SQLITE_OK) return {};
  if ((code & 0xff) != SQLITE_BUSY) return database->error(code);
  return make_error(
      ErrorKind::kCancelled,
      "{}: everything asked for is erased, but another process still reads old pages of the catalog: end "
      "it; the next command that writes to this memory removes them",
      database->path().string());
}

}  // namespace rhapsode::store
