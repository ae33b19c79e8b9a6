#include "store/kv_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "store/kv_quantize.h"

namespace rhapsode::store {
namespace {

using kernels::kKeyGroup;
using kernels::kPageTokens;
using kernels::KvShape;
using kernels::KvType;
using kernels::Page;
using kernels::PageHeadView;

static_assert(std::endian::native == std::endian::little, "KV extents are little-endian");

constexpr std::string_view kMagic = "RHAPSEKV";
constexpr uint32_t kVersion = 1;

// As it lies in the file.
struct KvHeader {
  char magic[8];
  uint32_t version;
  uint32_t type;
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t tokens;
  uint32_t page_tokens;
  uint32_t key_group;
  uint32_t zeros[6];
};
static_assert(sizeof(KvHeader) == 64);

// Numbers of the format, whatever the order of the enum becomes.
uint32_t type_number(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 1;
    case KvType::kF16:
      return 2;
    case KvType::kBF16:
      return 3;
    case KvType::kI8:
      return 4;
  }
  return 0;
}

std::optional<KvType> type_of_number(uint32_t number) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8}) {
    if (type_number(type) == number) return type;
  }
  return std::nullopt;
}

size_t page_count(int tokens) {
  return (static_cast<size_t>(tokens) + kPageTokens - 1) / kPageTokens;
}

int tokens_of_page(int tokens, size_t page) {
  return std::min(kPageTokens, tokens - static_cast<int>(page) * kPageTokens);
}

// Sizes of one KV head of one page with `count` tokens, as stored.
struct HeadBytes {
  HeadBytes(int head_dim, KvType type, int count)
      : tokens(count), groups((count + kKeyGroup - 1) / kKeyGroup) {
    const size_t row = static_cast<size_t>(head_dim) * static_cast<size_t>(kernels::element_bytes(type));
    keys = static_cast<size_t>(groups) * kKeyGroup * row;
    values = static_cast<size_t>(tokens) * row;
    scales = type == KvType::kI8 ? static_cast<size_t>(tokens) * sizeof(float) : 0;
  }
  size_t total() const { return keys + values + 2 * scales; }

  int tokens = 0;
  int groups = 0;  // of keys
  size_t keys = 0;
  size_t values = 0;
  size_t scales = 0;  // of keys or of values
};

// One layer of an extent.
size_t layer_bytes(const KvShape& shape, KvType stored, int tokens) {
  const auto full = static_cast<size_t>(tokens / kPageTokens);
  const size_t head = full * HeadBytes(shape.head_dim, stored, kPageTokens).total() +
                      HeadBytes(shape.head_dim, stored, tokens % kPageTokens).total();
  return head * static_cast<size_t>(shape.kv_heads);
}

// One KV head of one page in an extent.
struct StoredHead {
  int layer = 0;
  size_t page = 0;
  PageHeadView view;
  HeadBytes sizes;
  size_t offset = 0;  // in its layer
};

struct StoredShape {
  const KvShape& shape;
  KvType stored;
  int tokens;
};

// Calls visit(StoredHead) for one layer in the order of the format until it fails; offsets are from there on.
template <class PagePointer, class Visit>
Status for_each_head(const StoredShape& stored, int layer, std::span<PagePointer const> pages,
                     const Visit& visit) {
  size_t offset = 0;
  for (size_t page = 0; page < pages.size(); ++page) {
    const HeadBytes sizes(stored.shape.head_dim, stored.stored, tokens_of_page(stored.tokens, page));
    for (int head = 0; head < stored.shape.kv_heads; ++head, offset += sizes.total()) {
      const PageHeadView view = kernels::page_head(stored.shape, *pages[page], layer, head);
      RH_TRY_STATUS(visit(StoredHead{layer, page, view, sizes, offset}));
    }
  }
  return {};
}

KvHeader make_header(const KvShape& shape, KvType stored, int tokens) {
  KvHeader header{};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  header.version = kVersion;
  header.type = type_number(stored);
  header.layers = static_cast<uint32_t>(shape.layers);
  header.kv_heads = static_cast<uint32_t>(shape.kv_heads);
  header.head_dim = static_cast<uint32_t>(shape.head_dim);
  header.tokens = static_cast<uint32_t>(tokens);
  header.page_tokens = kPageTokens;
  header.key_group = kKeyGroup;
  return header;
}

Status check_shape(const KvShape& shape, int tokens, size_t pages) {
  if (shape.layers <= 0 || shape.kv_heads <= 0 || shape.head_dim <= 0 || shape.head_dim % kKeyGroup != 0 ||
      tokens <= 0 || pages != page_count(tokens)) {
    return make_error(ErrorKind::kInvalidArgument,
                      "KV of {} layers x {} heads x {} for {} tokens cannot lie in {} pages", shape.layers,
                      shape.kv_heads, shape.head_dim, tokens, pages);
  }
  return {};
}

