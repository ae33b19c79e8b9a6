// One pass over the header of a GGUF file in memory; the inner part of GgufFile.
//
// parse() appends what it finds to `content`, as views into `bytes`; nothing is copied but string offsets.
// Every count is compared with the bytes that are left before anything is reserved. O(keys + strings +
// tensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/gguf_file.h"

namespace rhapsode::model {

struct GgufValue {
  GgufType type = GgufType::kU8;
  uint64_t bits = 0;      // a scalar's bytes, zero-extended
  std::string_view text;  // kString
  GgufArray array;        // kArray
};

struct GgufEntry {
  std::string_view key;
  std::span<const std::byte> raw;  // key, type and value as they stand in the file
  GgufValue value;
};

struct GgufContent {
  std::vector<GgufEntry> entries;
  std::unordered_map<std::string_view, uint32_t> entry_index;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, uint32_t> tensor_index;
};

class GgufParser {
 public:
  // `label` stands for the file in messages.
  GgufParser(std::span<const std::byte> bytes, std::string label);
  // Metadata of this shard only; tensors are added to those already there, and clash with them.
  Status parse(GgufContent& content);

 private:
  template <typename T>
  bool read(T& value);
  bool read_text(std::string_view& text);  // moves only when it succeeds
  size_t left() const { return bytes_.size() - offset_; }
  Error damaged(const std::string& what) const;
  Error cut(const std::string& what, uint64_t more) const;  // `what` needs `more` bytes from here on

  Status parse_header();
  Status parse_entry(uint64_t index, GgufContent& content);
  Status parse_value(std::string_view key, GgufValue& value);
  Status parse_scalar(std::string_view key, GgufValue& value);
  Status parse_array(std::string_view key, GgufArray& array);
  Status parse_strings(std::string_view key, GgufArray& array);
  Status read_alignment(const GgufContent& content);
  Status parse_tensor(uint64_t index, GgufContent& content);
  Status parse_shape(GgufTensor& tensor);
  Status check_tensor_type(const GgufTensor& tensor, uint64_t& tensor_bytes) const;
  Status place_tensors(std::span<GgufTensor> tensors, const std::vector<uint64_t>& sizes);

  std::span<const std::byte> bytes_;
  std::string label_;
  size_t offset_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t alignment_ = 32;
  std::vector<uint64_t> tensor_offsets_;  // as claimed, relative to the data section
};

// Bytes of one element of a scalar type; 0 for strings and arrays.
size_t gguf_type_bytes(GgufType type);

}  // namespace rhapsode::model
