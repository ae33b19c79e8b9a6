#include "model/weight_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>

#include "io/file.h"
#include "model/file_hash.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"
#include "support/tiny_models.h"

namespace rhapsode::model {
namespace {

using testing::HasSubstr;

class WeightCopyTest : public test::TemporaryFolder {
 protected:
  WeightCopyTest() {
    options_.home = folder_ / "home";
    options_.threads = 2;
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  }
  // A model of its own for each number, of 6,240 bytes of matrices in F32.
  std::filesystem::path small(int number) {
    test::GgufWriter writer = test::small_model();
    writer.scalar<int32_t>("test.number", test::GgufWriter::kI32, number);
    const std::filesystem::path path = folder_ / fmt::format("small-{}.gguf", number);
    writer.save(path);
    return path;
  }
  uint64_t bytes_kept() const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "home/weights"))
      bytes += entry.file_size();
    return bytes;
  }
  WeightCopyOptions options_;
};

TEST_F(WeightCopyTest, HoldsWhatLibllamaWouldWrite) {
  const struct {
    CopyType type;
    llama_ftype file_type;
  } types[] = {{CopyType::kBF16, LLAMA_FTYPE_MOSTLY_BF16},
               {CopyType::kF16, LLAMA_FTYPE_MOSTLY_F16},
               {CopyType::kF32, LLAMA_FTYPE_ALL_F32}};
  for (const char* name : {"llama-q8_0", "llama-q4_k", "llama-q4_0", "llama-f16", "gemma3-f32"}) {
    RH_REQUIRE_TINY_MODEL(path, name);
    for (const auto& [type, file_type] : types) {
      SCOPED_TRACE(fmt::format("{} to {}", name, to_string(type)));
      const auto copy = weight_copy(path, type, options_);
      ASSERT_TRUE(copy.ok()) << copy.error().message;
      const std::filesystem::path reference_path = folder_ / "reference.gguf";
      llama_model_quantize_params params = llama_model_quantize_default_params();
      params.ftype = file_type;
      params.allow_requantize = params.pure = true;
      ASSERT_EQ(llama_model_quantize(path.c_str(), reference_path.c_str(), &params), 0u);
      const auto ours = GgufFile::open(copy->path), reference = GgufFile::open(reference_path);
      ASSERT_TRUE(ours.ok() && reference.ok());
      ASSERT_EQ(ours->tensors().size(), reference->tensors().size());
      for (const GgufTensor& tensor : ours->tensors()) {
        const GgufTensor* other = reference->tensor(tensor.name);
        ASSERT_NE(other, nullptr);
        EXPECT_EQ(tensor.type, other->type) << tensor.name;
        EXPECT_TRUE(std::ranges::equal(tensor.data, other->data)) << tensor.name;
      }
      const bool same_type = copy->path == path;
      if (!same_type) {
        EXPECT_EQ(copy->bytes, std::filesystem::file_size(copy->path));
        EXPECT_EQ(ours->integer("general.file_type"), file_type);
        EXPECT_EQ(ours->text("tokenizer.chat_template"), reference->text("tokenizer.chat_template"));
        llama_model* model = llama_model_load_from_file(copy->path.c_str(), llama_model_default_params());
        EXPECT_NE(model, nullptr);
        llama_model_free(model);
      }
    }
  }
}

TEST_F(WeightCopyTest, IsMadeOnceAndNamedByContent) {
  const auto first = weight_copy(small(1), CopyType::kBF16, options_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(first->made);
  EXPECT_EQ(first->path.filename().string(), *hash_file(small(1), nullptr) + ".bf16.gguf");
  std::filesystem::copy(small(1), folder_ / "renamed.gguf");
  const auto second = weight_copy(folder_ / "renamed.gguf", CopyType::kBF16, options_);
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(second->made);
  EXPECT_EQ(second->path, first->path);
  const auto again = weight_copy(first->path, CopyType::kBF16, options_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->path, first->path) << "a copy needs no copy";
}

TEST_F(WeightCopyTest, AChangedFileGetsAnotherCopy) {
  const auto first = weight_copy(small(1), CopyType::kF16, options_);
  std::filesystem::rename(small(2), folder_ / "small-1.gguf");
  const auto second = weight_copy(folder_ / "small-1.gguf", CopyType::kF16, options_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->path, second->path);
}

TEST_F(WeightCopyTest, TheCapHoldsAndTheLeastRecentlyUsedGoes) {
  const uint64_t one = weight_copy(small(1), CopyType::kBF16, options_)->bytes;
  options_.cap_bytes = 2 * one + one / 2;
  const auto path_of = [&](int number) {
    return weight_copy(small(number), CopyType::kBF16, options_)->path;
  };
  const auto first = path_of(1), second = path_of(2);
  path_of(1);  // used again: the second is now the oldest
  const auto third = weight_copy(small(3), CopyType::kBF16, options_);
  ASSERT_TRUE(third.ok()) << third.error().message;
  EXPECT_THAT(third->removed, testing::ElementsAre(second));
  EXPECT_TRUE(std::filesystem::exists(first));
  EXPECT_LE(bytes_kept(), options_.cap_bytes);
  options_.cap_bytes = one / 2;
  const auto refused = weight_copy(small(4), CopyType::kBF16, options_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kTooLarge);
  EXPECT_THAT(refused.error().message, HasSubstr("raise its cap"));
  EXPECT_TRUE(std::filesystem::exists(first)) << "nothing goes for a copy that cannot come";
}

TEST_F(WeightCopyTest, CancelledOrBrokenNothingIsLeft) {
  RH_REQUIRE_TINY_MODEL(path, "llama-q8_0");
  options_.on_progress = [](uint64_t, uint64_t) { return false; };
  const auto cancelled = weight_copy(path, CopyType::kF32, options_);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(bytes_kept(), 0u);
  const std::filesystem::path leftover = folder_ / "home/weights/dead.f32.gguf.making";
  ASSERT_TRUE(replace_file(leftover, "left by a maker that was killed").ok());
  options_.on_progress = nullptr;
  ASSERT_TRUE(weight_copy(path, CopyType::kF32, options_).ok());
  EXPECT_FALSE(std::filesystem::exists(leftover));
}

TEST_F(WeightCopyTest, ACutCopyIsMadeAgain) {
  const auto copy = weight_copy(small(1), CopyType::kF16, options_);
  ASSERT_TRUE(copy.ok());
  std::filesystem::resize_file(copy->path, 100);
  const auto again = weight_copy(small(1), CopyType::kF16, options_);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->made);
  EXPECT_EQ(std::filesystem::file_size(copy->path), copy->bytes);
}

TEST_F(WeightCopyTest, HashesAreRememberedWhileTheFileStaysTheSame) {
  int passes = 0;
  const HashProgress count = [&](uint64_t, uint64_t) { return ++passes > 0; };
  const auto path = small(1);
  const std::string first = *known_hash(path, folder_, count);
  EXPECT_EQ(*known_hash(path, folder_, count), first);
  EXPECT_EQ(passes, 1);
  ASSERT_TRUE(replace_file(path, "other").ok());
  EXPECT_NE(*known_hash(path, folder_, count), first);
  EXPECT_EQ(passes, 2);
  EXPECT_FALSE(known_hash(folder_ / "absent", folder_).ok());
}

}  // namespace
}  // namespace rhapsode::model
