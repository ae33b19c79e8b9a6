// Files as the library uses them: whole reads and writes, durable replacement, locks.
//
// Ownership: a File owns its descriptor and is move-only. Threads: pread/pwrite from any number of threads,
// the rest from one. Errors: one sentence with the path; kNotFound, kPermission, kNoSpace or kIo by the
// system's code. Durability: "write, sync, rename, sync the folder" (replace_file) is the only way a finished
// file gets its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode {

class File {
 public:
  File() = default;
  // Regular files only, so that a pipe cannot block us and a device cannot pose as a model.
  static Result<File> open_read(const std::filesystem::path& path);
  // Creates the file (mode 0644, umask applies) or keeps what is there.
  static Result<File> open_write(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }

  Result<uint64_t> size() const;
  // Fills the span or fails: a short file is kCorrupt.
  Status read_at(std::span<std::byte> bytes, uint64_t offset) const;
  // Up to bytes.size() bytes; 0 at the end of the file.
  Result<size_t> read_some(std::span<std::byte> bytes, uint64_t offset) const;
  Status write_at(std::span<const std::byte> bytes, uint64_t offset);
  Status truncate(uint64_t bytes);
  Status sync();
  // Closes and reports what the system only says at closing (quota, network file systems).
  Status close();

 private:
  File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::filesystem::path path_;
};

// One process at a time: an advisory lock on a file of its own (created, never removed), freed by the
// destructor or by the end of the process, however it ends.
class FileLock {
 public:
  FileLock() = default;
  // Waits until the lock is free; wait = false gives kCancelled at once when another process holds it.
  static Result<FileLock> acquire(const std::filesystem::path& path, bool wait);

 private:
  explicit FileLock(File file) : file_(std::move(file)) {}
  File file_;
};

// Makes the folder and its parents.
Status make_directories(const std::filesystem::path& path);
Status sync_directory(const std::filesystem::path& path);
// Moves a finished, synced file to its name (same file system) and makes the name durable.
Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);
// Writes a small file so that readers see the old or the new content, never a part.
Status replace_file(const std::filesystem::path& path, std::string_view content);
// Whole content of a small file; more than `limit` bytes is kTooLarge.
Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t limit = 64u << 20);
// Bytes that an ordinary user may still write to the file system of `path` (or its nearest existing parent).
Result<uint64_t> free_space(const std::filesystem::path& path);

}  // namespace rhapsode
