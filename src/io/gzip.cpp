#include "io/gzip.h"

#include <archive.h>
#include <archive_entry.h>

#include <array>
#include <memory>

#include "io/file.h"

namespace rhapsode {
namespace {

constexpr size_t kBlockBytes = 64 << 10;

struct FreeArchive {
  void operator()(struct archive* handle) const { archive_read_free(handle); }
};

Error damaged(const std::filesystem::path& path, struct archive* handle) {
  const char* reason = archive_error_string(handle);
  return make_error(ErrorKind::kCorrupt, "{} cannot be unpacked: {}", path.string(),
                    reason ? reason : "it is damaged");
}

}  // namespace

Result<std::string> read_gzip_file(const std::filesystem::path& path, uint64_t limit) {
  RH_TRY(const File file, File::open_read(path));
  const std::unique_ptr<struct archive, FreeArchive> handle(archive_read_new());
  if (!handle) return make_error(ErrorKind::kNoSpace, "no memory to unpack {}", path.string());
  archive_read_support_filter_gzip(handle.get());
  archive_read_support_format_raw(handle.get());
  archive_read_support_format_empty(handle.get());
  if (archive_read_open_fd(handle.get(), file.descriptor(), kBlockBytes) != ARCHIVE_OK) {
    return damaged(path, handle.get());
  }
  struct archive_entry* entry = nullptr;
  const int header = archive_read_next_header(handle.get(), &entry);
  std::string content;
  if (header == ARCHIVE_EOF) return content;
  if (header != ARCHIVE_OK) return damaged(path, handle.get());
  std::array<char, kBlockBytes> block;
  while (true) {
    const la_ssize_t bytes = archive_read_data(handle.get(), block.data(), block.size());
    if (bytes < 0) return damaged(path, handle.get());
    if (bytes == 0) return content;
    if (content.size() + static_cast<size_t>(bytes) > limit) {
      return make_error(ErrorKind::kTooLarge, "{} unpacks to more than {} bytes", path.string(), limit);
    }
    content.append(block.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace rhapsode
