// One file that holds a whole memory folder: for moving and keeping it.
//
// A tar file: a snapshot of the catalog, the texts and the segments, and at its end MANIFEST.json (format,
// files with sizes and SHA-256). Export reads a consistent state beside a writer. Import writes to a
// temporary folder, checks everything, and renames it into place: all or nothing. Format:
// docs/formats/archive.md. Errors: kCorrupt for a damaged or foreign file; kInvalidArgument when the target
// holds something. Threads: any. Cost: one pass over the bytes, twice hashed.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace rhapsode::store {

Status export_memory(const std::filesystem::path& folder, const std::filesystem::path& file);
Status import_memory(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace rhapsode::store
