#include "store/segment_set.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "store/text_files.h"

namespace rhapsode::store {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kKvAlignment = 4096;
constexpr uint64_t kCodesAlignment = 64;
constexpr size_t kMostReaders = 64;
constexpr std::array kKinds = {SegmentKind::kKv, SegmentKind::kCodes};

const char* folder_name(SegmentKind kind) {
  return kind == SegmentKind::kKv ? "kv" : "routing";
}

const char* table_name(SegmentKind kind) {
  return kind == SegmentKind::kKv ? "kv_extents" : "code_extents";
}

int64_t number_of(SegmentKind kind) {
  return static_cast<int64_t>(kind);
}

// The number in "000012.seg".
std::optional<int64_t> segment_of_name(std::string_view name) {
  if (!name.ends_with(".seg")) return std::nullopt;
  name.remove_suffix(4);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

struct LiveExtent {
  int64_t passage = 0;
  int64_t fingerprint = 0;
  Extent extent;
};

}  // namespace

fs::path SegmentSet::path_of(SegmentKind kind, int64_t segment) const {
  return folder_ / folder_name(kind) / fmt::format("{:06}.seg", segment);
}

uint64_t SegmentSet::room_of(SegmentKind kind, uint64_t bytes) {
  const uint64_t alignment = kind == SegmentKind::kKv ? kKvAlignment : kCodesAlignment;
  return (bytes + alignment - 1) / alignment * alignment;
}

Status SegmentSet::recover() {
  for (const SegmentKind kind : kKinds) {
    RH_TRY_STATUS(make_directories(folder_ / folder_name(kind)));
    RH_TRY_STATUS(sweep_folder(kind));
  }
  RH_TRY(Statement rows, database_.prepare("SELECT id, kind, bytes FROM segments"));
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) break;
    const auto kind = static_cast<SegmentKind>(rows.small(1));
    const fs::path path = path_of(kind, rows.integer(0));
    std::error_code failure;
    const uint64_t length = fs::file_size(path, failure);
    // A file that is missing or short makes its extents unreadable, not the memory: check() names it.
    if (failure || length <= rows.size(2)) continue;
    RH_TRY(File file, File::open_write(path));
    RH_TRY_STATUS(file.truncate(rows.size(2)));
  }
  return {};
}

Status SegmentSet::sweep_folder(SegmentKind kind) {
  const fs::path folder = folder_ / folder_name(kind);
  std::error_code failure;
  for (fs::directory_iterator file(folder, failure), end; !failure && file != end; file.increment(failure)) {
    const std::string name = file->path().filename().string();
    bool stray = is_temporary_name(name);
    if (const auto number = segment_of_name(name); number && !stray) {
      RH_TRY(const int64_t known, database_.number("SELECT count(*) FROM segments WHERE id = ? AND kind = ?",
                                                   *number, number_of(kind)));
      stray = known == 0;
    }
    if (stray) RH_TRY_STATUS(remove_durably(file->path()));
  }
  if (failure) return make_system_error(failure.value(), "cannot list " + folder.string());
  return {};
}

Status SegmentSet::open_newest(SegmentKind kind) {
  RH_TRY(Statement newest,
         database_.prepare(
             "SELECT id, bytes FROM segments WHERE kind = ? AND sealed = 0 ORDER BY id DESC LIMIT 1"));
  newest.bind(1, number_of(kind));
  RH_TRY(const bool row, newest.step());
  if (!row) return {};
  const int64_t id = newest.integer(0);
  auto writer = SegmentWriter::open(path_of(kind, id), kind, newest.size(1));
  if (writer.ok()) {
    slot(kind).emplace(Active{id, std::move(*writer), newest.size(1)});
    return {};
  }
  // A damaged or missing segment is left alone; writing goes on in a new one.
  if (writer.error().kind != ErrorKind::kCorrupt && writer.error().kind != ErrorKind::kNotFound)
    return writer.error();
  return database_.run("UPDATE segments SET sealed = 1 WHERE id = ?", id);
}

Status SegmentSet::start_segment(SegmentKind kind) {
  RH_TRY_STATUS(database_.run("INSERT INTO segments(kind, bytes, punched, sealed) VALUES(?, ?, 0, 0)",
                              number_of(kind), static_cast<int64_t>(kSegmentHeaderBytes)));
  const int64_t id = database_.last_insert_id();
  const fs::path path = path_of(kind, id);
  // A number comes again when the transaction that drew it was rolled back.
  RH_TRY_STATUS(remove_durably(path));
  created_.push_back({kind, id});
  RH_TRY(SegmentWriter writer, SegmentWriter::create(path, kind));
  slot(kind).emplace(Active{id, std::move(writer), kSegmentHeaderBytes});
  return {};
}

Status SegmentSet::seal(SegmentKind kind) {
  Active& segment = *slot(kind);
  RH_TRY_STATUS(segment.writer.sync());
  RH_TRY_STATUS(database_.run("UPDATE segments SET bytes = ?, sealed = 1 WHERE id = ?",
                              static_cast<int64_t>(segment.writer.bytes()), segment.id));
  slot(kind).reset();
  return {};
}

