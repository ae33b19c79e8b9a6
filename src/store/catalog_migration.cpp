// What each version of catalog.db added to the one before it: one step a version, never changed again.
#include <array>

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

constexpr std::array<Step, 1> kSteps = {{{2, kMentions}}};
static_assert(kSteps.back().version == kCatalogVersion);

}  // namespace

Status migrate_to(Database& database, int version) {
  for (const Step& step : kSteps) {
    if (step.version == version) return database.execute(step.sql);
  }
  return make_error(ErrorKind::kInternal, "{}: no step leads to format version {}", database.path().string(),
                    version);
}

}  // namespace rhapsode::store
