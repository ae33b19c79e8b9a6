#include "model/gguf_parser.h"

#include <ggml.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/text_check.h"

namespace rhapsode::model {
namespace {

static_assert(sizeof(size_t) == 8 && std::endian::native == std::endian::little);

constexpr uint64_t kMaxKeyBytes = 65535;            // GGUF's own limit
constexpr uint64_t kMaxEntries = 1u << 16;          // real files have tens
constexpr uint64_t kMaxTensors = 1u << 20;          // real files have thousands
constexpr uint64_t kMaxArrayStrings = 1u << 22;     // vocabularies and merges have up to a million
constexpr uint64_t kMaxAlignment = 1u << 20;        // real files use 32
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

bool is_printable_ascii(std::string_view text) {
  for (const char c : text) {
    if (c <= 0x20 || c >= 0x7F) return false;
  }
  return true;
}

bool has_control_bytes(std::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) return true;
  }
  return false;
}

}  // namespace

size_t gguf_type_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

GgufParser::GgufParser(std::span<const std::byte> bytes, std::string label)
    : bytes_(bytes), label_(std::move(label)) {}

template <typename T>
bool GgufParser::read(T& value) {
  if (left() < sizeof(T)) return false;
  std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
  offset_ += sizeof(T);
  return true;
}

bool GgufParser::read_text(std::string_view& text) {
  const size_t start = offset_;
  uint64_t length = 0;
  if (!read(length)) return false;
  if (length > left()) {
    offset_ = start;
    return false;
  }
  text = {reinterpret_cast<const char*>(bytes_.data() + offset_), length};
  offset_ += length;
  return true;
}

Error GgufParser::damaged(const std::string& what) const {
  return make_error(ErrorKind::kCorrupt, "{}: {}; the file is damaged", label_, what);
}

Error GgufParser::cut(const std::string& what, uint64_t more) const {
  uint64_t needed = 0;
  if (__builtin_add_overflow(offset_, more, &needed)) needed = UINT64_MAX;
  return make_error(
      ErrorKind::kCorrupt,
      "{}: {} needs the file to have at least {} bytes, but it has {}: it is cut short or damaged, "
      "get it again",
      label_, what, needed, bytes_.size());
}

Status GgufParser::parse(GgufContent& content) {
  RH_TRY_STATUS(parse_header());
  for (uint64_t i = 0; i < entry_count_; ++i) RH_TRY_STATUS(parse_entry(i, content));
  RH_TRY_STATUS(read_alignment(content));
  const size_t first = content.tensors.size();
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    RH_TRY_STATUS(parse_tensor(i, content));
    RH_TRY_STATUS(check_tensor_type(content.tensors.back(), sizes.emplace_back()));
  }
  return place_tensors(std::span(content.tensors).subspan(first), sizes);
}

Status GgufParser::parse_header() {
  char magic[4] = {};
  if (!read(magic)) return cut("the GGUF header", 24 - offset_);
  if (std::memcmp(magic, "GGUF", 4) != 0) {
    return make_error(ErrorKind::kCorrupt, "{} is not a GGUF file: it starts with '{}'", label_,
                      shown({magic, sizeof magic}));
  }
  uint32_t version = 0;
  if (!read(version)) return cut("the GGUF header", 24 - offset_);
  if ((version & 0xFFFF) == 0 && version != 0) {
    return make_error(ErrorKind::kUnsupported,
                      "{} is a big-endian GGUF file; this build reads little-endian ones", label_);
  }
  if (version < 2 || version > 3) {
    return make_error(ErrorKind::kUnsupported, "{} is of GGUF version {}; this build reads versions 2 and 3",
                      label_, version);
  }
  if (!read(tensor_count_) || !read(entry_count_)) return cut("the GGUF header", 24 - offset_);
  if (entry_count_ > kMaxEntries)
    return damaged(fmt::format("the header claims {} metadata keys", entry_count_));
  if (tensor_count_ > kMaxTensors) return damaged(fmt::format("the header claims {} tensors", tensor_count_));
  const uint64_t least = entry_count_ * kMinEntryBytes + tensor_count_ * kMinTensorBytes;
  if (least > left()) {
    return cut(fmt::format("a header of {} metadata keys and {} tensors", entry_count_, tensor_count_),
               least);
  }
  return {};
}

Status GgufParser::parse_entry(uint64_t index, GgufContent& content) {
  const std::string which = fmt::format("metadata key {} of {}", index + 1, entry_count_);
  const size_t start = offset_;
  uint64_t length = 0;
  if (!read(length)) return cut(which, 8);
  if (length == 0 || length > kMaxKeyBytes)
    return damaged(fmt::format("{} claims a name of {} bytes", which, length));
  if (length > left()) return cut(which, length);
  GgufEntry entry;
  entry.key = {reinterpret_cast<const char*>(bytes_.data() + offset_), length};
  offset_ += length;
  if (!is_printable_ascii(entry.key)) {
    return damaged(
        fmt::format("{} has bytes in its name that are not printable: '{}'", which, shown(entry.key)));
  }
  if (!content.entry_index.emplace(entry.key, static_cast<uint32_t>(content.entries.size())).second) {
    return damaged(fmt::format("metadata key '{}' stands in the file twice", shown(entry.key)));
  }
  RH_TRY_STATUS(parse_value(entry.key, entry.value));
  entry.raw = bytes_.subspan(start, offset_ - start);
  content.entries.push_back(std::move(entry));
  return {};
}

