#include "model/gguf_file.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/text_check.h"
#include "io/mapped_file.h"
#include "model/gguf_parser.h"
#include "model/gguf_vocabulary.h"

namespace rhapsode::model {
namespace {

constexpr int64_t kMaxShards = 99999;  // five digits in the names
constexpr int64_t kExactDouble = int64_t{1} << 53;

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

std::optional<int64_t> to_integer(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kU8:
      return load<uint8_t>(from);
    case GgufType::kI8:
      return load<int8_t>(from);
    case GgufType::kU16:
      return load<uint16_t>(from);
    case GgufType::kI16:
      return load<int16_t>(from);
    case GgufType::kU32:
      return load<uint32_t>(from);
    case GgufType::kI32:
      return load<int32_t>(from);
    case GgufType::kI64:
      return load<int64_t>(from);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(from);
      if (value > INT64_MAX) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> to_number(GgufType type, const std::byte* from) {
  if (type == GgufType::kF32) return load<float>(from);
  if (type == GgufType::kF64) return load<double>(from);
  const std::optional<int64_t> whole = to_integer(type, from);
  if (!whole || *whole > kExactDouble || *whole < -kExactDouble) return std::nullopt;
  return static_cast<double>(*whole);
}

const std::byte* bytes_of(const GgufValue& value) {
  return reinterpret_cast<const std::byte*>(&value.bits);
}

std::string shard_suffix(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

}  // namespace

std::optional<int64_t> GgufArray::integer(size_t index) const {
  if (index >= size_) return std::nullopt;
  return to_integer(type_, data_ + index * gguf_type_bytes(type_));
}

std::optional<double> GgufArray::number(size_t index) const {
  if (index >= size_) return std::nullopt;
  return to_number(type_, data_ + index * gguf_type_bytes(type_));
}

std::optional<std::string_view> GgufArray::text(size_t index) const {
  if (type_ != GgufType::kString || index >= size_) return std::nullopt;
  const std::byte* at = data_ + string_offsets_[index];
  return std::string_view(reinterpret_cast<const char*>(at + 8), load<uint64_t>(at));
}

struct GgufFile::Impl {
  std::filesystem::path path;
  std::string label;
  uint64_t bytes = 0;
  std::vector<std::filesystem::path> files;
  std::vector<MappedFile> maps;
  GgufContent content;

  const GgufValue* find(std::string_view key) const {
    const auto found = content.entry_index.find(key);
    return found == content.entry_index.end() ? nullptr : &content.entries[found->second].value;
  }

  Status add_shard(const std::filesystem::path& shard, GgufContent& metadata);
  Status open_siblings(const GgufFile& file);
  Status check_sibling(const GgufContent& metadata, const std::filesystem::path& shard, int64_t number,
                       int64_t count) const;
};

// Maps one more file: its tensors join ours, its metadata go to `metadata`.
Status GgufFile::Impl::add_shard(const std::filesystem::path& shard, GgufContent& metadata) {
  RH_TRY(MappedFile map, MappedFile::open(shard));
  metadata.tensors = std::move(content.tensors);
  metadata.tensor_index = std::move(content.tensor_index);
  const Status status = GgufParser(map.bytes(), shard.string()).parse(metadata);
  content.tensors = std::move(metadata.tensors);
  content.tensor_index = std::move(metadata.tensor_index);
  bytes += map.bytes().size();
  files.push_back(shard);
  maps.push_back(std::move(map));
  return status;
}

Status GgufFile::Impl::check_sibling(const GgufContent& metadata, const std::filesystem::path& shard,
                                     int64_t number, int64_t count) const {
  const auto value_of = [&](std::string_view key) -> int64_t {
    const auto found = metadata.entry_index.find(key);
    if (found == metadata.entry_index.end()) return -1;
    const GgufValue& value = metadata.entries[found->second].value;
    return to_integer(value.type, bytes_of(value)).value_or(-1);
  };
  if (value_of("split.no") != number - 1 || value_of("split.count") != count) {
    return make_error(
        ErrorKind::kCorrupt,
        "{}: its metadata keys 'split.no' and 'split.count' do not make it shard {} of {} of {}",
        shard.string(), number, count, label);
  }
  return {};
}

// Loads shards 2..N of a split model; `path` must be the first, named STEM-00001-of-0000N.gguf.
Status GgufFile::Impl::open_siblings(const GgufFile& file) {
  if (find("split.count") == nullptr) return {};
  const int64_t count = file.integer("split.count").value_or(-1);
  const int64_t number = file.integer("split.no").value_or(count == 1 ? 0 : -1);
  if (count < 1 || count > kMaxShards || number < 0 || number >= count) {
    return make_error(ErrorKind::kCorrupt,
                      "{}: the metadata keys 'split.no' ({}) and 'split.count' ({}) make no sense", label,
                      number, count);
  }
  if (count == 1) return {};
  const std::string name = path.filename().string();
  const std::string own = shard_suffix(number + 1, count);
  if (!name.ends_with(own)) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "{} is shard {} of {} of a split model; its name must end in '{}' so that the others are found",
        label, number + 1, count, own);
  }
  const std::string stem = name.substr(0, name.size() - own.size());
  if (number != 0) {
    return make_error(ErrorKind::kInvalidArgument,
                      "{} is shard {} of {} of a split model; open the first one, {}", label, number + 1,
                      count, stem + shard_suffix(1, count));
  }
  for (int64_t i = 2; i <= count; ++i) {
    const std::filesystem::path shard = path.parent_path() / (stem + shard_suffix(i, count));
    std::error_code ignored;
    if (!std::filesystem::exists(shard, ignored)) {
      return make_error(ErrorKind::kNotFound, "{}: shard {} of {} is missing: {}", label, i, count,
                        shard.string());
    }
    GgufContent metadata;
    RH_TRY_STATUS(add_shard(shard, metadata));
    RH_TRY_STATUS(check_sibling(metadata, shard, i, count));
  }
  const std::optional<int64_t> total = file.integer("split.tensors.count");
  if (!total || *total != static_cast<int64_t>(content.tensors.size())) {
    return make_error(ErrorKind::kCorrupt,
                      "{}: 'split.tensors.count' is {}, but the {} shards hold {} tensors", label,
                      total.value_or(-1), count, content.tensors.size());
  }
  return {};
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  GgufFile file(std::make_unique<Impl>());
  Impl& impl = *file.impl_;
  impl.path = path;
  impl.label = path.string();
  GgufContent metadata;
  RH_TRY_STATUS(impl.add_shard(path, metadata));
  impl.content.entries = std::move(metadata.entries);
  impl.content.entry_index = std::move(metadata.entry_index);
  RH_TRY_STATUS(impl.open_siblings(file));
  RH_TRY_STATUS(check_general(file, impl.label));
  RH_TRY_STATUS(check_vocabulary(file, impl.label));
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  GgufFile file(std::make_unique<Impl>());
  Impl& impl = *file.impl_;
  impl.label = "GGUF in memory";
  impl.bytes = bytes.size();
  RH_TRY_STATUS(GgufParser(bytes, impl.label).parse(impl.content));
  if (file.integer("split.count").value_or(1) != 1) {
    return make_error(ErrorKind::kUnsupported, "{}: it is one shard of a split model; open it from its file",
                      impl.label);
  }
  RH_TRY_STATUS(check_general(file, impl.label));
  RH_TRY_STATUS(check_vocabulary(file, impl.label));
  return file;
}

const std::filesystem::path& GgufFile::path() const {
  return impl_->path;
}
std::vector<std::filesystem::path> GgufFile::files() const {
  return impl_->files;
}
uint64_t GgufFile::file_bytes() const {
  return impl_->bytes;
}

void GgufFile::populate() const {
  for (const MappedFile& map : impl_->maps) map.populate();
}

bool GgufFile::has(std::string_view key) const {
  return impl_->find(key) != nullptr;
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = impl_->find(key);
  return value == nullptr ? std::nullopt : to_integer(value->type, bytes_of(*value));
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = impl_->find(key);
  return value == nullptr ? std::nullopt : to_number(value->type, bytes_of(*value));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = impl_->find(key);
  if (value == nullptr || value->type != GgufType::kBool) return std::nullopt;
  return value->bits != 0;
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufValue* value = impl_->find(key);
  if (value == nullptr || value->type != GgufType::kString) return std::nullopt;
  return value->text;
}

const GgufArray* GgufFile::array(std::string_view key) const {
  const GgufValue* value = impl_->find(key);
  return value == nullptr || value->type != GgufType::kArray ? nullptr : &value->array;
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> keys;
  keys.reserve(impl_->content.entries.size());
  for (const GgufEntry& entry : impl_->content.entries) keys.push_back(entry.key);
  return keys;
}

std::span<const std::byte> GgufFile::raw_entry(std::string_view key) const {
  const auto found = impl_->content.entry_index.find(key);
  if (found == impl_->content.entry_index.end()) return {};
  return impl_->content.entries[found->second].raw;
}

std::span<const GgufTensor> GgufFile::tensors() const {
  return impl_->content.tensors;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto found = impl_->content.tensor_index.find(name);
  return found == impl_->content.tensor_index.end() ? nullptr : &impl_->content.tensors[found->second];
}

}  // namespace rhapsode::model
