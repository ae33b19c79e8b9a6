// Reading GGUF files as hostile input: every length, offset, type and product is checked against the file
// before use.
//
// open() maps the file (and its sibling shards) read-only, walks the header once and keeps views into the
// mapping; it allocates O(metadata keys + tensors), never by a number that the file merely claims. A damaged
// file is refused with the key or tensor named, in well under a second. What libllama's vocabulary loader
// would abort on is refused too. Format: GGUF v2/v3 (ggml docs/gguf.md), little-endian; shards are named
// STEM-00001-of-0000N.gguf. Errors: kCorrupt for damage (cut short: with the bytes needed and there),
// kUnsupported for versions, types and vocabularies outside this build, kNotFound for a missing file or
// shard. Ownership: views and tensor data live as long as the GgufFile. Threads: const use by any number of
// threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rhapsode::model {

struct GgufTensor {
  std::string_view name;
  int type = 0;  // ggml_type, known to this build
  int dims = 0;
  std::array<int64_t, 4> shape{1, 1, 1, 1};  // shape[0] is contiguous
  std::span<const std::byte> data;           // inside the mapping
};

enum class GgufType : uint8_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// A metadata array: elements of one scalar type, read by index. Strings are found in O(1) after open().
class GgufArray {
 public:
  GgufType type() const { return type_; }
  size_t size() const { return size_; }
  std::optional<int64_t> integer(size_t index) const;
  std::optional<double> number(size_t index) const;
  std::optional<std::string_view> text(size_t index) const;

 private:
  friend class GgufParser;
  GgufType type_ = GgufType::kU8;
  size_t size_ = 0;
  const std::byte* data_ = nullptr;
  std::vector<uint64_t> string_offsets_;  // only for strings
};

class GgufFile {
 public:
  static Result<GgufFile> open(const std::filesystem::path& path);
  // The same checks on bytes in memory, which must outlive the GgufFile; one shard of several is refused.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::filesystem::path& path() const;
  std::vector<std::filesystem::path> files()
      const;                    // path(), or all shards in order; empty for bytes in memory
  uint64_t file_bytes() const;  // all shards
  // Reads all of it into memory now (io/mapped_file.h), so that first use does not stall.
  void populate() const;

  bool has(std::string_view key) const;
  // Metadata; nullopt when the key is absent or of a kind that does not convert without loss.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  const GgufArray* array(std::string_view key) const;
  std::vector<std::string_view> keys() const;
  // Key, type and value of one entry as they stand in the file, for copying; empty when the key is absent.
  std::span<const std::byte> raw_entry(std::string_view key) const;

  std::span<const GgufTensor> tensors() const;
  const GgufTensor* tensor(std::string_view name) const;  // null when absent

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rhapsode::model
