// Catalog: KV extents under their cap.
#include <algorithm>
#include <map>
#include <memory>

#include "base/parallel.h"
#include "store/catalog_state.h"

namespace rhapsode::store {
namespace {

// The least valuable first: other fingerprints, then what is only history, then few tokens saved a byte,
// seldom used, long ago.
constexpr char kVictims[] =
    "SELECT k.passage, k.fingerprint, k.bytes FROM kv_extents k JOIN passages p ON p.id = k.passage ORDER BY "
    "k.fingerprint = ?1 OR EXISTS (SELECT 1 FROM spills s WHERE s.passage = k.passage AND s.fingerprint = "
    "k.fingerprint AND s.base = ?1), EXISTS (SELECT 1 FROM versions v WHERE v.content = p.content AND "
    "v.valid_to IS NULL), "
    "CAST(p.tokens AS REAL) * "
    "(1 + k.uses) / k.bytes / (1 + max(0, unixepoch() - k.last_use) / 86400), k.last_use, k.passage";

struct Victim {
  int64_t passage = 0;
  int64_t fingerprint = 0;
};

}  // namespace

Status CatalogState::drop_kv_extents(std::string_view where) {
  RH_TRY_STATUS(database->execute(
      fmt::format("INSERT INTO stale_extents(segment, offset, bytes) SELECT segment, offset, "
                  "bytes FROM kv_extents WHERE {0}; DELETE FROM kv_extents WHERE {0};",
                  where)
          .c_str()));
  return {};
}

Status CatalogState::store_kv(int64_t passage, int64_t fingerprint, std::span<const std::byte> kv) {
  RH_TRY_STATUS(drop_kv_extents(fmt::format("passage = {} AND fingerprint = {}", passage, fingerprint)));
  RH_TRY(const Extent extent, segments.append(SegmentKind::kKv, kv));
  return database->run(
      "INSERT INTO kv_extents(passage, fingerprint, segment, offset, bytes, checksum, uses, last_use) "
      "VALUES(?, ?, ?, ?, ?, ?, 0, unixepoch())",
      passage, fingerprint, extent.segment, static_cast<int64_t>(extent.offset),
      static_cast<int64_t>(extent.bytes), static_cast<int64_t>(extent.checksum));
}

Status Catalog::put_kv(std::string_view fingerprint, std::span<const KvRecord> records) {
  uint64_t room = 0;
  for (const KvRecord& record : records) {
    if (record.kv.empty() || fingerprint.empty()) {
      return make_error(ErrorKind::kInvalidArgument, "KV of passage {} needs bytes and a fingerprint",
                        record.passage);
    }
    RH_TRY(const int64_t known,
           state_->database->number("SELECT count(*) FROM passages WHERE id = ?", record.passage));
    if (known == 0) {
      return make_error(ErrorKind::kNotFound, "there is no passage {} in {}", record.passage,
                        state_->database->path().string());
    }
    room += SegmentSet::room_of(SegmentKind::kKv, record.kv.size());
  }
  if (room != 0) RH_TRY_STATUS(state_->make_kv_room(fingerprint, room + kSegmentHeaderBytes));
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  RH_TRY(const int64_t label, state_->label(fingerprint));
  for (const KvRecord& record : records) RH_TRY_STATUS(state_->store_kv(record.passage, label, record.kv));
  return scope.commit();
}

Status CatalogState::reclaim() {
  {
    RH_TRY(WriteScope scope, WriteScope::begin(*this));
    RH_TRY_STATUS(segments.drop_empty_segments());
    RH_TRY_STATUS(scope.commit());
  }
  if (options.holes) RH_TRY_STATUS(segments.punch_stale());
  RH_TRY(const uint64_t cap, kv_cap());
  RH_TRY(const uint64_t used, segments.kv_bytes_on_disk());
  std::vector<int64_t> mostly_stale;
  {
    RH_TRY(
        Statement rows,
        database->prepare(
            "SELECT s.id, s.kind, s.bytes - sum(t.bytes) FROM segments s JOIN stale_extents t ON t.segment "
            "= s.id GROUP BY s.id HAVING sum(t.bytes) * 2 > s.bytes"));
    // KV is here only where the file system has no holes; a copy must fit below the cap as well.
    uint64_t copies = 0;
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      const bool kv = static_cast<SegmentKind>(rows.small(1)) == SegmentKind::kKv;
      if (kv) copies += rows.size(2) + kSegmentHeaderBytes;
      if (!kv || cap == 0 || used + copies <= cap) mostly_stale.push_back(rows.integer(0));
    }
  }
  if (mostly_stale.empty()) return {};
  RH_TRY(WriteScope scope, WriteScope::begin(*this));
  RH_TRY_STATUS(segments.rewrite(mostly_stale, &damaged_extents));
  return scope.commit();
}

