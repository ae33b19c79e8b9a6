#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "io/archive_reader.h"
#include "text/dates.h"
#include "text/file_name.h"
#include "text/folder_walk.h"
#include "text/packaged_document.h"
#include "text/reader.h"
#include "text/source_gate.h"

namespace rhapsode::text {
namespace {

constexpr size_t kHeadBytes = 512;
constexpr uint64_t kMostMembers = 1'000'000;
constexpr uint64_t kUsualExpansion = 200;  // no text shrinks to less than a 200th

class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

Result<size_t> read_some(int descriptor, std::span<std::byte> bytes) {
  while (true) {
    const ssize_t count = ::read(descriptor, bytes.data(), bytes.size());
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) return Error{ErrorKind::kIo, unreadable_reason(errno)};
  }
}

bool is_hidden(std::string_view member) {
  return member.starts_with('.') || member.find("/.") != std::string_view::npos;
}

// The reading half of a scan: bytes of files, members and standard input, with reasons for what is skipped.
class SourceReading {
 public:
  SourceReading(const ScanOptions& options, const ScanCallbacks& callbacks)
      : options_(options), callbacks_(callbacks) {}

  void read_file(const FoundFile& file);
  void read_stdin();
  bool stopped() const { return stopped_; }

 private:
  void read_open(const std::string& name, int descriptor, const struct stat& info);
  void read_whole_archive(const std::string& name, const ByteSource& source, std::string head);
  void read_members(const std::string& name, ArchiveReader& archive, uint64_t archive_bytes);
  void read_member(const std::string& name, const ArchiveMember& member, ArchiveReader& archive);
  void read_zip_member(const std::string& name, const ByteSource& source, GateOptions gate,
                       std::string modified);
  void deliver(SourceBytes source);
  void skip(const std::string& name, std::string reason) {
    if (callbacks_.on_skip) callbacks_.on_skip({name, std::move(reason)});
  }
  void gate_and_deliver(const std::string& name, const ByteSource& source, GateOptions gate,
                        std::string modified);