Status GgufParser::parse_value(std::string_view key, GgufValue& value) {
  uint32_t type = 0;
  if (!read(type)) return cut(fmt::format("metadata key '{}'", shown(key)), 4);
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    return damaged(fmt::format("metadata key '{}' has the unknown type {}", shown(key), type));
  }
  value.type = static_cast<GgufType>(type);
  if (value.type == GgufType::kArray) return parse_array(key, value.array);
  if (value.type == GgufType::kString) {
    uint64_t length = 0;
    if (!read(length)) return cut(fmt::format("metadata key '{}'", shown(key)), 8);
    if (length > left()) {
      return cut(fmt::format("metadata key '{}' (a string of {} bytes)", shown(key), length), length);
    }
    value.text = {reinterpret_cast<const char*>(bytes_.data() + offset_), length};
    offset_ += length;
    return {};
  }
  return parse_scalar(key, value);
}

Status GgufParser::parse_scalar(std::string_view key, GgufValue& value) {
  const size_t size = gguf_type_bytes(value.type);
  if (left() < size) return cut(fmt::format("metadata key '{}'", shown(key)), size);
  std::memcpy(&value.bits, bytes_.data() + offset_, size);
  offset_ += size;
  if (value.type == GgufType::kBool && value.bits > 1) {
    return damaged(fmt::format("metadata key '{}' is a boolean with the value {}", shown(key), value.bits));
  }
  const bool finite = value.type == GgufType::kF32
                          ? std::isfinite(std::bit_cast<float>(static_cast<uint32_t>(value.bits)))
                      : value.type == GgufType::kF64 ? std::isfinite(std::bit_cast<double>(value.bits))
                                                     : true;
  if (!finite) return damaged(fmt::format("metadata key '{}' is not a finite number", shown(key)));
  return {};
}

Status GgufParser::parse_array(std::string_view key, GgufArray& array) {
  uint32_t type = 0;
  uint64_t count = 0;
  if (!read(type) || !read(count)) return cut(fmt::format("metadata key '{}'", shown(key)), 12);
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    return damaged(fmt::format("metadata key '{}' is an array of the unknown type {}", shown(key), type));
  }
  array.type_ = static_cast<GgufType>(type);
  if (array.type_ == GgufType::kArray) {
    return make_error(ErrorKind::kUnsupported,
                      "{}: metadata key '{}' is an array of arrays, which no model needs", label_,
                      shown(key));
  }
  const size_t least = array.type_ == GgufType::kString ? 8 : gguf_type_bytes(array.type_);
  if (count > left() / least) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, least, &bytes)) bytes = UINT64_MAX;
    return cut(fmt::format("metadata key '{}' (an array of {} elements)", shown(key), count), bytes);
  }
  array.size_ = count;
  array.data_ = bytes_.data() + offset_;
  if (array.type_ == GgufType::kString) return parse_strings(key, array);
  if (array.type_ == GgufType::kBool) {
    for (size_t i = 0; i < count; ++i) {
      if (array.data_[i] > std::byte{1}) {
        return damaged(fmt::format("metadata key '{}' has the boolean {} with the value {}", shown(key), i,
                                   static_cast<int>(array.data_[i])));
      }
    }
  }
  offset_ += count * least;
  return {};
}

Status GgufParser::parse_strings(std::string_view key, GgufArray& array) {
  if (array.size_ > kMaxArrayStrings) {
    return make_error(ErrorKind::kTooLarge,
                      "{}: metadata key '{}' is an array of {} strings; at most {} are allowed", label_,
                      shown(key), array.size_, kMaxArrayStrings);
  }
  array.string_offsets_.reserve(array.size_);
  const size_t base = offset_;
  for (size_t i = 0; i < array.size_; ++i) {
    array.string_offsets_.push_back(offset_ - base);
    std::string_view text;
    if (!read_text(text)) {
      const std::string what =
          fmt::format("string {} of {} in metadata key '{}'", i, array.size_, shown(key));
      if (left() < 8) return cut(what, 8);
      uint64_t length = 0;
      read(length);
      return cut(what, length);
    }
  }
  return {};
}

Status GgufParser::read_alignment(const GgufContent& content) {
  const auto found = content.entry_index.find("general.alignment");
  if (found == content.entry_index.end()) return {};
  const GgufValue& value = content.entries[found->second].value;
  if (value.type != GgufType::kU32) return damaged("metadata key 'general.alignment' is not of type u32");
  alignment_ = value.bits;
  if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
    return damaged(fmt::format("metadata key 'general.alignment' is {}, not a power of two of at most {}",
                               alignment_, kMaxAlignment));
  }
  return {};
}

