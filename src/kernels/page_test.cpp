#include "kernels/page.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "kernels/element.h"

namespace rhapsode::kernels {
namespace {

TEST(Page, KeyIndexVisitsEveryElementOnce) {
  for (const int d : {16, 80, 256}) {
    std::set<size_t> seen;
    for (int slot = 0; slot < kPageTokens; ++slot) {
      for (int i = 0; i < d; ++i) seen.insert(key_index(d, slot, i));
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(kPageTokens * d));
    EXPECT_EQ(*seen.rbegin(), static_cast<size_t>(kPageTokens * d) - 1);
  }
}

TEST(Page, HeadsLieSideBySideWithinTheirLayer) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8}) {
    const KvShape shape{3, 2, 48, type};
    std::vector<std::byte> storage(shape.block_bytes());
    Page page;
    page.data = storage.data();
    const auto head_bytes = kPageTokens * 48 * static_cast<std::ptrdiff_t>(element_bytes(type));
    for (int layer = 0; layer < 3; ++layer) {
      const std::byte* begin = page.data + shape.page_bytes() * static_cast<size_t>(layer);
      const PageHeadView first = page_head(shape, page, layer, 0);
      const PageHeadView second = page_head(shape, page, layer, 1);
      EXPECT_EQ(first.k, begin);
      EXPECT_EQ(second.k - first.k, head_bytes);
      EXPECT_EQ(first.v - second.k, head_bytes);
      EXPECT_EQ(second.v - first.v, head_bytes);
      const std::byte* end = second.v + head_bytes;
      if (type == KvType::kI8) {
        EXPECT_EQ(reinterpret_cast<const std::byte*>(first.k_scale), end);
        EXPECT_EQ(second.k_scale - first.k_scale, kPageTokens);
        EXPECT_EQ(first.v_scale - second.k_scale, kPageTokens);
        end = reinterpret_cast<const std::byte*>(second.v_scale + kPageTokens);
      } else {
        EXPECT_EQ(first.k_scale, nullptr);
        EXPECT_EQ(first.v_scale, nullptr);
      }
      EXPECT_LE(end, begin + shape.page_bytes());
      EXPECT_EQ(shape.page_bytes() % 64, 0u);
    }
  }
}

TEST(Element, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
      continue;
    }
    ASSERT_EQ(f32_to_f16(value), half) << bits;
  }
}

TEST(Element, HalvesRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = f16_to_f32(static_cast<uint16_t>(bits));
    const float high = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(f32_to_f16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(f32_to_f16(-std::nextafter(middle, high)), 0x8000u + bits + 1);
  }
  EXPECT_EQ(f32_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
}

TEST(Element, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace rhapsode::kernels
