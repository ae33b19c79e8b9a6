#include "store/kv_codec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "kernels/element.h"
#include "store/kv_quantize.h"

namespace rhapsode::store {
namespace {

using kernels::kPageTokens;
using kernels::KvShape;
using kernels::KvType;
using kernels::Page;
using testing::HasSubstr;

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8};
constexpr KvType kWideTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16};

// Pages of one passage with storage of their own.
class Pages {
 public:
  Pages(const KvShape& shape, int tokens, std::byte fill) : shape_(shape) {
    const int count = (tokens + kPageTokens - 1) / kPageTokens;
    for (int p = 0; p < count; ++p) {
      blocks_.emplace_back(shape.block_bytes() + 64, fill);
      auto page = std::make_unique<Page>();
      const auto address = reinterpret_cast<uintptr_t>(blocks_.back().data());
      page->data = blocks_.back().data() + (64 - address % 64) % 64;
      pointers_.push_back(page.get());
      pages_.push_back(std::move(page));
    }
  }

  void set_counts(int tokens) {
    for (Page* page : pointers_) {
      page->count = std::min(tokens, kPageTokens);
      tokens -= page->count;
    }
  }
  std::span<Page* const> mutable_span() const { return pointers_; }
  std::vector<const Page*> read() const { return {pointers_.begin(), pointers_.end()}; }
  Page& operator[](int page) { return *pages_[static_cast<size_t>(page)]; }
  const KvShape& shape() const { return shape_; }

 private:
  KvShape shape_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<Page*> pointers_;
};

void store(KvType type, float value, size_t index, std::byte* out) {
  if (type == KvType::kF32) std::memcpy(out + index * 4, &value, 4);
  const uint16_t half = type == KvType::kF16 ? kernels::f32_to_f16(value) : kernels::f32_to_bf16(value);
  if (type == KvType::kF16 || type == KvType::kBF16) std::memcpy(out + index * 2, &half, 2);
}

float load(KvType type, const std::byte* in, size_t index) {
  float value = 0.0f;
  uint16_t half = 0;
  if (type == KvType::kF32) std::memcpy(&value, in + index * 4, 4);
  if (type == KvType::kF16 || type == KvType::kBF16) std::memcpy(&half, in + index * 2, 2);
  if (type == KvType::kF16) return kernels::f16_to_f32(half);
  if (type == KvType::kBF16) return kernels::bf16_to_f32(half);
  return type == KvType::kI8 ? static_cast<float>(static_cast<int8_t>(in[index])) : value;
}

// Calls use(page, layer, head, slot, dimension, index in K, index in V) for every element of every page.
template <class Use>
void for_each_element(const KvShape& shape, int pages, const Use& use) {
  for (int p = 0; p < pages; ++p) {
    for (int l = 0; l < shape.layers; ++l) {
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int slot = 0; slot < kPageTokens; ++slot) {
          for (int i = 0; i < shape.head_dim; ++i) {
            use(p, l, h, slot, i, kernels::key_index(shape.head_dim, slot, i),
                static_cast<size_t>(slot * shape.head_dim + i));
          }
        }
      }
    }
  }
}

// Random K and V in every slot, those behind the last token included: a codec must not let them through.
Pages random_pages(const KvShape& shape, int tokens, uint32_t seed) {
  Pages pages(shape, tokens, std::byte{0xa5});
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  const int count = static_cast<int>(pages.mutable_span().size());
  for_each_element(shape, count, [&](int p, int l, int h, int slot, int i, size_t key, size_t value) {
    const kernels::PageHeadView head = kernels::page_head(shape, pages[p], l, h);
    if (shape.type == KvType::kI8) {
      head.k[key] = static_cast<std::byte>(random());
      head.v[value] = static_cast<std::byte>(random());
      if (i == 0) head.k_scale[slot] = std::abs(normal(random));
      if (i == 0) head.v_scale[slot] = std::abs(normal(random));
    } else {
      store(shape.type, normal(random), key, head.k);
      store(shape.type, normal(random), value, head.v);
    }
  });
  pages.set_counts(tokens);
  return pages;
}