// Keys of slots that hold nothing are whatever the page held before: they become zero.
void clear_unused_keys(std::byte* keys, int head_dim, const HeadBytes& sizes, KvType type) {
  const auto element = static_cast<size_t>(kernels::element_bytes(type));
  const auto unused = static_cast<size_t>(sizes.groups * kKeyGroup - sizes.tokens) * element;
  if (unused == 0) return;
  const size_t row = kKeyGroup * element;
  std::byte* end = keys + static_cast<size_t>(sizes.groups) * static_cast<size_t>(head_dim) * row;
  for (int i = 0; i < head_dim; ++i, end -= row) std::memset(end - unused, 0, unused);
}

void copy_head_out(const PageHeadView& head, const HeadBytes& sizes, std::byte* out) {
  std::memcpy(out, head.k, sizes.keys);
  std::memcpy(out + sizes.keys, head.v, sizes.values);
  if (sizes.scales == 0) return;
  std::memcpy(out + sizes.keys + sizes.values, head.k_scale, sizes.scales);
  std::memcpy(out + sizes.keys + sizes.values + sizes.scales, head.v_scale, sizes.scales);
}

// False if a value is not finite.
bool quantize_head(const KvShape& shape, const StoredHead& head, std::byte* out) {
  const HeadBytes& sizes = head.sizes;
  const KvQuantizeKernels& kernels = kv_quantize_kernels();
  std::array<float, 2 * kPageTokens> scales;
  float* k_scales = scales.data();
  float* v_scales = scales.data() + kPageTokens;
  kernels.quantize_keys({shape.type, shape.head_dim, sizes.groups}, head.view.k,
                        reinterpret_cast<int8_t*>(out), k_scales);
  kernels.quantize_values({shape.type, shape.head_dim, sizes.tokens}, head.view.v,
                          reinterpret_cast<int8_t*>(out + sizes.keys), v_scales);
  std::memcpy(out + sizes.keys + sizes.values, k_scales, sizes.scales);
  std::memcpy(out + sizes.keys + sizes.values + sizes.scales, v_scales, sizes.scales);
  const auto finite = [](float scale) { return std::isfinite(scale); };
  return std::all_of(k_scales, k_scales + sizes.tokens, finite) &&
         std::all_of(v_scales, v_scales + sizes.tokens, finite);
}

// False if a scale cannot be one.
bool read_scales(const std::byte* in, int tokens, float* scales) {
  std::memcpy(scales, in, static_cast<size_t>(tokens) * sizeof(float));
  std::fill(scales + tokens, scales + kPageTokens, 0.0f);
  return std::all_of(scales, scales + tokens, [](float scale) { return scale >= 0 && std::isfinite(scale); });
}

bool decode_head(const KvShape& shape, const StoredHead& head, const std::byte* in) {
  const HeadBytes& sizes = head.sizes;
  const bool widens = sizes.scales != 0 && shape.type != KvType::kI8;
  std::array<float, 2 * kPageTokens> own;  // pages of the wide types have no room for scales
  float* k_scales = widens ? own.data() : head.view.k_scale;
  float* v_scales = widens ? own.data() + kPageTokens : head.view.v_scale;
  if (sizes.scales != 0) {
    const std::byte* stored = in + sizes.keys + sizes.values;
    if (!read_scales(stored, sizes.tokens, k_scales)) return false;
    if (!read_scales(stored + sizes.scales, sizes.tokens, v_scales)) return false;
  }
  const HeadBytes filled(shape.head_dim, shape.type, sizes.tokens);
  if (widens) {
    const KvQuantizeKernels& kernels = kv_quantize_kernels();
    kernels.widen_keys({shape.type, shape.head_dim, sizes.groups}, reinterpret_cast<const int8_t*>(in),
                       k_scales, head.view.k);
    kernels.widen_values({shape.type, shape.head_dim, sizes.tokens},
                         reinterpret_cast<const int8_t*>(in + sizes.keys), v_scales, head.view.v);
  } else {
    std::memcpy(head.view.k, in, sizes.keys);
    std::memcpy(head.view.v, in + sizes.keys, sizes.values);
  }
  const size_t head_bytes = shape.k_bytes() / static_cast<size_t>(shape.kv_heads);
  std::memset(head.view.k + filled.keys, 0, head_bytes - filled.keys);
  std::memset(head.view.v + filled.values, 0, head_bytes - filled.values);
  return true;
}