Result<SegmentSet::Active*> SegmentSet::active(SegmentKind kind) {
  auto& segment = slot(kind);
  if (!segment) RH_TRY_STATUS(open_newest(kind));
  if (segment && segment->writer.bytes() > segment_bytes_) RH_TRY_STATUS(seal(kind));
  if (!segment) RH_TRY_STATUS(start_segment(kind));
  return &*segment;
}

Result<Extent> SegmentSet::append(SegmentKind kind, std::span<const std::byte> bytes) {
  RH_TRY(Active* const segment, active(kind));
  const std::array parts = {bytes};
  RH_TRY(Extent extent, segment->writer.append(parts));
  extent.segment = segment->id;
  return extent;
}

Status SegmentSet::sync() {
  for (const SegmentKind kind : kKinds) {
    auto& segment = slot(kind);
    if (!segment || segment->writer.bytes() == segment->synced) continue;
    RH_TRY_STATUS(segment->writer.sync());
    RH_TRY_STATUS(database_.run("UPDATE segments SET bytes = ? WHERE id = ?",
                                static_cast<int64_t>(segment->writer.bytes()), segment->id));
    segment->synced = segment->writer.bytes();
  }
  return {};
}

Status SegmentSet::drop_segment(SegmentKind kind, int64_t segment) {
  if (slot(kind) && slot(kind)->id == segment) slot(kind).reset();
  RH_TRY_STATUS(database_.run("DELETE FROM stale_extents WHERE segment = ?", segment));
  RH_TRY_STATUS(database_.run("DELETE FROM segments WHERE id = ?", segment));
  dropped_.push_back({kind, segment});
  return {};
}

Status SegmentSet::rewrite(std::span<const int64_t> segments, int64_t* damaged) {
  // Sealed first, so that nothing moves from one of them into another.
  RH_TRY_STATUS(sync());
  for (const int64_t segment : segments) {
    for (const SegmentKind kind : kKinds) {
      if (slot(kind) && slot(kind)->id == segment) slot(kind).reset();
    }
    RH_TRY_STATUS(database_.run("UPDATE segments SET sealed = 1 WHERE id = ?", segment));
  }
  for (const int64_t segment : segments) {
    RH_TRY(const int64_t kind, database_.number("SELECT kind FROM segments WHERE id = ?", segment));
    RH_TRY_STATUS(move_extents(static_cast<SegmentKind>(kind), segment, damaged));
    RH_TRY_STATUS(drop_segment(static_cast<SegmentKind>(kind), segment));
  }
  return {};
}

Status SegmentSet::move_extents(SegmentKind kind, int64_t segment, int64_t* damaged) {
  const bool kv = kind == SegmentKind::kKv;
  std::vector<LiveExtent> live;
  {
    RH_TRY(Statement rows,
           database_.prepare(fmt::format("SELECT passage, offset, bytes, checksum, {} FROM {} WHERE "
                                         "segment = ? ORDER BY offset",
                                         kv ? "fingerprint" : "0", table_name(kind))));
    rows.bind(1, segment);
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      live.push_back({rows.integer(0), rows.integer(4), {segment, rows.size(1), rows.size(2), rows.size(3)}});
    }
  }
  for (const LiveExtent& item : live) {
    const std::string where = fmt::format(" WHERE passage = {}{}", item.passage,
                                          kv ? fmt::format(" AND fingerprint = {}", item.fingerprint) : "");
    const auto read = load(kind, item.extent);
    if (!read.ok()) {
      if (read.error().kind != ErrorKind::kCorrupt && read.error().kind != ErrorKind::kNotFound)
        return read.error();
      ++*damaged;
      RH_TRY_STATUS(database_.execute(fmt::format("DELETE FROM {}{}", table_name(kind), where).c_str()));
      continue;
    }
    RH_TRY(const Extent moved, append(kind, *read));
    const std::string update = fmt::format("UPDATE {} SET segment = {}, offset = {}{}", table_name(kind),
                                           moved.segment, moved.offset, where);
    RH_TRY_STATUS(database_.execute(update.c_str()));
  }
  return {};
}

Status SegmentSet::drop_empty_segments() {
  std::vector<Dropped> empty;
  {
    RH_TRY(Statement rows,
           database_.prepare("SELECT id, kind FROM segments WHERE "
                             "NOT EXISTS (SELECT 1 FROM kv_extents k WHERE k.segment = segments.id) AND "
                             "NOT EXISTS (SELECT 1 FROM code_extents c WHERE c.segment = segments.id) AND "
                             "EXISTS (SELECT 1 FROM stale_extents s WHERE s.segment = segments.id)"));
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      empty.push_back({static_cast<SegmentKind>(rows.small(1)), rows.integer(0)});
    }
  }
  for (const Dropped& segment : empty) RH_TRY_STATUS(drop_segment(segment.kind, segment.id));
  return {};
}

