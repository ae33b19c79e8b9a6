// Whole content of a gzip file (or of one that is not compressed).
//
// Cost: one pass; memory is the content's. Errors: kTooLarge above `limit` bytes of content, kCorrupt when
// the file is damaged, kNotFound, kPermission or kIo by the system's code. Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace rhapsode {

Result<std::string> read_gzip_file(const std::filesystem::path& path, uint64_t limit = 256u << 20);

}  // namespace rhapsode
