#include "index/whitening.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/sha256.h"
#include "base/text_check.h"
#include "index/whitening_product.h"
#include "io/file.h"

namespace rhapsode::index {
namespace {

static_assert(std::endian::native == std::endian::little, "whitening files are little-endian");

constexpr std::string_view kMagic = "RHAPSEWH";
constexpr uint32_t kVersion = 1;
constexpr size_t kMaxNameBytes = 1000;
constexpr size_t kHashBytes = 64;
constexpr int kMaxLayer = 100'000;

// As it lies in the file.
struct WhiteningHeader {
  char magic[8];
  uint32_t version;
  uint32_t dimensions;
  uint32_t layer;
  uint32_t name_bytes;
  uint32_t zeros[2];
};
static_assert(sizeof(WhiteningHeader) == 32);

size_t stride_of(int dimensions) {
  return (static_cast<size_t>(dimensions) + kWhiteningStride - 1) / kWhiteningStride * kWhiteningStride;
}

// Of the content: everything before the hash.
size_t content_bytes(size_t d, size_t name_bytes) {
  return sizeof(WhiteningHeader) + name_bytes + 4 * d * sizeof(float) + d * d;
}

constexpr size_t kMaxFileBytes = sizeof(WhiteningHeader) + kMaxNameBytes + kHashBytes +
                                 size_t{kMaxWhiteningDimensions} * (kMaxWhiteningDimensions + 16);

void append_floats(const std::vector<float>& values, std::string& out) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::vector<float> take_floats(std::string_view& in, size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), in.data(), count * sizeof(float));
  in.remove_prefix(count * sizeof(float));
  return values;
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

bool all_positive(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value > 0.0f; });
}

Result<WhiteningHeader> check_header(const std::string& path, std::string_view file) {
  WhiteningHeader header{};
  if (file.size() < sizeof(header)) {
    return make_error(ErrorKind::kCorrupt, "{} ends at offset {}, inside its header", path, file.size());
  }
  std::memcpy(&header, file.data(), sizeof(header));
  if (std::string_view(header.magic, sizeof(header.magic)) != kMagic) {
    return make_error(ErrorKind::kCorrupt, "{} at offset 0: this is not a whitening file", path);
  }
  if (header.version != kVersion) {
    return make_error(ErrorKind::kCorrupt, "{} at offset 8: format version {}, this build reads version {}",
                      path, header.version, kVersion);
  }
  if (header.dimensions < 1 || header.dimensions > kMaxWhiteningDimensions || header.layer > kMaxLayer ||
      header.name_bytes > kMaxNameBytes) {
    return make_error(ErrorKind::kCorrupt, "{} at offset 12: {} dimensions, layer {}, a name of {} bytes",
                      path, header.dimensions, header.layer, header.name_bytes);
  }
  const size_t expected = content_bytes(header.dimensions, header.name_bytes) + kHashBytes;
  if (file.size() != expected) {
    return make_error(ErrorKind::kCorrupt, "{} has {} bytes, but its header asks for {}", path, file.size(),
                      expected);
  }
  return header;
}

void scale_to_unit_length(std::span<float> vector) {
  double squares = 0.0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  if (squares == 0.0) return;
  const auto factor = static_cast<float>(1.0 / std::sqrt(squares));
  for (float& value : vector) value *= factor;
}

}  // namespace

Result<Whitening> Whitening::load(const std::filesystem::path& path) {
  RH_TRY(const std::string file, read_text_file(path, kMaxFileBytes));
  RH_TRY(const WhiteningHeader header, check_header(path.string(), file));
  Whitening whitening;
  whitening.dimensions_ = static_cast<int>(header.dimensions);
  whitening.layer_ = static_cast<int>(header.layer);
  std::string_view rest = std::string_view(file).substr(sizeof(header));
  whitening.model_ = rest.substr(0, header.name_bytes);
  rest.remove_prefix(header.name_bytes);
  const size_t d = header.dimensions;
  whitening.document_mean_ = take_floats(rest, d);
  whitening.question_mean_ = take_floats(rest, d);
  whitening.allocate_matrix();
  whitening.spreads_ = take_floats(rest, d);
  whitening.scales_ = take_floats(rest, d);
  const size_t stride = stride_of(whitening.dimensions_);
  for (size_t row = 0; row < d; ++row)
    std::memcpy(&whitening.matrix_[row * stride], rest.data() + row * d, d);
  const std::string_view content = std::string_view(file).substr(0, file.size() - kHashBytes);
  RH_TRY(whitening.id_, sha256(std::as_bytes(std::span(content))));
  if (rest.substr(d * d) != whitening.id_) {
    return make_error(ErrorKind::kCorrupt, "{} at offset {}: the content does not have its SHA-256",
                      path.string(), file.size() - kHashBytes);
  }
  if (!is_utf8(whitening.model_) || !all_finite(whitening.document_mean_) ||
      !all_finite(whitening.question_mean_) || !all_finite(whitening.scales_) ||
      !all_finite(whitening.spreads_) || !all_positive(whitening.spreads_)) {
    return make_error(ErrorKind::kCorrupt,
                      "{} holds numbers that are not finite or not positive, or a name that is not UTF-8",
                      path.string());
  }
  return whitening;
}

