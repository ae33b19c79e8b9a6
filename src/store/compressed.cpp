#include "store/compressed.h"

#include <zstd.h>

namespace rhapsode::store {
namespace {
constexpr int kLevel = 3;
constexpr uint64_t kMostRatio = (128 << 10) / 4;
}  // namespace

Result<std::vector<std::byte>> compress(std::string_view bytes) {
  std::vector<std::byte> frame(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size) != 0) {
    return make_error(ErrorKind::kNoSpace, "cannot compress {} bytes: {}", bytes.size(),
                      ZSTD_getErrorName(size));
  }
  frame.resize(size);
  return frame;
}

Result<std::string> decompress(std::span<const std::byte> frame, uint64_t most_bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  // No honest frame says more than 128 KiB for each of its blocks of at least 4 bytes.
  const bool honest = size / kMostRatio <= frame.size();
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > most_bytes || !honest) {
    return make_error(ErrorKind::kCorrupt, "{} bytes are no zstd frame of at most {} bytes", frame.size(),
                      most_bytes);
  }
  std::string bytes(size, '\0');
  const size_t got = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(got) != 0 || got != size) {
    return make_error(ErrorKind::kCorrupt, "a zstd frame of {} bytes is damaged", frame.size());
  }
  return bytes;
}

}  // namespace rhapsode::store
