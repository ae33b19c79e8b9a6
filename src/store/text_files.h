// The texts of a memory: zstd files texts/ab/abcdef....zst, named by the SHA-256 of the text inside.
//
// Format: docs/formats/texts.md. Durability: put() returns when bytes and name are durable; equal texts are
// one file. get() checks the text against its name. Errors: kCorrupt with the file, kNotFound, kNoSpace.
// Threads: put() and get() from any, in one process at a time for put(); the rest by one writer. Cost: one
// small file and two or three syncs a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode::store {

struct StoredText {
  std::string sha256;
  uint64_t stored_bytes = 0;  // of the file
};

class TextFiles {
 public:
  explicit TextFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Result<StoredText> put(std::string_view text);
  // `bytes` is the length the catalog knows; another one is kCorrupt.
  Result<std::string> get(const std::string& sha256, uint64_t bytes) const;
  // Nothing there is no error.
  Status remove(const std::string& sha256);
  // Removes left-overs: temporary files and texts for which `wanted` is false. Unknown files stay.
  Status sweep(const std::function<Result<bool>(const std::string& sha256)>& wanted);

 private:
  std::filesystem::path path_of(const std::string& sha256) const;
  Status make_folder(const std::filesystem::path& folder);

  std::filesystem::path folder_;
  std::mutex making_folders_;
};

// Removes the file and makes that durable; a missing file is no error.
Status remove_durably(const std::filesystem::path& path);

// True for names that replace_file() leaves behind when its process is killed.
bool is_temporary_name(std::string_view name);

}  // namespace rhapsode::store