// What stands in `pages` must be what stands in `expected` in used slots and zero in the others.
void expect_same_bits(Pages& expected, Pages& pages, int tokens) {
  const KvShape& shape = expected.shape();
  const auto element = static_cast<size_t>(kernels::element_bytes(shape.type));
  const std::byte zeros[4]{};
  size_t wrong = 0;
  for_each_element(shape, static_cast<int>(pages.mutable_span().size()),
                   [&](int p, int l, int h, int slot, int, size_t key, size_t value) {
                     const auto was = kernels::page_head(shape, expected[p], l, h);
                     const auto is = kernels::page_head(shape, pages[p], l, h);
                     const bool used = p * kPageTokens + slot < tokens;
                     const std::byte* k = used ? was.k + key * element : zeros;
                     const std::byte* v = used ? was.v + value * element : zeros;
                     if (std::memcmp(is.k + key * element, k, element) != 0) ++wrong;
                     if (std::memcmp(is.v + value * element, v, element) != 0) ++wrong;
                     if (shape.type != KvType::kI8) return;
                     if (is.k_scale[slot] != (used ? was.k_scale[slot] : 0.0f)) ++wrong;
                     if (is.v_scale[slot] != (used ? was.v_scale[slot] : 0.0f)) ++wrong;
                   });
  EXPECT_EQ(wrong, 0u);
}

Pages decode(const KvShape& shape, const std::vector<std::byte>& extent, int tokens) {
  Pages pages(shape, tokens, std::byte{0x5a});
  const Status status = decode_kv(shape, extent, pages.mutable_span(), tokens);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return pages;
}

TEST(KvCodec, IdentityKeepsEveryBitAndNothingElse) {
  for (const KvType type : kTypes) {
    for (const int head_dim : {16, 64, 80}) {
      for (const int tokens : {1, 15, 16, 17, 63, 64, 65, 130, 192}) {
        SCOPED_TRACE(fmt::format("{} d={} tokens={}", kernels::to_string(type), head_dim, tokens));
        const KvShape shape{2, 3, head_dim, type};
        Pages pages = random_pages(shape, tokens, 1);
        const auto extent = encode_kv(shape, type, pages.read(), tokens);
        ASSERT_TRUE(extent.ok()) << extent.error().message;
        EXPECT_EQ(extent->size(), kv_extent_bytes(shape, type, tokens));
        Pages back = decode(shape, *extent, tokens);
        expect_same_bits(pages, back, tokens);
        for (int p = 0; p * kPageTokens < tokens; ++p) {
          EXPECT_EQ(back[p].count, std::min(kPageTokens, tokens - p * kPageTokens));
          EXPECT_TRUE(back[p].consecutive);
          EXPECT_EQ(back[p].positions[0], p * kPageTokens);
          EXPECT_EQ(back[p].positions[63], p * kPageTokens + 63);
        }
      }
    }
  }
}

TEST(KvCodec, UnusedSlotsLeaveNoTraceInTheExtent) {
  for (const KvType type : kTypes) {
    const KvShape shape{1, 2, 32, type};
    Pages pages = random_pages(shape, 70, 1);
    Pages other = random_pages(shape, 70, 1);
    for_each_element(shape, 2, [&](int p, int l, int h, int slot, int, size_t key, size_t value) {
      if (p * kPageTokens + slot < 70) return;
      const auto element = static_cast<size_t>(kernels::element_bytes(type));
      const auto head = kernels::page_head(shape, other[p], l, h);
      std::memset(head.k + key * element, 0xff, element);  // NaN in the float types
      std::memset(head.v + value * element, 0xff, element);
    });
    EXPECT_EQ(*encode_kv(shape, type, pages.read(), 70), *encode_kv(shape, type, other.read(), 70));
    EXPECT_EQ(*encode_kv(shape, KvType::kI8, pages.read(), 70),
              *encode_kv(shape, KvType::kI8, other.read(), 70));
  }
}

// The largest magnitude of K or V of one slot.
float largest(const KvShape& shape, const std::byte* data, int slot, bool keys) {
  float result = 0.0f;
  for (int i = 0; i < shape.head_dim; ++i) {
    const size_t index =
        keys ? kernels::key_index(shape.head_dim, slot, i) : static_cast<size_t>(slot * shape.head_dim + i);
    result = std::max(result, std::abs(load(shape.type, data, index)));
  }
  return result;
}

// How much the pool's own type may add: half a unit in the last place of values up to `magnitude`.
float rounding(KvType type, float magnitude) {
  if (type == KvType::kF16) return magnitude * 0x1p-11f + 0x1p-25f;
  return magnitude * (type == KvType::kBF16 ? 0x1p-8f : 0x1p-22f);
}

