// What the system keeps in memory of a file: which parts are read without the disk.
//
// Ownership: maps the file's addresses, reads nothing. Threads: const use by any number. Errors: none; where
// the system does not say (of files of others that the caller may not write), nothing is kept. Cost: a
// mapping, then a system call for each of a few pages asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "io/file.h"

namespace rhapsode {

class PageCacheView {
 public:
  explicit PageCacheView(const File& file);
  PageCacheView(PageCacheView&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  PageCacheView& operator=(PageCacheView&&) = delete;
  PageCacheView(const PageCacheView&) = delete;
  PageCacheView& operator=(const PageCacheView&) = delete;
  ~PageCacheView();

  // Whether that part seems to be there: as many pages of it as kAsked are looked at.
  bool holds(uint64_t offset, uint64_t bytes) const;
  static constexpr uint64_t kAsked = 4;

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace rhapsode