Result<uint64_t> Catalog::evict_kv(std::string_view fingerprint, uint64_t bytes) {
  return state_->make_kv_room(fingerprint, bytes);
}

Result<uint64_t> CatalogState::make_kv_room(std::string_view fingerprint, uint64_t bytes) {
  if (options.read_only) RH_TRY_STATUS(WriteScope::begin(*this));
  RH_TRY(const uint64_t cap, kv_cap());
  if (cap == 0) return uint64_t{0};
  if (bytes > cap) {
    return make_error(ErrorKind::kTooLarge,
                      "{} bytes of KV are more than the memory's cap of {}: raise the cap", bytes, cap);
  }
  RH_TRY(const uint64_t before, segments.kv_bytes_on_disk());
  uint64_t used = before;
  if (used > cap - bytes) {
    RH_TRY_STATUS(reclaim());
    RH_TRY(used, segments.kv_bytes_on_disk());
  }
  while (used > cap - bytes) {
    RH_TRY(const uint64_t removed, drop_least_valuable_kv(fingerprint, used - (cap - bytes)));
    RH_TRY_STATUS(reclaim());
    RH_TRY(used, segments.kv_bytes_on_disk());
    if (removed == 0 && used > cap - bytes) {
      return make_error(ErrorKind::kTooLarge, "no room for {} bytes of KV below the cap of {}: {} are in use",
                        bytes, cap, used);
    }
  }
  return before - std::min(before, used);
}

Result<uint64_t> CatalogState::drop_least_valuable_kv(std::string_view fingerprint, uint64_t bytes) {
  RH_TRY(WriteScope scope, WriteScope::begin(*this));
  RH_TRY(const int64_t label, known_label(fingerprint));
  std::vector<Victim> victims;
  uint64_t removed = 0;
  {
    RH_TRY(Statement rows, database->prepare(kVictims));
    rows.bind(1, label);
    while (removed < bytes) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      victims.push_back({rows.integer(0), rows.integer(1)});
      removed += SegmentSet::room_of(SegmentKind::kKv, rows.size(2));
    }
  }
  for (const Victim& victim : victims) {
    RH_TRY_STATUS(drop_kv_extents(
        fmt::format("passage = {} AND fingerprint = {}", victim.passage, victim.fingerprint)));
  }
  RH_TRY_STATUS(scope.commit());
  return removed;
}

Status Catalog::quarantine(int64_t passage) {
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  RH_TRY(const int64_t extents,
         state_->database->number("SELECT count(*) FROM kv_extents WHERE passage = ?", passage));
  RH_TRY_STATUS(state_->drop_kv_extents(fmt::format("passage = {}", passage)));
  RH_TRY_STATUS(
      state_->database->run("INSERT INTO counters(name, value) VALUES('quarantined', ?) ON CONFLICT(name) DO "
                            "UPDATE SET value = value + excluded.value",
                            extents));
  return scope.commit();
}