  const ScanOptions& options_;
  const ScanCallbacks& callbacks_;
  bool stopped_ = false;
};

void SourceReading::deliver(SourceBytes source) {
  if (callbacks_.on_source && !callbacks_.on_source(std::move(source))) stopped_ = true;
}

void SourceReading::gate_and_deliver(const std::string& name, const ByteSource& source, GateOptions gate,
                                     std::string modified) {
  auto gated = read_gated(name, source, std::move(gate));
  if (!gated.ok()) return skip(name, gated.error().message);
  if (!gated->skip_reason.empty()) return skip(name, std::move(gated->skip_reason));
  deliver({name, std::move(gated->bytes), std::move(modified)});
}

// Up to kHeadBytes, fewer only at the end of the source.
Result<std::string> read_head(const ByteSource& source) {
  std::string head(kHeadBytes, '\0');
  size_t have = 0;
  while (have < head.size()) {
    RH_TRY(const size_t count, source(std::as_writable_bytes(std::span(head)).subspan(have)));
    if (count == 0) break;
    have += count;
  }
  head.resize(have);
  return head;
}

void SourceReading::read_file(const FoundFile& file) {
  // A link at the end was resolved by the walk: one that stands there now was put in its place since.
  const OpenFile open(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
  if (open.get() < 0) return skip(file.name, unreadable_reason(errno));
  struct stat info {};
  if (::fstat(open.get(), &info) != 0) return skip(file.name, unreadable_reason(errno));
  if (!S_ISREG(info.st_mode)) return skip(file.name, "no regular file any more");
  read_open(file.name, open.get(), info);
}

void SourceReading::read_open(const std::string& name, int descriptor, const struct stat& info) {
  const ByteSource source = [descriptor](std::span<std::byte> bytes) { return read_some(descriptor, bytes); };
  auto head = read_head(source);
  if (!head.ok()) return skip(name, head.error().message);
  const auto bytes = static_cast<uint64_t>(std::max<off_t>(0, info.st_size));
  if (is_archive(*head)) {
    auto archive = ArchiveReader::open(descriptor, name);
    if (!archive.ok()) return skip(name, archive.error().message);
    auto packaged = is_packaged_document(*archive);
    if (!packaged.ok()) return skip(name, packaged.error().message);
    if (!*packaged) {
      archive = ArchiveReader::open(descriptor, name);
      if (!archive.ok()) return skip(name, archive.error().message);
      return read_members(name, *archive, bytes);
    }
    if (::lseek(descriptor, static_cast<off_t>(head->size()), SEEK_SET) < 0) {
      return skip(name, unreadable_reason(errno));
    }
  }
  gate_and_deliver(name, source,
                   {.most_bytes = options_.most_source_bytes, .known_bytes = bytes, .head = std::move(*head)},
                   iso_date_of_seconds(info.st_mtime));
}

void SourceReading::read_stdin() {
  const std::string name = "-";
  const ByteSource source = [](std::span<std::byte> bytes) { return read_some(STDIN_FILENO, bytes); };
  auto head = read_head(source);
  if (!head.ok()) return skip(name, head.error().message);
  if (is_archive(*head)) return read_whole_archive(name, source, std::move(*head));
  gate_and_deliver(name, source,
                   {.most_bytes = options_.most_source_bytes, .known_bytes = {}, .head = std::move(*head)},
                   {});
}

// A pipe cannot seek: what comes through one is held in memory.
void SourceReading::read_whole_archive(const std::string& name, const ByteSource& source, std::string head) {
  auto gated = read_gated(name, source,
                          {.most_bytes = options_.most_source_bytes,
                           .known_bytes = {},
                           .head = std::move(head),
                           .any_content = true});
  if (!gated.ok()) return skip(name, gated.error().message);
  if (!gated->skip_reason.empty()) return skip(name, std::move(gated->skip_reason));
  const auto bytes = std::as_bytes(std::span(gated->bytes));
  auto packaged = is_packaged_document(gated->bytes, name);
  if (!packaged.ok()) return skip(name, packaged.error().message);
  if (*packaged) return deliver({name, std::move(gated->bytes), {}});
  auto archive = ArchiveReader::open(bytes, name);
  if (!archive.ok()) return skip(name, archive.error().message);
  read_members(name, *archive, bytes.size());
}

void SourceReading::read_members(const std::string& name, ArchiveReader& archive, uint64_t archive_bytes) {
  const uint64_t most = std::max(options_.most_archive_bytes, archive_bytes * kUsualExpansion);
  for (uint64_t count = 0; !stopped_; ++count) {
    auto member = archive.next();
    if (!member.ok()) return skip(name, member.error().message);
    if (!*member) return;
    if (count == kMostMembers) return skip(name, fmt::format("its members after the first {}", kMostMembers));
    const ArchiveMember& found = **member;
    std::string inner = normal_member(found.name);
    if (found.is_single) {  // "notes.txt.gz" holds "notes.txt"
      const std::string_view file = std::string_view(name).substr(name.rfind('/') + 1);
      inner = file.substr(0, file.rfind('.'));
    }
    if (inner.empty()) inner = fmt::format("member {}", count + 1);
    const std::string full = name + '/' + shown_name(inner);
    if (!found.is_file) {
      if (!found.name.ends_with('/') && !found.is_folder) skip(full, "no regular file");
    } else if (is_hidden(inner) && !options_.hidden) {
      skip(full, "hidden");
    } else {
      read_member(full, found, archive);
    }
    if (found.is_single) return;
    if (archive.expanded_bytes() > most) {
      return skip(name, fmt::format("the rest of it: it expands to more than {} MiB", most >> 20));
    }
  }
}

void SourceReading::read_member(const std::string& name, const ArchiveMember& member,
                                ArchiveReader& archive) {
  const ByteSource source = [&archive](std::span<std::byte> bytes) { return archive.read(bytes); };
  auto head = read_head(source);
  if (!head.ok()) return skip(name, head.error().message);
  std::string modified = member.modified_s ? iso_date_of_seconds(*member.modified_s) : std::string();
  const bool zip = head->starts_with("PK");
  if (!zip && is_archive(*head)) return skip(name, "an archive inside an archive");
  GateOptions gate{.most_bytes = options_.most_source_bytes,
                   .known_bytes = member.bytes,
                   .head = std::move(*head),
                   .any_content = zip};
  if (zip) return read_zip_member(name, source, std::move(gate), std::move(modified));
  gate_and_deliver(name, source, std::move(gate), std::move(modified));
}

// A DOCX or EPUB is a document; any other zip is an archive inside an archive.
void SourceReading::read_zip_member(const std::string& name, const ByteSource& source, GateOptions gate,
                                    std::string modified) {
  auto gated = read_gated(name, source, std::move(gate));
  if (!gated.ok()) return skip(name, gated.error().message);
  if (!gated->skip_reason.empty()) return skip(name, std::move(gated->skip_reason));
  const auto packaged = is_packaged_document(gated->bytes, name);
  if (!packaged.ok()) return skip(name, packaged.error().message);
  if (!*packaged) return skip(name, "an archive inside an archive");
  deliver({name, std::move(gated->bytes), std::move(modified)});
}

Status check_paths(std::span<const std::string> paths) {
  for (const std::string& path : paths) {
    if (path == "-") continue;
    if (path.empty() || path.find('\0') != std::string::npos) {
      return make_error(ErrorKind::kInvalidArgument, "'{}' names no file or folder", shown_name(path));
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
      return make_error(ErrorKind::kNotFound, "{} does not exist: nothing was read", shown_name(path));
    }
  }
  return {};
}

}  // namespace

Status scan_sources(std::span<const std::string> paths, const ScanOptions& options,
                    const ScanCallbacks& callbacks) {
  RH_TRY_STATUS(check_paths(paths));
  std::vector<FoundFile> found;
  const auto on_skip = [&](Skip skip) {
    if (callbacks.on_skip) callbacks.on_skip(std::move(skip));
  };
  FolderWalk walk(
      options, [&](FoundFile file) { found.push_back(std::move(file)); }, on_skip);
  bool stdin_named = false;
  for (const std::string& path : paths) {
    if (path != "-") {
      walk.walk(path);
    } else if (!std::exchange(stdin_named, true)) {
      found.push_back({"-", {}, 0});
    }
  }
  if (callbacks.on_found) {
    for (const FoundFile& file : found) callbacks.on_found(file.name, file.bytes);
  }
  SourceReading reading(options, callbacks);
  for (const FoundFile& file : found) {
    if (reading.stopped()) break;
    if (file.path.empty()) {
      reading.read_stdin();
    } else {
      reading.read_file(file);
    }
  }
  return {};
}

}  // namespace rhapsode::text