Result<KvType> read_header(const KvShape& shape, const KvSource& source, uint64_t extent_bytes, int tokens) {
  KvHeader header;
  if (extent_bytes < sizeof(header)) {
    return make_error(ErrorKind::kCorrupt, "a KV extent of {} bytes has no whole header", extent_bytes);
  }
  RH_TRY(const std::span<const std::byte> bytes, source(sizeof(header)));
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto type = type_of_number(header.type);
  if (std::string_view(header.magic, sizeof(header.magic)) != kMagic || header.version != kVersion || !type) {
    return make_error(ErrorKind::kCorrupt, "not a KV extent of version {} with a known type", kVersion);
  }
  if (header.layers != static_cast<uint32_t>(shape.layers) ||
      header.kv_heads != static_cast<uint32_t>(shape.kv_heads) ||
      header.head_dim != static_cast<uint32_t>(shape.head_dim) ||
      header.tokens != static_cast<uint32_t>(tokens) || header.page_tokens != kPageTokens ||
      header.key_group != kKeyGroup) {
    return make_error(ErrorKind::kCorrupt,
                      "a KV extent of {} tokens x {} layers x {} heads x {}, expected {} x {} x {} x {}",
                      header.tokens, header.layers, header.kv_heads, header.head_dim, tokens, shape.layers,
                      shape.kv_heads, shape.head_dim);
  }
  if (extent_bytes != kv_extent_bytes(shape, *type, tokens)) {
    return make_error(ErrorKind::kCorrupt, "a KV extent of {} bytes, but its header asks for {}",
                      extent_bytes, kv_extent_bytes(shape, *type, tokens));
  }
  return *type;
}

}  // namespace

size_t kv_extent_bytes(const KvShape& shape, KvType stored, int tokens) {
  return sizeof(KvHeader) + layer_bytes(shape, stored, tokens) * static_cast<size_t>(shape.layers);
}

Result<std::vector<std::byte>> encode_kv(const KvShape& shape, KvType stored,
                                         std::span<const Page* const> pages, int tokens) {
  RH_TRY_STATUS(check_shape(shape, tokens, pages.size()));
  if (stored != shape.type && stored != KvType::kI8) {
    return make_error(ErrorKind::kUnsupported, "KV of type {} can be stored as it is or as int8, not as {}",
                      kernels::to_string(shape.type), kernels::to_string(stored));
  }
  for (size_t p = 0; p < pages.size(); ++p) {
    if (pages[p]->count < tokens_of_page(tokens, p)) {
      return make_error(ErrorKind::kInvalidArgument, "page {} of {} tokens holds {} of its {}", p, tokens,
                        pages[p]->count, tokens_of_page(tokens, p));
    }
  }
  std::vector<std::byte> extent(kv_extent_bytes(shape, stored, tokens));
  const KvHeader header = make_header(shape, stored, tokens);
  std::memcpy(extent.data(), &header, sizeof(header));
  const auto encode_head = [&](const StoredHead& head, std::byte* out) -> Status {
    if (stored == shape.type) {
      copy_head_out(head.view, head.sizes, out);
    } else if (!quantize_head(shape, head, out)) {
      return make_error(ErrorKind::kUnsupported,
                        "KV of layer {}, page {} is not finite and cannot become int8", head.layer,
                        head.page);
    }
    clear_unused_keys(out, shape.head_dim, head.sizes, stored);
    return {};
  };
  const size_t of_layer = layer_bytes(shape, stored, tokens);
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::byte* to = extent.data() + sizeof(header) + of_layer * static_cast<size_t>(layer);
    RH_TRY_STATUS(for_each_head({shape, stored, tokens}, layer, pages,
                                [&](const StoredHead& head) { return encode_head(head, to + head.offset); }));
  }
  return extent;
}

Status decode_kv(const KvShape& shape, const KvSource& source, uint64_t extent_bytes,
                 std::span<Page* const> pages, int tokens) {
  RH_TRY_STATUS(check_shape(shape, tokens, pages.size()));
  RH_TRY(const KvType stored, read_header(shape, source, extent_bytes, tokens));
  if (stored != shape.type && stored != KvType::kI8) {
    return make_error(ErrorKind::kUnsupported, "KV stored as {} cannot become {}: encode the text again",
                      kernels::to_string(stored), kernels::to_string(shape.type));
  }
  for (int layer = 0; layer < shape.layers; ++layer) {
    RH_TRY(const std::span<const std::byte> from, source(layer_bytes(shape, stored, tokens)));
    RH_TRY_STATUS(for_each_head({shape, stored, tokens}, layer, pages, [&](const StoredHead& head) -> Status {
      if (!decode_head(shape, head, from.data() + head.offset)) {
        return make_error(ErrorKind::kCorrupt,
                          "KV of layer {}, page {} has a scale that is negative or not finite", head.layer,
                          head.page);
      }
      clear_unused_keys(head.view.k, shape.head_dim, head.sizes, shape.type);
      return {};
    }));
  }
  for (size_t p = 0; p < pages.size(); ++p) {
    pages[p]->count = tokens_of_page(tokens, p);
    pages[p]->consecutive = true;
    std::iota(pages[p]->positions.begin(), pages[p]->positions.end(), static_cast<int32_t>(p) * kPageTokens);
  }
  return {};
}

Status decode_kv(const KvShape& shape, std::span<const std::byte> extent, std::span<Page* const> pages,
                 int tokens) {
  size_t at = 0;
  const KvSource source = [&](size_t bytes) -> Result<std::span<const std::byte>> {
    const std::span<const std::byte> piece = extent.subspan(at, bytes);
    at += bytes;
    return piece;
  };
  return decode_kv(shape, source, extent.size(), pages, tokens);
}

}  // namespace rhapsode::store
