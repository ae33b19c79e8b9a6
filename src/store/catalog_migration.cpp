// What each version of catalog.db added to the one before it: one step a version, never changed again.
#include <array>
#include <string>

#include "store/catalog_schema.h"

namespace rhapsode::store {
namespace {

struct Step {
  int version;
  const char* sql;
};

// 2: what passages speak of. `contents.mentions` says by which version of the extractor a content's were
// found, 0: by none yet, which holds for all contents of version 1 (Catalog::contents_without_mentions).
constexpr char kMentions[] = R"(
ALTER TABLE contents ADD COLUMN mentions INTEGER NOT NULL DEFAULT 0;
CREATE INDEX contents_by_mentions ON contents(mentions);
CREATE TABLE mentions(
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, passages INTEGER NOT NULL
) STRICT;
CREATE TABLE passage_mentions(
  passage INTEGER NOT NULL REFERENCES passages(id), mention INTEGER NOT NULL REFERENCES mentions(id),
  kind INTEGER NOT NULL, PRIMARY KEY(passage, mention)
) STRICT, WITHOUT ROWID;
CREATE INDEX passage_mentions_by_mention ON passage_mentions(mention, kind);
)";

// 3: conversations. A row of a list of contents goes with the content.
constexpr char kConversations[] = R"(
CREATE TABLE conversations(
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, forked_from TEXT NOT NULL,
  created TEXT NOT NULL, vocabulary TEXT NOT NULL, edits INTEGER NOT NULL
) STRICT;
CREATE TABLE messages(
  id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL REFERENCES conversations(id), number INTEGER NOT NULL,
  turn INTEGER NOT NULL, role TEXT NOT NULL, speaker TEXT NOT NULL, said TEXT NOT NULL, text TEXT NOT NULL,
  first_token INTEGER NOT NULL, end_token INTEGER NOT NULL, tokens BLOB NOT NULL,
  body_begin INTEGER NOT NULL, body_end INTEGER NOT NULL, forgotten INTEGER NOT NULL,
  UNIQUE(conversation, number)
) STRICT;
CREATE INDEX messages_by_token ON messages(conversation, end_token);
CREATE TABLE message_views(
  message INTEGER NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
  content INTEGER NOT NULL REFERENCES contents(id), PRIMARY KEY(message, content)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_views_by_content ON message_views(content);
CREATE TABLE conversation_passages(
  conversation INTEGER NOT NULL REFERENCES conversations(id), number INTEGER NOT NULL,
  passage INTEGER NOT NULL REFERENCES passages(id), first_token INTEGER NOT NULL, tokens INTEGER NOT NULL,
  PRIMARY KEY(conversation, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversation_passages_by_passage ON conversation_passages(passage);
CREATE TABLE spills(
  passage INTEGER PRIMARY KEY REFERENCES passages(id), fingerprint INTEGER NOT NULL REFERENCES labels(id),
  base INTEGER NOT NULL REFERENCES labels(id), first_position INTEGER NOT NULL
) STRICT;
CREATE TABLE spill_views(
  passage INTEGER NOT NULL REFERENCES spills(passage) ON DELETE CASCADE,
  content INTEGER NOT NULL REFERENCES contents(id), PRIMARY KEY(passage, content)
) STRICT, WITHOUT ROWID;
CREATE INDEX spill_views_by_content ON spill_views(content);
)";

// 4: whose sources are, what documents call themselves and what they supersede, and what was said of facts.
constexpr char kTimes[] = R"(
CREATE TABLE scopes(
  source INTEGER PRIMARY KEY REFERENCES sources(id) ON DELETE CASCADE, user TEXT NOT NULL
) STRICT;
CREATE TABLE identifiers(
  version INTEGER PRIMARY KEY REFERENCES versions(id) ON DELETE CASCADE, key TEXT NOT NULL,
  identifier TEXT NOT NULL
) STRICT;
CREATE TABLE supersessions(
  version INTEGER NOT NULL REFERENCES versions(id) ON DELETE CASCADE, reverse INTEGER NOT NULL,
  reference TEXT NOT NULL, by_user INTEGER NOT NULL, key TEXT NOT NULL,
  other INTEGER REFERENCES sources(id) ON DELETE SET NULL, PRIMARY KEY(version, reverse, reference)
) STRICT, WITHOUT ROWID;
CREATE TABLE fact_events(
  id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL REFERENCES sources(id) ON DELETE CASCADE,
  version INTEGER REFERENCES versions(id) ON DELETE CASCADE, key TEXT NOT NULL UNIQUE,
  action INTEGER NOT NULL, subject TEXT NOT NULL, attribute TEXT NOT NULL, value TEXT NOT NULL,
  statement TEXT NOT NULL, message TEXT NOT NULL, speaker TEXT NOT NULL, told TEXT NOT NULL,
  event_time TEXT NOT NULL, recorded TEXT NOT NULL, begins INTEGER NOT NULL, made_by TEXT NOT NULL
) STRICT;
)";
constexpr char kTimeIndexes[] = R"(
CREATE INDEX identifiers_by_key ON identifiers(key);
CREATE INDEX supersessions_by_other ON supersessions(other);
CREATE INDEX supersessions_by_key ON supersessions(key) WHERE other IS NULL;
CREATE INDEX fact_events_by_source ON fact_events(source);
CREATE INDEX fact_events_by_version ON fact_events(version);
)";

constexpr std::array<Step, 4> kSteps = {
    {{2, kMentions}, {3, kConversations}, {4, kTimes}, {4, kTimeIndexes}}};
static_assert(kSteps.back().version == kCatalogVersion);

}  // namespace

Status migrate_to(Database& database, int version) {
  bool known = false;
  for (const Step& step : kSteps) {
    if (step.version != version) continue;
    known = true;
    RH_TRY_STATUS(database.execute(step.sql));
  }
  if (known) return {};
  return make_error(ErrorKind::kInternal, "{}: no step leads to format version {}", database.path().string(),
                    version);
}

Status overlay_missing_tables(Database& database, int version) {
  if (version >= kTimesSince) return {};
  std::string sql = kTimes;
  constexpr std::string_view kCreate = "CREATE TABLE";
  for (size_t at = sql.find(kCreate); at != std::string::npos; at = sql.find(kCreate, at + 1)) {
    sql.replace(at, kCreate.size(), "CREATE TEMP TABLE");
  }
  RH_TRY_STATUS(database.execute("PRAGMA temp_store = MEMORY; PRAGMA query_only = OFF;"));
  RH_TRY_STATUS(database.execute(sql.c_str()));
  return database.execute("PRAGMA query_only = ON;");
}

}  // namespace rhapsode::store
