#include "store/catalog_schema.h"

#include <algorithm>

namespace rhapsode::store {
namespace {

constexpr int64_t kApplicationId = 0x52484150;  // "RHAP"

// Version 1; what later versions added is in catalog_migration.cpp.
// Ids of contents, passages and segments are never used twice: what holds an old one finds nothing.
// In `segments`, `bytes` is the committed length and `punched` what of it was given back as holes.
constexpr char kTables[] = R"(
CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE labels(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE texts(
  sha256 TEXT PRIMARY KEY, bytes INTEGER NOT NULL, stored_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE contents(
  id INTEGER PRIMARY KEY AUTOINCREMENT, sha256 TEXT NOT NULL, recipe TEXT NOT NULL,
  text_sha256 TEXT NOT NULL REFERENCES texts(sha256),
  named_after TEXT NOT NULL, complete INTEGER NOT NULL, passages INTEGER NOT NULL, tokens INTEGER NOT NULL,
  UNIQUE(sha256, recipe, named_after)
) STRICT;
CREATE INDEX contents_by_text ON contents(text_sha256);
CREATE TABLE sources(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE versions(
  id INTEGER PRIMARY KEY, source INTEGER NOT NULL REFERENCES sources(id), number INTEGER NOT NULL,
  content INTEGER NOT NULL REFERENCES contents(id), kind TEXT NOT NULL, title TEXT NOT NULL,
  author TEXT NOT NULL, tags TEXT NOT NULL, event_time TEXT NOT NULL, added TEXT NOT NULL,
  replaced TEXT NOT NULL, valid_from INTEGER NOT NULL, valid_to INTEGER, bytes INTEGER NOT NULL,
  UNIQUE(source, number)
) STRICT;
CREATE INDEX versions_by_content ON versions(content);
CREATE TABLE passages(
  id INTEGER PRIMARY KEY AUTOINCREMENT, content INTEGER NOT NULL REFERENCES contents(id),
  ordinal INTEGER NOT NULL, begin_byte INTEGER NOT NULL, end_byte INTEGER NOT NULL, header TEXT NOT NULL,
  line INTEGER NOT NULL, page INTEGER NOT NULL, tokens INTEGER NOT NULL, UNIQUE(content, ordinal)
) STRICT;
CREATE TABLE passage_words(
  passage INTEGER PRIMARY KEY REFERENCES passages(id), terms BLOB NOT NULL, tokens BLOB NOT NULL
) STRICT;
CREATE TABLE token_df(token INTEGER PRIMARY KEY, passages INTEGER NOT NULL) STRICT;
CREATE VIRTUAL TABLE term_index USING fts5(terms, content='', tokenize="ascii tokenchars '_'");
CREATE TABLE segments(
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, bytes INTEGER NOT NULL,
  punched INTEGER NOT NULL, sealed INTEGER NOT NULL
) STRICT;
CREATE TABLE code_extents(
  passage INTEGER PRIMARY KEY REFERENCES passages(id), segment INTEGER NOT NULL, offset INTEGER NOT NULL,
  bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, chunks INTEGER NOT NULL, whitening INTEGER NOT NULL
) STRICT;
CREATE INDEX code_extents_by_segment ON code_extents(segment);
CREATE TABLE kv_extents(
  passage INTEGER NOT NULL REFERENCES passages(id), fingerprint INTEGER NOT NULL REFERENCES labels(id),
  segment INTEGER NOT NULL, offset INTEGER NOT NULL, bytes INTEGER NOT NULL, checksum INTEGER NOT NULL,
  uses INTEGER NOT NULL, last_use INTEGER NOT NULL, PRIMARY KEY(passage, fingerprint)
) STRICT, WITHOUT ROWID;
CREATE INDEX kv_extents_by_segment ON kv_extents(segment);
CREATE TABLE stale_extents(
  segment INTEGER NOT NULL REFERENCES segments(id), offset INTEGER NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY(segment, offset)
) STRICT, WITHOUT ROWID;
)";

}  // namespace

Result<int> schema_version(Database& database) {
  RH_TRY(const int64_t application, database.number("PRAGMA application_id"));
  RH_TRY(const int64_t version, database.number("PRAGMA user_version"));
  RH_TRY(const int64_t tables, database.number("SELECT count(*) FROM sqlite_schema"));
  if (application == 0 && version == 0 && tables == 0) return 0;
  if (application != kApplicationId) {
    return make_error(ErrorKind::kCorrupt, "{} is a database, but not the catalog of a memory",
                      database.path().string());
  }
  if (version > kCatalogVersion || version < 1) {
    return make_error(
        ErrorKind::kUnsupported,
        "{} has format version {}, and this build reads versions 1 to {}: use the release that wrote it, or "
        "export the memory there and import it here",
        database.path().string(), version, kCatalogVersion);
  }
  return static_cast<int>(version);
}

Status upgrade_schema(Database& database, int from) {
  RH_TRY(Transaction transaction, Transaction::begin(database));
  if (from == 0) RH_TRY_STATUS(database.execute(kTables));
  for (int version = std::max(from, 1) + 1; version <= kCatalogVersion; ++version) {
    RH_TRY_STATUS(migrate_to(database, version));
  }
  const std::string stamp =
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};", kApplicationId, kCatalogVersion);
  RH_TRY_STATUS(database.execute(stamp.c_str()));
  return transaction.commit();
}

}  // namespace rhapsode::store