TEST(KvCodec, Int8IsWithinHalfAStepOfEveryValue) {
  constexpr int kTokens = 90;
  for (const KvType type : kWideTypes) {
    SCOPED_TRACE(kernels::to_string(type));
    const KvShape shape{2, 2, 64, type};
    Pages pages = random_pages(shape, kTokens, 7);
    const auto extent = encode_kv(shape, KvType::kI8, pages.read(), kTokens);
    ASSERT_TRUE(extent.ok()) << extent.error().message;
    EXPECT_EQ(extent->size(), kv_extent_bytes(shape, KvType::kI8, kTokens));
    Pages back = decode(shape, *extent, kTokens);
    double worst = 0.0;
    for_each_element(shape, 2, [&](int p, int l, int h, int slot, int, size_t key, size_t value) {
      const auto is = kernels::page_head(shape, back[p], l, h);
      const auto was = kernels::page_head(shape, pages[p], l, h);
      const bool used = p * kPageTokens + slot < kTokens;
      const float k = used ? load(type, was.k, key) : 0.0f;
      const float v = used ? load(type, was.v, value) : 0.0f;
      const float k_max = largest(shape, was.k, slot, true);
      const float v_max = largest(shape, was.v, slot, false);
      const float k_error = std::abs(load(type, is.k, key) - k);
      const float v_error = std::abs(load(type, is.v, value) - v);
      if (used) worst = std::max({worst, k_error / (k_max / 254.0), v_error / (v_max / 254.0)});
      ASSERT_LE(k_error, used ? k_max / 254.0f * 1.0001f + rounding(type, k_max) : 0.0f);
      ASSERT_LE(v_error, used ? v_max / 254.0f * 1.0001f + rounding(type, v_max) : 0.0f);
    });
    EXPECT_GT(worst, 0.9) << "the bound is not idle";
  }
}

TEST(KvCodec, Int8BecomesAnInt8PoolBitByBit) {
  const KvShape wide{2, 2, 32, KvType::kF16};
  const KvShape narrow{2, 2, 32, KvType::kI8};
  Pages pages = random_pages(wide, 77, 3);
  const auto extent = encode_kv(wide, KvType::kI8, pages.read(), 77);
  ASSERT_TRUE(extent.ok());
  Pages decoded = decode(narrow, *extent, 77);
  const auto again = encode_kv(narrow, KvType::kI8, decoded.read(), 77);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *extent);
}

TEST(KvCodec, Int8OfExtremeRows) {
  const KvShape shape{1, 1, 16, KvType::kF32};
  Pages pages = random_pages(shape, 4, 3);
  const auto head = kernels::page_head(shape, pages[0], 0, 0);
  const float rows[4] = {0.0f, 1e-40f, 1e38f, -1.0f};
  for (int slot = 0; slot < 4; ++slot) {
    for (int i = 0; i < 16; ++i) {
      store(KvType::kF32, rows[slot], kernels::key_index(16, slot, i), head.k);
      store(KvType::kF32, rows[slot], static_cast<size_t>(slot * 16 + i), head.v);
    }
  }
  Pages back = decode(shape, *encode_kv(shape, KvType::kI8, pages.read(), 4), 4);
  const auto is = kernels::page_head(shape, back[0], 0, 0);
  for (int slot = 0; slot < 4; ++slot) {
    const float expected = slot == 1 ? 0.0f : rows[slot];
    EXPECT_NEAR(load(KvType::kF32, is.k, kernels::key_index(16, slot, 3)), expected,
                std::abs(expected) * 1e-6f);
    EXPECT_NEAR(load(KvType::kF32, is.v, static_cast<size_t>(slot * 16 + 3)), expected,
                std::abs(expected) * 1e-6f);
  }
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (std::byte* target : {head.k, head.v}) {
      const float before = load(KvType::kF32, target, 3);
      store(KvType::kF32, bad, 3, target);
      const auto refused = encode_kv(shape, KvType::kI8, pages.read(), 4);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
      EXPECT_TRUE(encode_kv(shape, KvType::kF32, pages.read(), 4).ok());
      store(KvType::kF32, before, 3, target);
    }
  }
}

TEST(KvCodec, EveryInstructionSetGivesTheSameBytes) {
  const std::string best = kv_quantize_kernels().target;
  int targets = 0;
  std::vector<std::vector<std::byte>> extents;
  for (const char* name : {"AVX3_DL", "AVX3", "AVX2", "SSE4", "SSE2", "NEON", "EMU128", "SCALAR"}) {
    if (!force_kv_quantize_target(name)) continue;
    SCOPED_TRACE(name);
    EXPECT_STREQ(kv_quantize_kernels().target, name);
    ++targets;
    size_t index = 0;
    for (const KvType type : kWideTypes) {
      const KvShape shape{1, 2, 48, type};
      Pages pages = random_pages(shape, 71, 11);
      auto stored = encode_kv(shape, KvType::kI8, pages.read(), 71);
      ASSERT_TRUE(stored.ok());
      Pages back = decode(shape, *stored, 71);
      auto wide = encode_kv(shape, type, back.read(), 71);
      for (auto* extent : {&*stored, &*wide}) {
        if (targets == 1) extents.push_back(*extent);
        EXPECT_EQ(extents[index++], *extent) << kernels::to_string(type);
      }
    }
  }
  EXPECT_GE(targets, 1);
  EXPECT_TRUE(force_kv_quantize_target(""));
  EXPECT_EQ(kv_quantize_kernels().target, best);
}