Status GgufParser::parse_tensor(uint64_t index, GgufContent& content) {
  const std::string which = fmt::format("tensor {} of {}", index + 1, tensor_count_);
  GgufTensor tensor;
  uint64_t length = 0;
  if (!read(length)) return cut(which, 8);
  if (length == 0 || length >= GGML_MAX_NAME) {
    return damaged(
        fmt::format("{} claims a name of {} bytes; 1 to {} are allowed", which, length, GGML_MAX_NAME - 1));
  }
  if (length > left()) return cut(which, length);
  tensor.name = {reinterpret_cast<const char*>(bytes_.data() + offset_), length};
  offset_ += length;
  if (has_control_bytes(tensor.name)) {
    return damaged(fmt::format("{} has control bytes in its name: '{}'", which, shown(tensor.name)));
  }
  if (!content.tensor_index.emplace(tensor.name, static_cast<uint32_t>(content.tensors.size())).second) {
    return damaged(fmt::format("tensor '{}' is described twice", shown(tensor.name)));
  }
  RH_TRY_STATUS(parse_shape(tensor));
  uint32_t type = 0;
  uint64_t offset = 0;
  if (!read(type) || !read(offset)) {
    return cut(fmt::format("the description of tensor '{}'", shown(tensor.name)), 12);
  }
  if (type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) <= 0 ||
      ggml_type_size(static_cast<ggml_type>(type)) == 0) {
    return make_error(ErrorKind::kUnsupported,
                      "{}: tensor '{}' has the weight type {}, which this build does not know", label_,
                      shown(tensor.name), type);
  }
  tensor.type = static_cast<int>(type);
  tensor_offsets_.push_back(offset);
  content.tensors.push_back(tensor);
  return {};
}

Status GgufParser::parse_shape(GgufTensor& tensor) {
  uint32_t dims = 0;
  if (!read(dims)) return cut(fmt::format("the description of tensor '{}'", shown(tensor.name)), 4);
  if (dims == 0 || dims > GGML_MAX_DIMS) {
    return damaged(
        fmt::format("tensor '{}' has {} dimensions; 1 to 4 are allowed", shown(tensor.name), dims));
  }
  tensor.dims = static_cast<int>(dims);
  int64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    int64_t& extent = tensor.shape[i];
    if (!read(extent)) return cut(fmt::format("the description of tensor '{}'", shown(tensor.name)), 8);
    if (extent <= 0) {
      return damaged(
          fmt::format("tensor '{}' has {} elements in dimension {}", shown(tensor.name), extent, i));
    }
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      return damaged(fmt::format("tensor '{}' has more elements than 64 bits can count", shown(tensor.name)));
    }
  }
  return {};
}

Status GgufParser::check_tensor_type(const GgufTensor& tensor, uint64_t& tensor_bytes) const {
  const auto type = static_cast<ggml_type>(tensor.type);
  const int64_t block = ggml_blck_size(type);
  if (tensor.shape[0] % block != 0) {
    return damaged(
        fmt::format("tensor '{}' has rows of {} elements, not a multiple of the {} in a block of {}",
                    shown(tensor.name), tensor.shape[0], block, ggml_type_name(type)));
  }
  tensor_bytes = static_cast<uint64_t>(tensor.shape[0] / block);
  bool overflow = __builtin_mul_overflow(tensor_bytes, ggml_type_size(type), &tensor_bytes);
  for (int i = 1; i < tensor.dims; ++i) {
    overflow |= __builtin_mul_overflow(tensor_bytes, static_cast<uint64_t>(tensor.shape[i]), &tensor_bytes);
  }
  if (overflow || tensor_bytes > INT64_MAX) {
    return damaged(fmt::format("tensor '{}' has more bytes than 64 bits can count", shown(tensor.name)));
  }
  return {};
}

// Tensors lie one after another in the order of their descriptions, each padded to the alignment: that is the
// format's rule, and it leaves no room for overlaps or hidden bytes.
Status GgufParser::place_tensors(std::span<GgufTensor> tensors, const std::vector<uint64_t>& sizes) {
  const uint64_t start = (offset_ + alignment_ - 1) & ~(alignment_ - 1);
  uint64_t expected = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    GgufTensor& tensor = tensors[i];
    const uint64_t offset = tensor_offsets_[i];
    if (offset != expected) {
      const char* what = offset % alignment_ != 0 ? "not on the file's alignment"
                         : offset < expected      ? "overlapping the tensor before it"
                                                  : "leaving a gap behind the tensor before it";
      return damaged(fmt::format("tensor '{}' starts at byte {} of the data instead of {}, {}",
                                 shown(tensor.name), offset, expected, what));
    }
    uint64_t end = 0;
    if (__builtin_add_overflow(start + offset, sizes[i], &end)) {
      return damaged(
          fmt::format("tensor '{}' reaches past the last byte that 64 bits can count", shown(tensor.name)));
    }
    if (end > bytes_.size()) {
      return cut(fmt::format("tensor '{}' ({} bytes)", shown(tensor.name), sizes[i]), end - offset_);
    }
    tensor.data = bytes_.subspan(start + offset, sizes[i]);
    expected = (offset + sizes[i] + alignment_ - 1) & ~(alignment_ - 1);
  }
  return {};
}

}  // namespace rhapsode::model