Status Catalog::drop_encodings() {
  {
    RH_TRY(WriteScope scope, WriteScope::begin(*state_));
    RH_TRY_STATUS(
        state_->database->execute("INSERT INTO stale_extents(segment, offset, bytes) SELECT segment, offset, "
                                  "bytes FROM code_extents WHERE bytes > 0; "
                                  "DELETE FROM code_extents;"));
    RH_TRY_STATUS(state_->drop_kv_extents("1"));
    RH_TRY_STATUS(state_->segments.drop_empty_segments());
    RH_TRY_STATUS(scope.commit());
  }
  state_->damaged_codes.clear();
  return {};
}

Result<std::optional<KvExtent>> Catalog::kv_extent(std::string_view fingerprint, int64_t passage) const {
  RH_TRY(const int64_t label, state_->known_label(fingerprint));
  RH_TRY(Statement row,
         state_->database->prepare("SELECT segment, offset, bytes, checksum FROM kv_extents WHERE passage = "
                                   "? AND fingerprint = ?"));
  row.bind(1, passage).bind(2, label);
  RH_TRY(const bool there, row.step());
  if (!there) return std::optional<KvExtent>();
  if (!state_->options.read_only) ++state_->pending_uses[{passage, label}];
  return std::optional<KvExtent>(KvExtent{passage, {row.integer(0), row.size(1), row.size(2), row.size(3)}});
}

Status Catalog::read_kv(const KvExtent& extent, std::span<std::byte> bytes) const {
  return explained(extent, state_->segments.read(SegmentKind::kKv, extent.extent, bytes));
}

std::vector<Status> Catalog::read_kv(std::span<const KvExtent> extents, const KvReading& reading) const {
  std::vector<Status> done(extents.size());
  std::vector<std::shared_ptr<const SegmentReader>> readers(extents.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    auto reader = state_->segments.reader(SegmentKind::kKv, extents[i].extent.segment);
    if (reader.ok()) {
      readers[i] = std::move(*reader);
    } else {
      done[i] = reader.error();
    }
  }
  run_on_threads(std::min(reading.threads, static_cast<int>(extents.size())), [&] {
    RecordStream stream;
    for (size_t i = reading.take(); i < extents.size(); i = reading.take()) {
      if (!readers[i]) continue;
      done[i] = readers[i]->begin(extents[i].extent, stream);
      if (done[i].ok()) done[i] = reading.use(i, stream);
    }
  });
  for (size_t i = 0; i < extents.size(); ++i) done[i] = explained(extents[i], std::move(done[i]));
  return done;
}

std::vector<bool> Catalog::kv_in_page_cache(std::span<const KvExtent> extents) const {
  std::vector<bool> cached(extents.size(), false);
  std::map<int64_t, PageCacheView> views;  // by segment
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i].extent;
    auto view = views.find(extent.segment);
    if (view == views.end()) {
      const auto reader = state_->segments.reader(SegmentKind::kKv, extent.segment);
      if (!reader.ok()) continue;
      view = views.emplace(extent.segment, (*reader)->page_cache()).first;
    }
    cached[i] = view->second.holds(extent.offset, extent.bytes);
  }
  return cached;
}

Status Catalog::explained(const KvExtent& extent, Status read) const {
  if (read.ok() || (read.error().kind != ErrorKind::kCorrupt && read.error().kind != ErrorKind::kNotFound))
    return read;
  // A writer may have evicted or moved it since the extent was asked for: that is no damage.
  RH_TRY(const int64_t still,
         state_->database->number(
             "SELECT count(*) FROM kv_extents WHERE passage = ? AND segment = ? AND offset = ?",
             extent.passage, extent.extent.segment, static_cast<int64_t>(extent.extent.offset)));
  if (still != 0) {
    return make_error(ErrorKind::kCorrupt, "{}", read.error().message);
  }
  return make_error(ErrorKind::kNotFound,
                    "the KV of passage {} was removed or moved meanwhile: ask for it again", extent.passage);
}

}  // namespace rhapsode::store