TEST(KvCodec, HostileExtentsAreCorrupt) {
  const KvShape shape{2, 2, 32, KvType::kF16};
  Pages pages = random_pages(shape, 70, 1);
  for (const KvType stored : {KvType::kF16, KvType::kI8}) {
    const std::vector<std::byte> good = *encode_kv(shape, stored, pages.read(), 70);
    const auto kind_of = [&](std::span<const std::byte> extent) {
      Pages target(shape, 70, std::byte{0});
      const Status status = decode_kv(shape, extent, target.mutable_span(), 70);
      EXPECT_TRUE(status.ok() || target[0].count == 0) << "a page that was refused is empty";
      return status.ok() ? ErrorKind::kInternal : status.error().kind;
    };
    for (const size_t size : {size_t{0}, size_t{63}, size_t{64}, good.size() - 1}) {
      EXPECT_EQ(kind_of(std::span(good).first(size)), ErrorKind::kCorrupt) << size;
    }
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    EXPECT_EQ(kind_of(longer), ErrorKind::kCorrupt);
    for (size_t field = 0; field < 40; field += 4) {  // magic, version, type, sizes
      for (const uint32_t value : {0u, 5u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
        std::vector<std::byte> bad = good;
        std::memcpy(bad.data() + field, &value, sizeof(value));
        EXPECT_EQ(kind_of(bad), ErrorKind::kCorrupt) << field << " " << value;
      }
    }
  }
}

TEST(KvCodec, HostileScalesAreCorrupt) {
  const KvShape wide{1, 1, 16, KvType::kF16};
  Pages pages = random_pages(wide, 3, 1);
  const std::vector<std::byte> good = *encode_kv(wide, KvType::kI8, pages.read(), 3);
  for (const float bad :
       {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (size_t index = 1; index <= 6; ++index) {  // the last six floats
      std::vector<std::byte> extent = good;
      std::memcpy(extent.data() + extent.size() - index * sizeof(float), &bad, sizeof(float));
      for (const KvType type : {KvType::kF16, KvType::kI8}) {
        const KvShape shape{1, 1, 16, type};
        Pages target(shape, 3, std::byte{0});
        const Status status = decode_kv(shape, extent, target.mutable_span(), 3);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().kind, ErrorKind::kCorrupt);
      }
    }
  }
}

TEST(KvCodec, WhatCannotBeIsSaid) {
  const KvShape f16{1, 1, 16, KvType::kF16};
  const KvShape bf16{1, 1, 16, KvType::kBF16};
  Pages pages = random_pages(f16, 65, 1);
  EXPECT_EQ(encode_kv(f16, KvType::kF32, pages.read(), 65).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(encode_kv(f16, KvType::kF16, pages.read(), 64).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(encode_kv(f16, KvType::kF16, pages.read(), 66).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(encode_kv(f16, KvType::kF16, {}, 0).error().kind, ErrorKind::kInvalidArgument);
  const auto extent = encode_kv(f16, KvType::kF16, pages.read(), 65);
  Pages target(bf16, 65, std::byte{0});
  const Status status = decode_kv(bf16, *extent, target.mutable_span(), 65);
  EXPECT_EQ(status.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(status.error().message, HasSubstr("stored as f16 cannot become bf16"));
  EXPECT_EQ(decode_kv(bf16, *extent, target.mutable_span().first(1), 65).error().kind,
            ErrorKind::kInvalidArgument);
}

TEST(KvCodec, TheExtentIsWhatTheFormatPageSays) {
  const KvShape shape{1, 1, 16, KvType::kF32};
  Pages pages(shape, 2, std::byte{0});
  pages.set_counts(2);
  const auto head = kernels::page_head(shape, pages[0], 0, 0);
  store(KvType::kF32, 1.5f, kernels::key_index(16, 1, 2), head.k);
  store(KvType::kF32, 2.5f, 16 + 3, head.v);
  const std::vector<std::byte> extent = *encode_kv(shape, KvType::kF32, pages.read(), 2);
  ASSERT_EQ(extent.size(), 64u + 16 * 16 * 4 + 2 * 16 * 4);
  EXPECT_EQ(std::memcmp(extent.data(), "RHAPSEKV\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\20\0\0\0\2\0\0\0", 32), 0);
  EXPECT_EQ(load(KvType::kF32, extent.data() + 64, 2 * 16 + 1), 1.5f);
  EXPECT_EQ(load(KvType::kF32, extent.data() + 64 + 1024, 16 + 3), 2.5f);
}

}  // namespace
}  // namespace rhapsode::store
