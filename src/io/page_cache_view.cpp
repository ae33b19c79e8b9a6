#include "io/page_cache_view.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace rhapsode {

namespace {

// Of a file of others that the caller may not write, Linux answers that all of it is there.
bool system_tells(const File& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) == 0 && status.st_uid == ::geteuid()) return true;
  return ::faccessat(AT_FDCWD, file.path().c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace

PageCacheView::PageCacheView(const File& file) {
  const auto size = file.size();
  if (!size.ok() || *size == 0 || !system_tells(file)) return;
  void* mapped = ::mmap(nullptr, *size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapped == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(mapped);
  bytes_ = *size;
}

PageCacheView::~PageCacheView() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

bool PageCacheView::holds(uint64_t offset, uint64_t bytes) const {
  if (data_ == nullptr || bytes == 0 || offset > bytes_ || bytes > bytes_ - offset) return false;
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t first = offset / page_bytes;
  const uint64_t last = (offset + bytes - 1) / page_bytes;
  for (uint64_t i = 0; i < kAsked; ++i) {
    const uint64_t page = first + (last - first) * i / (kAsked - 1);
    unsigned char there = 0;
    if (::mincore(data_ + page * page_bytes, page_bytes, &there) != 0 || (there & 1) == 0) return false;
  }
  return true;
}

}  // namespace rhapsode
