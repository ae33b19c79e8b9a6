// Many reads of one file at once: with io_uring where build and system have it, else one pread after another.
//
// Ownership: a reader owns its descriptor. Threads: read() from any number; each call takes a ring of its own
// (kept for the next call). Errors: those of File::read_at, and no bytes are promised then. Cost: one system
// call for up to kRingReads reads with io_uring, one each without.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"

namespace rhapsode {

struct ReadRequest {
  uint64_t offset = 0;
  std::span<std::byte> bytes;  // filled
};

enum class BatchMethod : uint8_t { kBest, kUring, kPread };

class BatchReader {
 public:
  static constexpr unsigned kRingReads = 256;

  // kBest: io_uring if it works here. kUnsupported when it was asked for and does not.
  static Result<std::unique_ptr<BatchReader>> open(const std::filesystem::path& path,
                                                   BatchMethod method = BatchMethod::kBest);
  virtual ~BatchReader() = default;
  virtual Status read(std::span<const ReadRequest> requests) const = 0;
  virtual BatchMethod method() const = 0;
  virtual const std::filesystem::path& path() const = 0;
};

}  // namespace rhapsode
