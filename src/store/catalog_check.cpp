// Catalog: counts, and the check of every checksum.
#include "store/catalog_schema.h"
#include "store/catalog_state.h"

namespace rhapsode::store {
namespace {

namespace fs = std::filesystem;

constexpr char kMiscountedMentions[] =
    "SELECT count(*) FROM mentions n WHERE passages <> (SELECT count(*) FROM passage_mentions m JOIN "
    "passages p "
    "ON p.id = m.passage JOIN contents c ON c.id = p.content WHERE m.mention = n.id AND c.complete = 1)";

Result<uint64_t> total(Database& database, std::string_view sql) {
  RH_TRY(const int64_t value, database.number(sql));
  return static_cast<uint64_t>(value);
}

uint64_t size_or_zero(const fs::path& path) {
  std::error_code failure;
  const uint64_t size = fs::file_size(path, failure);
  return failure ? 0 : size;
}

Status check_database(Database& database, bool read_only, std::vector<std::string>& problems) {
  for (const char* pragma : {"PRAGMA integrity_check", "PRAGMA foreign_key_check"}) {
    RH_TRY(Statement rows, database.prepare(pragma));
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      if (rows.text(0) != "ok")
        problems.push_back(fmt::format("{}: {}: {}", database.path().string(), pragma, rows.text(0)));
    }
  }
  if (!read_only) {
    const Status index = database.execute("INSERT INTO term_index(term_index) VALUES('integrity-check')");
    if (!index.ok()) problems.push_back(fmt::format("the text index is damaged: {}", index.error().message));
  }
  RH_TRY(const int64_t counted, database.number("SELECT value FROM counters WHERE name = 'passages'"));
  RH_TRY(const int64_t there,
         database.number("SELECT count(*) FROM passages p JOIN contents c ON c.id = p.content WHERE "
                         "c.complete = 1"));
  if (counted != there) {
    problems.push_back(
        fmt::format("{}: {} passages are counted, {} are there", database.path().string(), counted, there));
  }
  RH_TRY(const int version, schema_version(database));
  if (version < kMentionsSince) return {};
  RH_TRY(const int64_t miscounted, database.number(kMiscountedMentions));
  if (miscounted != 0) {
    problems.push_back(
        fmt::format("{}: the passages of {} mentions are miscounted", database.path().string(), miscounted));
  }
  return {};
}

Status check_extents(CatalogState& state, SegmentKind kind, CheckResult& result) {
  const char* table = kind == SegmentKind::kKv ? "kv_extents" : "code_extents";
  RH_TRY(Statement rows,
         state.database->prepare(
             fmt::format("SELECT passage, segment, offset, bytes, checksum FROM {} WHERE bytes > 0", table)));
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return {};
    ++result.extents;
    const Extent extent{rows.integer(1), rows.size(2), rows.size(3), rows.size(4)};
    const auto bytes = state.segments.load(kind, extent);
    if (!bytes.ok())
      result.problems.push_back(fmt::format("passage {}: {}", rows.integer(0), bytes.error().message));
  }
}

Status check_texts(CatalogState& state, CheckResult& result) {
  RH_TRY(Statement rows, state.database->prepare("SELECT sha256, bytes FROM texts"));
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return {};
    ++result.texts;
    const auto text = state.texts.get(std::string(rows.text(0)), rows.size(1));
    if (!text.ok()) result.problems.push_back(text.error().message);
  }
}

Status check_segments(CatalogState& state, CheckResult& result) {
  RH_TRY(Statement rows, state.database->prepare("SELECT id, kind, bytes FROM segments"));
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return {};
    const fs::path path = state.segments.path_of(static_cast<SegmentKind>(rows.small(1)), rows.integer(0));
    const uint64_t length = size_or_zero(path);
    if (length < rows.size(2)) {
      result.problems.push_back(
          fmt::format("{} has {} bytes, of which {} were committed", path.string(), length, rows.size(2)));
    }
  }
}

}  // namespace

Result<CatalogStats> Catalog::stats(std::string_view fingerprint) const {
  Database& database = *state_->database;
  const auto count = [&](std::string_view sql) -> Result<int> {
    RH_TRY(const int64_t value, database.number(sql));
    return static_cast<int>(value);
  };
  CatalogStats stats;
  RH_TRY(stats.sources, count("SELECT count(*) FROM versions WHERE valid_to IS NULL"));
  RH_TRY(stats.versions, count("SELECT count(*) FROM versions"));
  RH_TRY(stats.contents, count("SELECT count(*) FROM contents WHERE complete = 1"));
  RH_TRY(stats.passages, count("SELECT coalesce(sum(passages), 0) FROM contents WHERE complete = 1"));
  RH_TRY(stats.tokens, total(database, "SELECT coalesce(sum(tokens), 0) FROM contents WHERE complete = 1"));
  RH_TRY(stats.text_bytes, total(database, "SELECT coalesce(sum(stored_bytes), 0) FROM texts"));
  RH_TRY(stats.code_bytes, total(database, "SELECT coalesce(sum(bytes), 0) FROM code_extents"));
  RH_TRY(stats.kv_bytes, total(database, "SELECT coalesce(sum(bytes), 0) FROM kv_extents"));
  RH_TRY(stats.stale_bytes, total(database, "SELECT coalesce(sum(bytes), 0) FROM stale_extents"));
  RH_TRY(stats.quarantined, total(database, "SELECT value FROM counters WHERE name = 'quarantined'"));
  stats.quarantined += state_->damaged_codes.size() + static_cast<uint64_t>(state_->damaged_extents);
  RH_TRY(const int64_t label, state_->known_label(fingerprint));
  RH_TRY(const int64_t with_kv,
         database.number("SELECT count(*) FROM kv_extents WHERE fingerprint = ?", label));
  RH_TRY(const int64_t all_kv, database.number("SELECT count(*) FROM kv_extents"));
  RH_TRY(const int version, schema_version(database));
  constexpr char kSpilled[] =
      "SELECT count(*) FROM spills s JOIN kv_extents k ON k.passage = s.passage AND k.fingerprint = "
      "s.fingerprint WHERE s.base = ?";
  int64_t spilled = 0;
  if (version >= kConversationsSince) {
    RH_TRY(spilled, database.number(kSpilled, label));
  }
  stats.passages_with_kv = static_cast<int>(with_kv + spilled);
  stats.foreign_kv_entries = static_cast<uint64_t>(all_kv - with_kv - spilled);
  const fs::path& file = database.path();
  stats.catalog_bytes = size_or_zero(file) + size_or_zero(file.string() + "-wal");
  return stats;
}

Result<CheckResult> Catalog::check() const {
  CheckResult result;
  RH_TRY_STATUS(check_database(*state_->database, state_->options.read_only, result.problems));
  RH_TRY_STATUS(check_segments(*state_, result));
  RH_TRY_STATUS(check_extents(*state_, SegmentKind::kCodes, result));
  RH_TRY_STATUS(check_extents(*state_, SegmentKind::kKv, result));
  RH_TRY_STATUS(check_texts(*state_, result));
  return result;
}

}  // namespace rhapsode::store
