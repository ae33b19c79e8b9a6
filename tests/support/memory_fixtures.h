// Memories of earlier format versions, made by the releases of their time: tests/fixtures/README.md.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "io/file.h"
#include "store/compressed.h"
#include "store/memory_archive.h"

namespace rhapsode::test {

// Unpacks tests/fixtures/NAME.zst to `file`.
inline bool unpack_fixture(const std::string& name, const std::filesystem::path& file) {
  const auto path = std::filesystem::path(RHAPSODE_SOURCE_DIR) / "tests/fixtures" / (name + ".zst");
  const auto packed = read_text_file(path);
  if (!packed.ok()) return false;
  const auto bytes = store::decompress(std::as_bytes(std::span(*packed)), 64 << 20);
  return bytes.ok() && replace_file(file, *bytes).ok();
}

// Makes the folder a memory as version `version` of the catalog left it.
inline bool unpack_memory(int version, const std::filesystem::path& folder) {
  const std::filesystem::path archive = folder.string() + ".tar";
  if (!make_directories(folder.parent_path()).ok()) return false;
  return unpack_fixture("memory-v" + std::to_string(version) + ".tar", archive) &&
         store::import_memory(archive, folder).ok();
}

}  // namespace rhapsode::test
