#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/file.h"

namespace rhapsode {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  RH_TRY(File file, File::open_read(path));
  RH_TRY(const uint64_t size, file.size());
  MappedFile mapped;
  if (size == 0) return mapped;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) return make_system_error(errno, "cannot map " + path.string());
  mapped.data_ = static_cast<std::byte*>(address);
  mapped.size_ = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::populate() const {
  if (data_ == nullptr) return;
#ifdef MADV_HUGEPAGE
  ::madvise(data_, size_, MADV_HUGEPAGE);
#endif
#ifdef MADV_POPULATE_READ
  if (::madvise(data_, size_, MADV_POPULATE_READ) == 0) return;
#endif
  // Older kernels: ask for read-ahead, then touch one byte of each page.
  ::madvise(data_, size_, MADV_WILLNEED);
  const auto step = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  volatile std::byte sink{};
  for (size_t i = 0; i < size_; i += step) sink = data_[i];
  static_cast<void>(sink);
}

}  // namespace rhapsode
