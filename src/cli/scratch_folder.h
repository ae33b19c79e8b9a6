// A folder below the system's temporary one that goes away with its object. Threads: one.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace rhapsode::cli {

class ScratchFolder {
 public:
  ScratchFolder() = default;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& make(const char* purpose) {
    path_ = std::filesystem::temp_directory_path() / fmt::format("rhapsode-{}-{}", purpose, ::getpid());
    return path_;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace rhapsode::cli
