// zstd on whole strings, with a bound on what a hostile input may become.
//
// Errors: kCorrupt when the input is no zstd frame that states its size, or the size is above `most_bytes`;
// kNoSpace without memory. Threads: any. Cost: about 300 MB/s to compress, 1 GB/s back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rhapsode::store {

Result<std::vector<std::byte>> compress(std::string_view bytes);
Result<std::string> decompress(std::span<const std::byte> frame, uint64_t most_bytes);

}  // namespace rhapsode::store
