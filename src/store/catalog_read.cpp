// Catalog: sources, versions, passages and their codes, as a selection sees them.
#include <algorithm>
#include <unordered_map>

#include "base/iso_time.h"
#include "base/text_check.h"
#include "store/catalog_state.h"
#include "store/conversation_types.h"

namespace rhapsode::store {
namespace {

constexpr int kMostAttempts = 3;  // to find a segment that a writer replaces meanwhile
constexpr size_t kManyIds = 256;  // above, one scan is cheaper than a look-up each

std::vector<std::string> split_tags(std::string_view lines) {
  std::vector<std::string> tags;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    tags.emplace_back(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return tags;
}

void bind_time(Statement& statement, const VisibleRows& visible) {
  if (visible.at_ms) statement.bind(1, *visible.at_ms);
}

SourceRow source_row(const Statement& row) {
  SourceRow source;
  source.record.name = row.text(0);
  source.record.kind = row.text(1);
  source.record.title = row.text(2);
  source.record.author = row.text(3);
  source.record.tags = split_tags(row.text(4));
  source.record.event_time = row.text(5);
  source.record.added = row.text(6);
  source.record.bytes = row.size(7);
  source.version = row.small(8);
  source.content = row.integer(9);
  source.sha256 = row.text(10);
  source.passages = row.small(11);
  source.tokens = row.size(12);
  source.versions = row.small(13);
  source.record.user = row.text(14);
  source.record.identifier = row.text(15);
  return source;
}

PassageRow passage_row(const Statement& row) {
  PassageRow passage;
  passage.id = row.integer(0);
  passage.content = row.integer(1);
  passage.ordinal = row.small(2);
  passage.begin = row.size(3);
  passage.end = row.size(4);
  passage.header = row.text(5);
  passage.line = row.small(6);
  passage.page = row.small(7);
  passage.tokens = row.small(8);
  passage.source = row.text(9);
  passage.version = row.small(10);
  passage.has_kv = row.small(11) != 0;
  return passage;
}

constexpr char kPassageColumns[] =
    "p.id, p.content, p.ordinal, p.begin_byte, p.end_byte, p.header, p.line, p.page, p.tokens, s.name, "
    "v.number, "
    "EXISTS (SELECT 1 FROM kv_extents k WHERE k.passage = p.id AND k.fingerprint = ?3)";

struct StoredCode {
  Extent extent;
  int chunks = 0;
};

Result<std::unordered_map<int64_t, StoredCode>> code_extents(Database& database,
                                                             std::span<const int64_t> ids) {
  std::unordered_map<int64_t, StoredCode> found;
  if (ids.empty()) return found;
  const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
  const bool scan = ids.size() > kManyIds && (*most - *least) / 8 < static_cast<int64_t>(ids.size());
  constexpr std::string_view kColumns =
      "SELECT passage, segment, offset, bytes, checksum, chunks FROM code_extents WHERE ";
  RH_TRY(Statement rows, database.prepare(fmt::format("{}{}", kColumns,
                                                      scan ? "passage BETWEEN ? AND ?"
                                                           : "passage IN (SELECT value FROM json_each(?))")));
  if (scan) {
    rows.bind(1, *least).bind(2, *most);
  } else {
    rows.bind(1, json_list(ids));
  }
  found.reserve(ids.size());
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return found;
    found.emplace(rows.integer(0),
                  StoredCode{{rows.integer(1), rows.size(2), rows.size(3), rows.size(4)}, rows.small(5)});
  }
}

}  // namespace

Result<std::vector<SourceRow>> Catalog::sources(const Selection& selection) const {
  RH_TRY(VisibleRows visible, state_->visible_rows(selection));
  // Of a source's whole history the last version stands for it.
  if (selection.history) {
    visible.where += " AND v.number = (SELECT max(w.number) FROM versions w WHERE w.source = v.source)";
  }
  RH_TRY(Statement rows,
         state_->database->prepare(fmt::format(
             "SELECT s.name, v.kind, v.title, v.author, v.tags, v.event_time, v.added, v.bytes, v.number, "
             "v.content, c.sha256, c.passages, c.tokens, (SELECT count(*) FROM versions o WHERE o.source = "
             "s.id), coalesce((SELECT o.user FROM scopes o WHERE o.source = s.id), ''), coalesce((SELECT "
             "i.identifier FROM identifiers i WHERE i.version = v.id), '') FROM versions v JOIN sources s ON "
             "s.id = v.source JOIN contents c ON c.id = v.content WHERE {} ORDER BY s.name",
             visible.where)));
  bind_time(rows, visible);
  std::vector<SourceRow> sources;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return sources;
    sources.push_back(source_row(rows));
  }
}