Status Whitening::save(const std::filesystem::path& path) const {
  return replace_file(path, content() + id_);
}

void Whitening::allocate_matrix() {
  const auto d = static_cast<size_t>(dimensions_);
  spreads_.resize(d);
  scales_.resize(d);
  matrix_.assign(d * stride_of(dimensions_), 0);
}

std::string Whitening::content() const {
  WhiteningHeader header{};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  header.version = kVersion;
  header.dimensions = static_cast<uint32_t>(dimensions_);
  header.layer = static_cast<uint32_t>(layer_);
  header.name_bytes = static_cast<uint32_t>(model_.size());
  const auto d = static_cast<size_t>(dimensions_);
  std::string out(reinterpret_cast<const char*>(&header), sizeof(header));
  out.reserve(content_bytes(d, model_.size()) + kHashBytes);
  out += model_;
  append_floats(document_mean_, out);
  append_floats(question_mean_, out);
  append_floats(spreads_, out);
  append_floats(scales_, out);
  for (size_t row = 0; row < d; ++row) {
    out.append(reinterpret_cast<const char*>(&matrix_[row * stride_of(dimensions_)]), d);
  }
  return out;
}

Status Whitening::set_id() {
  const std::string bytes = content();
  RH_TRY(id_, sha256(std::as_bytes(std::span(bytes))));
  return {};
}

void Whitening::multiply(std::span<const float> states, const std::vector<float>& mean,
                         std::span<float> out) const {
  assert(states.size() % mean.size() == 0 && out.size() == states.size());
  const size_t d = mean.size();
  const size_t stride = stride_of(dimensions_);
  const size_t count = states.size() / d;
  std::vector<float> vectors(count * stride);
  for (size_t v = 0; v < count; ++v) {
    for (size_t i = 0; i < d; ++i) vectors[v * stride + i] = (states[v * d + i] - mean[i]) / spreads_[i];
  }
  WhiteningTask task;
  task.matrix = matrix_.data();
  task.scales = scales_.data();
  task.rows = dimensions_;
  task.stride = static_cast<int>(stride);
  task.vectors = vectors.data();
  task.count = static_cast<int>(count);
  task.out = out.data();
  whitening_kernels().multiply(task);
}

void Whitening::transform_question(std::span<const float> states, std::span<float> out) const {
  multiply(states, question_mean_, out);
  const auto d = static_cast<size_t>(dimensions_);
  for (size_t i = 0; i < out.size(); i += d) scale_to_unit_length(out.subspan(i, d));
}

void Whitening::transform_document(std::span<const float> states, std::span<float> out) const {
  multiply(states, document_mean_, out);
  const auto d = static_cast<size_t>(dimensions_);
  for (size_t i = 0; i < out.size(); i += d) scale_to_unit_length(out.subspan(i, d));
}

void Whitening::encode(std::span<const float> states, std::span<std::byte> codes) const {
  const auto d = static_cast<size_t>(dimensions_);
  const auto code = static_cast<size_t>(code_bytes());
  assert(codes.size() * d == states.size() * code);
  std::vector<float> vectors(states.size());
  multiply(states, document_mean_, vectors);
  std::fill(codes.begin(), codes.end(), std::byte{0});
  for (size_t v = 0; v < vectors.size() / d; ++v) {
    for (size_t i = 0; i < d; ++i) {
      if (vectors[v * d + i] > 0.0f) codes[v * code + i / 8] |= std::byte{1} << (i % 8);
    }
  }
}

}  // namespace rhapsode::index
