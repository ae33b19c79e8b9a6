// Documents that are zip files with named parts (DOCX, EPUB): what they are, and their parts in memory.
//
// Limits hold against zip bombs: a part may expand to 32 MiB, all parts that are read to 128 MiB together.
// Ownership: the package reads the caller's bytes, which must outlive it. Threads: one. Cost of a part: one
// pass over the package's directory and the part's decompression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "io/archive_reader.h"

namespace rhapsode::text {

enum class PackageKind : uint8_t { kNone, kDocx, kEpub, kOther };  // kOther: spreadsheets, OpenDocument, ...

Result<PackageKind> package_kind(std::string_view bytes, const std::string& name);
// True for anything but plain archives. The first goes through the archive's list, which must be read anew.
Result<bool> is_packaged_document(ArchiveReader& archive);
Result<bool> is_packaged_document(std::string_view bytes, const std::string& name);

class Package {
 public:
  Package(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  // kNotFound: no such part; kTooLarge: over the limits; kCorrupt.
  Result<std::string> part(std::string_view path);
  // All parts that `wanted` accepts, in the order they lie in the file.
  Status each(const std::function<bool(std::string_view)>& wanted,
              const std::function<void(std::string path, std::string bytes)>& on_part);

 private:
  Result<std::string> read_part(ArchiveReader& archive, const std::string& path);

  std::string_view bytes_;
  std::string name_;
  uint64_t expanded_bytes_ = 0;
};

}  // namespace rhapsode::text