Result<std::vector<VersionRow>> Catalog::versions(std::string_view source, const Selection& whose) const {
  Selection ever = whose;
  ever.history = true;
  RH_TRY(const VisibleRows mine, state_->scope_rows(ever));
  RH_TRY(Statement rows,
         state_->database->prepare(fmt::format(
             "SELECT v.number, v.content, v.added, v.replaced, v.event_time, c.sha256, v.bytes FROM "
             "versions v JOIN sources s ON s.id = v.source JOIN contents c ON c.id = v.content WHERE "
             "s.name = ? AND {} ORDER BY v.number",
             mine.where)));
  rows.bind(1, source);
  std::vector<VersionRow> versions;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return versions;
    versions.push_back({rows.small(0), rows.integer(1), std::string(rows.text(2)), std::string(rows.text(3)),
                        std::string(rows.text(4)), std::string(rows.text(5)), rows.size(6)});
  }
}

Result<std::vector<int64_t>> CatalogState::visible_ids(const VisibleRows& visible) const {
  RH_TRY(Statement rows,
         database->prepare(fmt::format(
             "SELECT id FROM passages p WHERE p.content IN (SELECT v.content FROM versions v JOIN sources s "
             "ON s.id = v.source WHERE {}) ORDER BY id",
             visible.where)));
  bind_time(rows, visible);
  std::vector<int64_t> ids;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return ids;
    ids.push_back(rows.integer(0));
  }
}

// Of everyone: refused where sources are users' own.
Result<const std::vector<int64_t>*> CatalogState::visible_passages_now() {
  RH_TRY_STATUS(scope_rows({}));
  RH_TRY(const int64_t data_version, database->number("PRAGMA data_version"));
  if (visible_now && data_version == visible_data_version) return &*visible_now;
  RH_TRY(const VisibleRows visible, visible_rows({}));
  RH_TRY(visible_now, visible_ids(visible));
  visible_data_version = data_version;
  return &*visible_now;
}

Result<std::vector<int64_t>> Catalog::visible_passages(const Selection& selection) const {
  RH_TRY(const bool all, sees_all(selection));
  if (all) {
    RH_TRY(const std::vector<int64_t>* const ids, state_->visible_passages_now());
    return *ids;
  }
  RH_TRY(const VisibleRows visible, state_->visible_rows(selection));
  return state_->visible_ids(visible);
}

Result<std::vector<PassageRow>> Catalog::passages(std::span<const int64_t> ids,
                                                  const Selection& selection) const {
  RH_TRY(const VisibleRows visible, state_->visible_rows(selection));
  RH_TRY(const auto fingerprint, state_->setting(kFingerprintSetting));
  RH_TRY(const int64_t label, state_->known_label(fingerprint.value_or("")));
  RH_TRY(Statement rows,
         state_->database->prepare(fmt::format("SELECT {} FROM json_each(?2) j CROSS JOIN passages p ON p.id "
                                               "= j.value CROSS JOIN versions v ON v.content = "
                                               "p.content JOIN sources s ON s.id = v.source WHERE {}",
                                               kPassageColumns, visible.where)));
  bind_time(rows, visible);
  rows.bind(2, json_list(ids)).bind(3, label);
  std::unordered_map<int64_t, PassageRow> found;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) break;
    PassageRow passage = passage_row(rows);
    const auto [place, fresh] = found.try_emplace(passage.id, passage);
    if (!fresh && passage.source < place->second.source) place->second = std::move(passage);
  }
  std::vector<PassageRow> passages;
  passages.reserve(ids.size());
  for (const int64_t id : ids) {
    if (const auto row = found.find(id); row != found.end()) passages.push_back(row->second);
  }
  return passages;
}

