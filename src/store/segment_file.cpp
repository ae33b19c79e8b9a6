#include "store/segment_file.h"

#include <sys/random.h>
#define XXH_STATIC_LINKING_ONLY  // for a hash state that needs no allocation
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace rhapsode::store {
namespace {

static_assert(std::endian::native == std::endian::little, "segment files are little-endian");

constexpr std::string_view kMagic = "RHAPSEG\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kIdBytes = 16;
constexpr size_t kChecksumOffset = kSegmentHeaderBytes - sizeof(uint64_t);
constexpr uint64_t kKvAlignment = 4096;
constexpr uint64_t kCodesAlignment = 64;

using HeaderPage = std::array<std::byte, kSegmentHeaderBytes>;

// The beginning of the header page as it lies in the file; zeros and a checksum follow.
struct HeaderFields {
  char magic[8];
  uint32_t version;
  uint32_t kind;
  std::byte id[kIdBytes];
};
static_assert(sizeof(HeaderFields) == 32);

uint64_t alignment_of(SegmentKind kind) {
  return kind == SegmentKind::kKv ? kKvAlignment : kCodesAlignment;
}

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

Result<HeaderPage> make_header(SegmentKind kind) {
  HeaderFields fields{};
  std::memcpy(fields.magic, kMagic.data(), kMagic.size());
  fields.version = kVersion;
  fields.kind = static_cast<uint32_t>(kind);
  if (::getrandom(fields.id, kIdBytes, 0) != static_cast<ssize_t>(kIdBytes)) {
    return make_system_error(errno, "cannot draw the random id of a segment file");
  }
  HeaderPage page{};
  std::memcpy(page.data(), &fields, sizeof(fields));
  const uint64_t checksum = XXH3_64bits(page.data(), kChecksumOffset);
  std::memcpy(page.data() + kChecksumOffset, &checksum, sizeof(checksum));
  return page;
}

Status check_header(const File& file, SegmentKind kind) {
  const std::string path = file.path().string();
  RH_TRY(const uint64_t size, file.size());
  if (size < kSegmentHeaderBytes) {
    return make_error(ErrorKind::kCorrupt, "{} ends at offset {}, inside its header", path, size);
  }
  HeaderPage page;
  RH_TRY_STATUS(file.read_at(page, 0));
  HeaderFields fields;
  uint64_t checksum = 0;
  std::memcpy(&fields, page.data(), sizeof(fields));
  std::memcpy(&checksum, page.data() + kChecksumOffset, sizeof(checksum));
  if (std::string_view(fields.magic, sizeof(fields.magic)) != kMagic) {
    return make_error(ErrorKind::kCorrupt, "{} at offset 0: this is not a segment file", path);
  }
  if (fields.version != kVersion) {
    return make_error(ErrorKind::kCorrupt, "{} at offset 8: format version {}, this build reads version {}",
                      path, fields.version, kVersion);
  }
  if (checksum != XXH3_64bits(page.data(), kChecksumOffset)) {
    return make_error(ErrorKind::kCorrupt, "{} at offset 0: the header does not have its checksum", path);
  }
  if (fields.kind != static_cast<uint32_t>(kind)) {
    return make_error(ErrorKind::kCorrupt, "{} at offset 12: a segment of kind {}, expected {}", path,
                      fields.kind, static_cast<uint32_t>(kind));
  }
  return {};
}

uint64_t checksum_of_parts(std::span<const std::span<const std::byte>> parts) {
  if (parts.size() == 1) return record_checksum(parts[0]);
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (const auto part : parts) XXH3_64bits_update(&state, part.data(), part.size());
  return XXH3_64bits_digest(&state);
}

}  // namespace

uint64_t record_checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

SegmentWriter::SegmentWriter(File file, SegmentKind kind, uint64_t end)
    : file_(std::move(file)), end_(end), alignment_(alignment_of(kind)) {}

Result<SegmentWriter> SegmentWriter::create(const std::filesystem::path& path, SegmentKind kind) {
  if (const auto existing = File::open_read(path); existing.ok()) {
    RH_TRY(const uint64_t size, existing->size());
    if (size > kSegmentHeaderBytes) {
      return make_error(ErrorKind::kInvalidArgument,
                        "{} holds records already: remove it or choose another name", path.string());
    }
  } else if (existing.error().kind != ErrorKind::kNotFound) {
    return existing.error();
  }
  RH_TRY(const HeaderPage header, make_header(kind));
  RH_TRY_STATUS(replace_file(path, {reinterpret_cast<const char*>(header.data()), header.size()}));
  return open(path, kind, kSegmentHeaderBytes);
}

Result<SegmentWriter> SegmentWriter::open(const std::filesystem::path& path, SegmentKind kind,
                                          uint64_t committed_bytes) {
  // Reading comes first: opening to write would make a file that is missing.
  RH_TRY(const File reading, File::open_read(path));
  RH_TRY_STATUS(check_header(reading, kind));
  RH_TRY(const uint64_t size, reading.size());
  if (size < committed_bytes) {
    return make_error(ErrorKind::kCorrupt, "{} ends at offset {}, but {} bytes of it were committed",
                      path.string(), size, committed_bytes);
  }
  if (committed_bytes < kSegmentHeaderBytes || committed_bytes % alignment_of(kind) != 0) {
    return make_error(ErrorKind::kCorrupt, "{}: no record ends at the committed length {}", path.string(),
                      committed_bytes);
  }
  RH_TRY(File file, File::open_write(path));
  if (size > committed_bytes) RH_TRY_STATUS(file.truncate(committed_bytes));
  return SegmentWriter(std::move(file), kind, committed_bytes);
}

Status SegmentWriter::check_usable() const {
  if (!sync_failed_) return {};
  return make_error(ErrorKind::kIo, "{} could not be made durable before: open it again", path().string());
}

Status SegmentWriter::write_record(std::span<const std::span<const std::byte>> parts) {
  static constexpr std::array<std::byte, kKvAlignment> kZeros{};
  uint64_t offset = end_;
  for (const auto part : parts) {
    RH_TRY_STATUS(file_.write_at(part, offset));
    offset += part.size();
  }
  const uint64_t padding = round_up(offset, alignment_) - offset;
  return file_.write_at(std::span(kZeros).first(padding), offset);
}

Result<Extent> SegmentWriter::append(std::span<const std::span<const std::byte>> parts) {
  RH_TRY_STATUS(check_usable());
  Extent extent;
  extent.offset = end_;
  for (const auto part : parts) extent.bytes += part.size();
  if (extent.bytes == 0) {
    return make_error(ErrorKind::kInvalidArgument, "{}: a record must hold something", path().string());
  }
  extent.checksum = checksum_of_parts(parts);
  const Status written = write_record(parts);
  if (!written.ok()) {
    // Best effort: should it fail as well, the next append writes over the torn record and open() cuts it.
    static_cast<void>(file_.truncate(end_).ok());
    return written.error();
  }
  end_ = round_up(end_ + extent.bytes, alignment_);
  return extent;
}

Status SegmentWriter::sync() {
  RH_TRY_STATUS(check_usable());
  Status status = file_.sync();
  sync_failed_ = !status.ok();
  return status;
}

RecordStream::RecordStream() : sum_(XXH3_createState()) {}
RecordStream::~RecordStream() {
  XXH3_freeState(sum_);
}

Result<std::span<const std::byte>> RecordStream::next(size_t bytes) {
  if (bytes > extent_.bytes - read_) {
    return make_error(ErrorKind::kCorrupt, "{} at offset {}: a record of {} bytes ends too early",
                      file_->path().string(), extent_.offset, extent_.bytes);
  }
  if (room_bytes_ < bytes) {
    room_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    room_bytes_ = bytes;
  }
  const std::span<std::byte> piece(room_.get(), bytes);
  RH_TRY_STATUS(file_->read_at(piece, extent_.offset + read_));
  XXH3_64bits_update(sum_, piece.data(), piece.size());
  read_ += bytes;
  return std::span<const std::byte>(piece);
}

Status RecordStream::finish() {
  constexpr uint64_t kPiece = 256 << 10;
  while (read_ < extent_.bytes) {
    const auto piece = next(std::min(kPiece, extent_.bytes - read_));
    if (!piece.ok()) return piece.error();
  }
  if (XXH3_64bits_digest(sum_) != extent_.checksum) {
    return make_error(ErrorKind::kCorrupt, "{} at offset {}: {} bytes do not have their checksum",
                      file_->path().string(), extent_.offset, extent_.bytes);
  }
  return {};
}

Status SegmentReader::begin(const Extent& extent, RecordStream& stream) const {
  RH_TRY_STATUS(check(extent));
  if (stream.sum_ == nullptr || XXH3_64bits_reset(stream.sum_) != XXH_OK) {
    return make_error(ErrorKind::kNoSpace, "no memory to check {} with", path().string());
  }
  stream.file_ = &file_;
  stream.extent_ = extent;
  stream.read_ = 0;
  return {};
}

Result<SegmentReader> SegmentReader::open(const std::filesystem::path& path, SegmentKind kind) {
  RH_TRY(File file, File::open_read(path));
  RH_TRY_STATUS(check_header(file, kind));
  return SegmentReader(std::move(file));
}

Status SegmentReader::check(const Extent& extent) const {
  RH_TRY(const uint64_t size, file_.size());
  if (extent.offset < kSegmentHeaderBytes || extent.offset > size || extent.bytes > size - extent.offset) {
    return make_error(ErrorKind::kCorrupt, "{} at offset {}: a record of {} bytes does not fit a file of {}",
                      path().string(), extent.offset, extent.bytes, size);
  }
  return {};
}

Status SegmentReader::read(const Extent& extent, std::span<std::byte> bytes) const {
  if (bytes.size() != extent.bytes) {
    return make_error(ErrorKind::kInvalidArgument, "{} at offset {}: {} bytes of room for a record of {}",
                      path().string(), extent.offset, bytes.size(), extent.bytes);
  }
  RH_TRY_STATUS(check(extent));
  RH_TRY_STATUS(file_.read_at(bytes, extent.offset));
  if (record_checksum(bytes) != extent.checksum) {
    return make_error(ErrorKind::kCorrupt, "{} at offset {}: {} bytes do not have their checksum",
                      path().string(), extent.offset, extent.bytes);
  }
  return {};
}

}  // namespace rhapsode::store
