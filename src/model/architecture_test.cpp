// What a model's file may say of its positions: pages are moved, so what cannot be moved is refused at
// loading.
#include "model/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/gguf_writer.h"

namespace rhapsode::model {
namespace {

using test::GgufWriter;
using testing::HasSubstr;

Result<Architecture> parsed(const std::function<void(GgufWriter&)>& change) {
  GgufWriter writer = test::small_model();
  for (const auto& [key, value] : {std::pair("embedding_length", 64u), std::pair("feed_forward_length", 128u),
                                   std::pair("attention.head_count", 1u)}) {
    writer.scalar<uint32_t>(std::string("llama.") + key, GgufWriter::kU32, value);
  }
  change(writer);
  const std::string bytes = writer.bytes();
  auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  if (!file.ok()) return file.error();
  return parse_architecture(*file);
}

void scale(GgufWriter& writer, const std::string& kind) {
  writer.string("llama.rope.scaling.type", kind);
  writer.scalar<float>("llama.rope.scaling.factor", GgufWriter::kF32, 4.0f);
}

TEST(Architecture, G5PositionsThatCannotBeMovedAreRefusedAtLoading) {
  ASSERT_TRUE(parsed([](GgufWriter&) {}).ok());
  for (const char* kind : {"dynamic", "longrope", "su"}) {
    const auto refused = parsed([&](GgufWriter& writer) { scale(writer, kind); });
    ASSERT_FALSE(refused.ok()) << kind;
    EXPECT_THAT(refused.error().message, HasSubstr(kind));
    EXPECT_THAT(refused.error().message, HasSubstr("shifted pages would not be exact"));
    EXPECT_THAT(refused.error().message, HasSubstr("use a model with"));
  }
  for (const char* tensor : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    const auto refused = parsed([&](GgufWriter& writer) {
      writer.tensors.push_back({tensor, {32}, 0, 32 * 4});
    });
    ASSERT_FALSE(refused.ok()) << tensor;
    EXPECT_THAT(refused.error().message, HasSubstr(tensor));
  }
}

TEST(Architecture, G8ScalingIsHeededOrRefused) {
  const auto plain = parsed([](GgufWriter&) {});
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->attention[0].rope.frequency_scale, 1.0);
  EXPECT_EQ(plain->trained_context_tokens, 64);
  const auto linear = parsed([](GgufWriter& writer) { scale(writer, "linear"); });
  ASSERT_TRUE(linear.ok()) << linear.error().message;
  EXPECT_EQ(linear->attention[0].rope.frequency_scale, 0.25);
  const auto yarn = parsed([](GgufWriter& writer) { scale(writer, "yarn"); });
  ASSERT_TRUE(yarn.ok()) << yarn.error().message;
  EXPECT_EQ(yarn->attention[0].rope.yarn_extrapolation, 1.0);
  EXPECT_EQ(yarn->attention[0].rope.yarn_original_context, 64);
  const auto negative = parsed(
      [](GgufWriter& writer) { writer.scalar<float>("llama.rope.scaling.factor", GgufWriter::kF32, -4.0f); });
  ASSERT_FALSE(negative.ok());
  EXPECT_THAT(negative.error().message, HasSubstr("is negative"));
}

}  // namespace
}  // namespace rhapsode::model