Result<std::vector<PassageRow>> Catalog::passages_of(std::string_view source,
                                                     const Selection& selection) const {
  Selection one = selection;
  one.sources = {std::string(source)};
  RH_TRY(const VisibleRows visible, state_->visible_rows(one));
  RH_TRY(const auto fingerprint, state_->setting(kFingerprintSetting));
  RH_TRY(const int64_t label, state_->known_label(fingerprint.value_or("")));
  RH_TRY(Statement rows, state_->database->prepare(fmt::format(
                             "SELECT {} FROM sources s JOIN versions v ON v.source = s.id JOIN passages p "
                             "ON p.content = v.content WHERE s.name = ?2 AND {} ORDER BY v.number, p.ordinal",
                             kPassageColumns, visible.where)));
  bind_time(rows, visible);
  rows.bind(2, source).bind(3, label);
  std::vector<PassageRow> passages;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return passages;
    passages.push_back(passage_row(rows));
  }
}

Result<std::string> Catalog::text(int64_t content) const {
  RH_TRY(Statement row,
         state_->database->prepare("SELECT t.sha256, t.bytes FROM contents c JOIN texts t ON t.sha256 = "
                                   "c.text_sha256 WHERE c.id = ?"));
  row.bind(1, content);
  RH_TRY(const bool there, row.step());
  if (!there) {
    return make_error(ErrorKind::kNotFound, "there is no content {} in {}", content,
                      state_->database->path().string());
  }
  return state_->texts.get(std::string(row.text(0)), row.size(1));
}

Result<std::string> Catalog::passage_text(int64_t passage) const {
  RH_TRY(Statement row,
         state_->database->prepare("SELECT content, begin_byte, end_byte FROM passages WHERE id = ?"));
  row.bind(1, passage);
  RH_TRY(const bool there, row.step());
  if (!there) {
    return make_error(ErrorKind::kNotFound, "there is no passage {} in {}", passage,
                      state_->database->path().string());
  }
  const int64_t content = row.integer(0);
  const uint64_t begin = row.size(1);
  const uint64_t end = row.size(2);
  const std::string* whole = state_->recent_texts.find(content);
  if (!whole) {
    RH_TRY(std::string read, text(content));
    whole = &state_->recent_texts.insert(content, std::move(read));
  }
  if (begin > end || end > whole->size()) {
    return make_error(ErrorKind::kCorrupt, "{}: passage {} is not inside its text of {} bytes",
                      state_->database->path().string(), passage, whole->size());
  }
  return whole->substr(begin, end - begin);
}

// The bytes in place, or nothing when they are damaged.
Result<std::optional<std::span<const std::byte>>> CatalogState::sound_code(const Extent& extent) {
  const uint64_t place = code_place(extent.segment, extent.offset);
  if (damaged_codes.contains(place)) return std::optional<std::span<const std::byte>>();
  const auto bytes = segments.view(extent);
  if (!bytes.ok() && bytes.error().kind != ErrorKind::kCorrupt) return bytes.error();
  if (bytes.ok() && (sound_codes.contains(place) || record_checksum(*bytes) == extent.checksum)) {
    sound_codes.insert(place);
    return std::optional(*bytes);
  }
  // The rest of the memory stays searchable; stats() and check() say that this one is lost.
  damaged_codes.insert(place);
  return std::optional<std::span<const std::byte>>();
}

Result<std::vector<CodeView>> Catalog::codes(std::span<const int64_t> ids) const {
  std::vector<CodeView> views(ids.size());
  for (int attempt = 0;; ++attempt) {
    RH_TRY(const auto found, code_extents(*state_->database, ids));
    bool moved = false;
    for (size_t i = 0; i < ids.size() && !moved; ++i) {
      const auto code = found.find(ids[i]);
      views[i] = {};
      if (code == found.end() || code->second.extent.bytes == 0) continue;
      const auto bytes = state_->sound_code(code->second.extent);
      // A writer may have rewritten the segment since its extents were asked for.
      moved = !bytes.ok() && bytes.error().kind == ErrorKind::kNotFound && attempt < kMostAttempts;
      if (!bytes.ok() && !moved) return bytes.error();
      if (bytes.ok() && *bytes) views[i] = {**bytes, code->second.chunks};
    }
    if (!moved) return views;
  }
}

Result<std::vector<CodedPassage>> Catalog::coded_passages() const {
  RH_TRY(Statement rows, state_->database->prepare(
                             "SELECT passage, chunks FROM code_extents WHERE bytes > 0 ORDER BY passage"));
  std::vector<CodedPassage> passages;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return passages;
    passages.push_back({rows.integer(0), rows.small(1)});
  }
}

}  // namespace rhapsode::store
