// A file mapped read-only into memory.
//
// Ownership: move-only; bytes() lives as long as the object. Threads: const use by any number.
// Cost: open() is one system call per step and reads nothing; pages come in on first touch, or at once by
// populate(). Errors: kNotFound, kPermission, kIo. A file that another program cuts short while it is mapped
// ends the process with SIGBUS when the lost part is touched (the system's rule); files that Rhapsode writes
// are only ever replaced whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace rhapsode {

class MappedFile {
 public:
  MappedFile() = default;
  // Regular files only (no devices, pipes, folders). An empty file maps to no bytes.
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Reads the whole file into the page cache and maps it, so that first use does not stall; asks for large
  // pages where the system has them for files. Advice, not a promise: it cannot fail.
  void populate() const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rhapsode