Status SegmentSet::remove_dropped_files() {
  created_.clear();
  for (const Dropped& segment : dropped_) {
    readers_.erase(segment.id);
    RH_TRY_STATUS(remove_durably(path_of(segment.kind, segment.id)));
  }
  dropped_.clear();
  return {};
}

void SegmentSet::discard() {
  kv_.reset();
  codes_.reset();
  // Best effort: what stays is removed by the next recover().
  for (const Dropped& segment : created_) {
    readers_.erase(segment.id);
    ::unlink(path_of(segment.kind, segment.id).c_str());
  }
  created_.clear();
  dropped_.clear();
}

Result<bool> SegmentSet::punch(const Extent& extent) {
  RH_TRY(const File file, File::open_write(path_of(SegmentKind::kKv, extent.segment)));
  const auto length = static_cast<off_t>(room_of(SegmentKind::kKv, extent.bytes));
#ifdef FALLOC_FL_PUNCH_HOLE
  if (::fallocate(file.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(extent.offset), length) == 0) {
    return true;
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
    return make_system_error(errno, "cannot give back a part of " + file.path().string());
  }
#endif
  return false;
}

Result<bool> SegmentSet::punch_stale() {
  std::vector<Extent> stale;
  {
    RH_TRY(Statement rows,
           database_.prepare("SELECT t.segment, t.offset, t.bytes FROM stale_extents t JOIN segments s "
                             "ON s.id = t.segment WHERE s.kind = ?"));
    rows.bind(1, number_of(SegmentKind::kKv));
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      stale.push_back({rows.integer(0), rows.size(1), rows.size(2), 0});
    }
  }
  // The row goes after the bytes: a crash in between punches the same hole again.
  for (const Extent& extent : stale) {
    RH_TRY(const bool punched, punch(extent));
    if (!punched) return false;
  }
  if (stale.empty()) return true;
  RH_TRY(Transaction transaction, Transaction::begin(database_));
  for (const Extent& extent : stale) {
    RH_TRY_STATUS(database_.run("UPDATE segments SET punched = punched + ? WHERE id = ?",
                                static_cast<int64_t>(room_of(SegmentKind::kKv, extent.bytes)),
                                extent.segment));
    RH_TRY_STATUS(database_.run("DELETE FROM stale_extents WHERE segment = ? AND offset = ?", extent.segment,
                                static_cast<int64_t>(extent.offset)));
  }
  RH_TRY_STATUS(transaction.commit());
  return true;
}

Result<uint64_t> SegmentSet::kv_bytes_on_disk() {
  RH_TRY(const int64_t bytes,
         database_.number("SELECT coalesce(sum(bytes - punched), 0) FROM segments WHERE kind = ?",
                          number_of(SegmentKind::kKv)));
  return static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
}

Result<std::shared_ptr<const SegmentReader>> SegmentSet::reader(SegmentKind kind, int64_t segment) {
  if (const auto found = readers_.find(segment); found != readers_.end()) return found->second;
  if (readers_.size() >= kMostReaders) readers_.clear();
  RH_TRY(SegmentReader opened, SegmentReader::open(path_of(kind, segment), kind));
  return readers_[segment] = std::make_shared<const SegmentReader>(std::move(opened));
}

Status SegmentSet::read(SegmentKind kind, const Extent& extent, std::span<std::byte> bytes) {
  RH_TRY(const auto from, reader(kind, extent.segment));
  return from->read(extent, bytes);
}

Result<std::vector<std::byte>> SegmentSet::load(SegmentKind kind, const Extent& extent) {
  RH_TRY(const auto from, reader(kind, extent.segment));
  RH_TRY_STATUS(from->check(extent));
  std::vector<std::byte> bytes(extent.bytes);
  RH_TRY_STATUS(from->read(extent, bytes));
  return bytes;
}

Result<std::span<const std::byte>> SegmentSet::view(const Extent& extent) {
  const auto fits = [&](const MappedFile& map) {
    const size_t size = map.bytes().size();
    return extent.offset >= kSegmentHeaderBytes && extent.offset <= size &&
           extent.bytes <= size - extent.offset;
  };
  auto found = maps_.find(extent.segment);
  if (found == maps_.end() || !fits(found->second)) {
    const fs::path path = path_of(SegmentKind::kCodes, extent.segment);
    RH_TRY(const SegmentReader checked_header, SegmentReader::open(path, SegmentKind::kCodes));
    RH_TRY(MappedFile fresh, MappedFile::open(path));
    // The file grows; what was handed out before looks into the shorter mapping.
    if (found != maps_.end()) outgrown_maps_.push_back(std::move(found->second));
    found = maps_.insert_or_assign(extent.segment, std::move(fresh)).first;
  }
  if (!fits(found->second)) {
    return make_error(ErrorKind::kCorrupt, "{} at offset {}: a record of {} bytes does not fit the file",
                      path_of(SegmentKind::kCodes, extent.segment).string(), extent.offset, extent.bytes);
  }
  return found->second.bytes().subspan(extent.offset, extent.bytes);
}

void SegmentSet::release_views() {
  maps_.clear();
  outgrown_maps_.clear();
  readers_.clear();
}

}  // namespace rhapsode::store
