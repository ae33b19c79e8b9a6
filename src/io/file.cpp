#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

namespace rhapsode {
namespace {

constexpr size_t kMaxTransferBytes = size_t{1} << 30;  // one read or write call; the system stops near 2 GiB

template <typename Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

Error failed(const char* what, const std::filesystem::path& path) {
  return make_system_error(errno, std::string(what) + " " + path.string());
}

}  // namespace

Result<File> File::open_read(const std::filesystem::path& path) {
  const int descriptor =
      retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  if (descriptor < 0) return failed("cannot open", path);
  File file(descriptor, path);
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return failed("cannot examine", path);
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorKind::kInvalidArgument, "{} is not a regular file", path.string());
  }
  return file;
}

Result<File> File::open_write(const std::filesystem::path& path) {
  const int descriptor = retry([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); });
  if (descriptor < 0) return failed("cannot write", path);
  return File(descriptor, path);
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<uint64_t> File::size() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return failed("cannot examine", path_);
  return static_cast<uint64_t>(info.st_size);
}

Result<size_t> File::read_some(std::span<std::byte> bytes, uint64_t offset) const {
  const size_t wanted = std::min(bytes.size(), kMaxTransferBytes);
  const ssize_t count =
      retry([&] { return ::pread(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset)); });
  if (count < 0) return failed("cannot read", path_);
  return static_cast<size_t>(count);
}

Status File::read_at(std::span<std::byte> bytes, uint64_t offset) const {
  while (!bytes.empty()) {
    RH_TRY(const size_t count, read_some(bytes, offset));
    if (count == 0) {
      return make_error(ErrorKind::kCorrupt, "{} ends {} bytes too early", path_.string(), bytes.size());
    }
    bytes = bytes.subspan(count);
    offset += count;
  }
  return {};
}

Status File::write_at(std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const size_t wanted = std::min(bytes.size(), kMaxTransferBytes);
    const ssize_t count =
        retry([&] { return ::pwrite(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset)); });
    if (count < 0) return failed("cannot write", path_);
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

Status File::truncate(uint64_t bytes) {
  if (retry([&] { return ::ftruncate(descriptor_, static_cast<off_t>(bytes)); }) != 0) {
    return failed("cannot resize", path_);
  }
  return {};
}

Status File::sync() {
  if (retry([&] { return ::fsync(descriptor_); }) != 0) return failed("cannot make durable", path_);
  return {};
}

Status File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR) return failed("cannot finish", path_);
  return {};
}

Result<FileLock> FileLock::acquire(const std::filesystem::path& path, bool wait) {
  RH_TRY(File file, File::open_write(path));
  const int operation = wait ? LOCK_EX : LOCK_EX | LOCK_NB;
  if (retry([&] { return ::flock(file.descriptor(), operation); }) != 0) {
    if (errno == EWOULDBLOCK) {
      return make_error(ErrorKind::kCancelled, "{} is held by another process", path.string());
    }
    return failed("cannot lock", path);
  }
  return FileLock(std::move(file));
}

Status make_directories(const std::filesystem::path& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) return make_system_error(code.value(), "cannot make the folder " + path.string());
  return {};
}

Status sync_directory(const std::filesystem::path& path) {
  const int descriptor = retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) return failed("cannot open the folder", path);
  const int result = retry([&] { return ::fsync(descriptor); });
  const int code = errno;
  ::close(descriptor);
  // Some file systems cannot sync folders and say so; their renames are as durable as they get.
  if (result != 0 && code != EINVAL && code != ENOTSUP) {
    return make_system_error(code, "cannot make durable the folder " + path.string());
  }
  return {};
}

Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return make_system_error(errno, "cannot rename " + from.string() + " to " + to.string());
  }
  return sync_directory(to.has_parent_path() ? to.parent_path() : std::filesystem::path("."));
}

Status replace_file(const std::filesystem::path& path, std::string_view content) {
  // Threads that write the same file do not write into each other's copy.
  static std::atomic<uint64_t> copies{0};
  std::filesystem::path fresh = path;
  fresh += ".new-" + std::to_string(::getpid()) + "-" + std::to_string(++copies);
  const auto write = [&]() -> Status {
    RH_TRY(File file, File::open_write(fresh));
    RH_TRY_STATUS(file.truncate(0));
    RH_TRY_STATUS(file.write_at(std::as_bytes(std::span(content)), 0));
    RH_TRY_STATUS(file.sync());
    RH_TRY_STATUS(file.close());
    return rename_durably(fresh, path);
  };
  Status status = write();
  if (!status.ok()) ::unlink(fresh.c_str());
  return status;
}

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t limit) {
  RH_TRY(File file, File::open_read(path));
  RH_TRY(const uint64_t size, file.size());
  if (size > limit) {
    return make_error(ErrorKind::kTooLarge, "{} has {} bytes, more than the {} allowed here", path.string(),
                      size, limit);
  }
  std::string content(size, '\0');
  RH_TRY_STATUS(file.read_at(std::as_writable_bytes(std::span(content)), 0));
  return content;
}

Result<uint64_t> free_space(const std::filesystem::path& path) {
  std::filesystem::path existing = std::filesystem::absolute(path);
  struct statvfs info {};
  while (::statvfs(existing.c_str(), &info) != 0) {
    if (errno != ENOENT || !existing.has_relative_path()) return failed("cannot examine", existing);
    existing = existing.parent_path();
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace rhapsode
