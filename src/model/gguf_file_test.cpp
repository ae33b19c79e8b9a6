#include "model/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <limits>

#include "support/gguf_writer.h"
#include "support/test_models.h"

namespace rhapsode::model {
namespace {

using test::GgufWriter;
using test::small_model;
using testing::HasSubstr;

Result<GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)));
}

class GgufFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("rhapsode-gguf-{}-{}", ::getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST(GgufFile, ReadsWhatWasWritten) {
  GgufWriter writer = small_model();
  writer.scalar<int8_t>("t.i8", GgufWriter::kI8, -3);
  writer.scalar<uint64_t>("t.u64", GgufWriter::kU64, UINT64_MAX);
  writer.array<uint16_t>("t.numbers", GgufWriter::kU16, {7, 65535});
  const std::string bytes = writer.bytes();
  auto file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->text("general.architecture"), "llama");
  EXPECT_EQ(file->integer("llama.block_count"), 1);
  EXPECT_EQ(file->integer("t.i8"), -3);
  EXPECT_EQ(file->integer("t.u64"), std::nullopt);  // does not fit without loss
  EXPECT_EQ(file->number("llama.rope.freq_base"), 10000.0);
  EXPECT_EQ(file->number("llama.block_count"), 1.0);
  EXPECT_EQ(file->integer("llama.rope.freq_base"), std::nullopt);
  EXPECT_EQ(file->boolean("tokenizer.ggml.add_bos_token"), true);
  EXPECT_EQ(file->boolean("llama.block_count"), std::nullopt);
  EXPECT_FALSE(file->has("absent"));
  const GgufArray* tokens = file->array("tokenizer.ggml.tokens");
  ASSERT_NE(tokens, nullptr);
  EXPECT_EQ(tokens->size(), 6u);
  EXPECT_EQ(tokens->text(2), "ab");
  EXPECT_EQ(tokens->text(3), "");
  EXPECT_EQ(tokens->text(6), std::nullopt);
  EXPECT_EQ(tokens->integer(0), std::nullopt);
  EXPECT_EQ(file->array("t.numbers")->integer(1), 65535);
  ASSERT_EQ(file->tensors().size(), 3u);
  const GgufTensor* q = file->tensor("blk.0.attn_q.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->shape, (std::array<int64_t, 4>{32, 32, 1, 1}));
  EXPECT_EQ(q->dims, 2);
  EXPECT_EQ(q->data.size(), 32u * 34);
  EXPECT_EQ(file->tensor("blk.0"), nullptr);
  EXPECT_EQ(file->file_bytes(), bytes.size());
}

struct Damage {
  const char* name = nullptr;
  std::function<std::string()> bytes;
  const char* message;  // must stand in the error
};

std::string with(const std::function<void(GgufWriter&)>& change) {
  GgufWriter writer = small_model();
  change(writer);
  return writer.bytes();
}

template <typename T>
std::string swapped(std::string_view key, GgufWriter::Type type, T value) {
  return with([&](GgufWriter& w) {
    w.remove(key);
    w.scalar(key, type, value);
  });
}

std::string with_tensor(GgufWriter::Tensor tensor) {
  return with([&](GgufWriter& w) { w.tensors[1] = std::move(tensor); });
}

std::string with_tokens(std::vector<std::string> tokens) {
  return with([&](GgufWriter& w) {
    w.remove("tokenizer.ggml.tokens");
    w.strings("tokenizer.ggml.tokens", tokens);
  });
}

std::string sentence_piece(int left_out) {
  return test::small_sentence_piece_model(left_out).bytes();
}

const std::vector<Damage> kLayoutDamages = {
    {"empty", [] { return std::string(); }, "GGUF header"},
    {"header_cut", [] { return small_model().bytes().substr(0, 20); }, "24 bytes, but it has 20"},
    {"magic", [] { return with([](auto& w) { w.magic = "GGML"; }); },
     "not a GGUF file: it starts with 'GGML'"},
    {"magic_binary", [] { return with([](auto& w) { w.magic = "\x1b[2J"; }); }, "'\\x1b[2J'"},
    {"version_0", [] { return with([](auto& w) { w.version = 0; }); }, "version 0"},
    {"version_1", [] { return with([](auto& w) { w.version = 1; }); }, "version 1"},
    {"version_4", [] { return with([](auto& w) { w.version = 4; }); }, "version 4"},
    {"big_endian", [] { return with([](auto& w) { w.version = 3u << 24; }); }, "big-endian"},
    {"entries_huge", [] { return with([](auto& w) { w.claimed_entries = INT64_MAX; }); }, "metadata keys"},
    {"entries_many", [] { return with([](auto& w) { w.claimed_entries = 60000; }); },
     "a header of 60000 metadata keys"},
    {"entries_one_more", [] { return with([](auto& w) { w.claimed_entries = 17; }); },
     "tensor 1 of 3 claims a name"},
    {"tensors_huge", [] { return with([](auto& w) { w.claimed_tensors = INT64_MAX; }); }, "tensors"},
    {"tensors_one_more", [] { return with([](auto& w) { w.claimed_tensors = 4; }); }, "tensor 4 of 4"},
    {"key_empty", [] { return with([](auto& w) { w.scalar("", GgufWriter::kU8, '\1'); }); },
     "name of 0 bytes"},
    {"key_control", [] { return with([](auto& w) { w.scalar("a\nb", GgufWriter::kU8, '\1'); }); },
     "'a\\x0ab'"},
    {"key_long",
     [] { return with([](auto& w) { w.scalar(std::string(70000, 'k'), GgufWriter::kU8, '\1'); }); },
     "name of 70000 bytes"},
    {"key_twice", [] { return with([](auto& w) { w.string("general.name", "again"); }); },
     "'general.name' stands in the file twice"},
    {"type_unknown", [] { return with([](auto& w) { w.entry("x.y", 13, "12345678"); }); },
     "'x.y' has the unknown type 13"},
    {"string_long",
     [] { return with([](auto& w) { w.entry("x.y", 8, GgufWriter::raw(uint64_t{1} << 62)); }); },
     "'x.y' (a string of 4611686018427387904 bytes) needs"},
    {"boolean_2", [] { return with([](auto& w) { w.scalar("x.y", GgufWriter::kBool, '\2'); }); },
     "'x.y' is a boolean"},
    {"nan", [] { return swapped("llama.rope.freq_base", GgufWriter::kF64, std::nan("")); },
     "'llama.rope.freq_base' is not a finite number"},
    {"infinity",
     [] {
       return swapped("llama.attention.layer_norm_rms_epsilon", GgufWriter::kF32,
                      std::numeric_limits<float>::infinity());
     },
     "'llama.attention.layer_norm_rms_epsilon' is not a finite number"},
    {"array_of_arrays",
     [] {
       return with([](auto& w) {
         w.entry("x.y", 9,
                 GgufWriter::raw<uint32_t>(9) + GgufWriter::raw<uint64_t>(1) + std::string(32, '\0'));
       });
     },
     "'x.y' is an array of arrays"},
    {"array_type", [] { return with([](auto& w) { w.entry("x.y", 9, std::string(12, '\x63')); }); },
     "'x.y' is an array of the unknown type"},
    {"array_long",
     [] {
       return with([](auto& w) {
         w.entry("x.y", 9, GgufWriter::raw<uint32_t>(10) + GgufWriter::raw<uint64_t>(uint64_t{1} << 61));
       });
     },
     "'x.y' (an array of 2305843009213693952 elements) needs"},
    {"strings_long",
     [] {
       return with([](auto& w) {
         w.entry("x.y", 9,
                 GgufWriter::raw<uint32_t>(8) + GgufWriter::raw<uint64_t>(3) + GgufWriter::text("a") +
                     GgufWriter::raw<uint64_t>(UINT64_MAX));
       });
     },
     "string 1 of 3 in metadata key 'x.y'"},
    {"boolean_array",
     [] { return with([](auto& w) {
            w.template array<uint8_t>("x.y", GgufWriter::kBool, {0, 1, 9});
          }); },
     "'x.y' has the boolean 2"},
    {"alignment_3",
     [] {
       return with([](auto& w) { w.template scalar<uint32_t>("general.alignment", GgufWriter::kU32, 3); });
     },
     "'general.alignment' is 3"},
    {"alignment_0",
     [] {
       return with([](auto& w) { w.template scalar<uint32_t>("general.alignment", GgufWriter::kU32, 0); });
     },
     "'general.alignment' is 0"},
    {"alignment_huge",
     [] {
       return with(
           [](auto& w) { w.template scalar<uint32_t>("general.alignment", GgufWriter::kU32, 1u << 31); });
     },
     "'general.alignment' is 2147483648"},
    {"alignment_type",
     [] {
       return with([](auto& w) { w.template scalar<uint64_t>("general.alignment", GgufWriter::kU64, 32); });
     },
     "'general.alignment' is not of type u32"},
    {"tensor_name_empty",
     [] {
       return with_tensor({"", {32}, 0, 128});
     },
     "tensor 2 of 3 claims a name of 0 bytes"},
    {"tensor_name_long",
     [] {
       return with_tensor({std::string(64, 'n'), {32}, 0, 128});
     },
     "name of 64 bytes"},
    {"tensor_name_nul",
     [] {
       return with_tensor({std::string("a\0b", 3), {32}, 0, 128});
     },
     "'a\\x00b'"},
    {"tensor_twice",
     [] {
       return with_tensor({"token_embd.weight", {32}, 0, 128});
     },
     "tensor 'token_embd.weight' is described twice"},
    {"dims_0",
     [] {
       return with_tensor({"t", {}, 0, 128});
     },
     "tensor 't' has 0 dimensions"},
    {"dims_5",
     [] {
       return with_tensor({"t", {1, 1, 1, 1, 1}, 0, 128});
     },
     "tensor 't' has 5 dimensions"},
    {"extent_0",
     [] {
       return with_tensor({"t", {32, 0}, 0, 128});
     },
     "tensor 't' has 0 elements in dimension 1"},
    {"extent_negative",
     [] {
       return with_tensor({"t", {-32}, 0, 128});
     },
     "tensor 't' has -32 elements"},
    {"extent_overflow",
     [] {
       return with_tensor({"t", {1LL << 32, 1LL << 31}, 0, 128});
     },
     "tensor 't' has more elements"},
    {"bytes_overflow",
     [] {
       return with_tensor({"t", {1LL << 31, 1LL << 31}, 0, 128});
     },
     "tensor 't' has more bytes"},
    {"type_beyond",
     [] {
       return with_tensor({"t", {32}, 9999, 128});
     },
     "tensor 't' has the weight type 9999"},
    {"type_negative",
     [] {
       return with_tensor({"t", {32}, 0xFFFFFFFF, 128});
     },
     "tensor 't' has the weight type"},
    {"type_removed",
     [] {
       return with_tensor({"t", {32}, 4, 128});
     },
     "tensor 't' has the weight type 4"},
    {"row_not_blocks",
     [] {
       return with_tensor({"t", {33}, 8, 128});
     },
     "rows of 33 elements"},
    {"offset_unaligned",
     [] {
       return with_tensor({"t", {32}, 0, 128, 769});
     },
     "tensor 't' starts at byte 769"},
    {"offset_overlap",
     [] {
       return with_tensor({"t", {32}, 0, 128, 32});
     },
     "overlapping"},
    {"offset_gap",
     [] {
       return with_tensor({"t", {32}, 0, 128, 4096});
     },
     "gap"},
    {"offset_huge",
     [] {
       return with_tensor({"t", {32}, 0, 128, INT64_MAX - 31});
     },
     "tensor 't' starts at byte"},
    {"extent_beyond_file",
     [] {
       return with_tensor({"t", {1LL << 40}, 0, 128});
     },
     "tensor 't' (4398046511104 bytes) needs"},
    {"data_cut", [] { return small_model().bytes().substr(0, small_model().bytes().size() - 200); },
     "tensor 'blk.0.attn_q.weight'"},
    {"data_cut_last_byte", [] { return small_model().bytes().substr(0, small_model().bytes().size() - 1); },
     "tensor 'output_norm.weight' (128 bytes) needs"},
    {"shard",
     [] { return with([](auto& w) { w.template scalar<uint16_t>("split.count", GgufWriter::kU16, 2); }); },
     "one shard of a split model"},
};

const std::vector<Damage> kVocabularyDamages = {
    {"no_architecture", [] { return with([](auto& w) { w.remove("general.architecture"); }); },
     "'general.architecture'"},
    {"architecture_type", [] { return swapped<uint32_t>("general.architecture", GgufWriter::kU32, 1); },
     "'general.architecture'"},
    {"no_model", [] { return with([](auto& w) { w.remove("tokenizer.ggml.model"); }); },
     "'tokenizer.ggml.model'"},
    {"model_unknown",
     [] {
       return with([](auto& w) {
         w.remove("tokenizer.ggml.model");
         w.string("tokenizer.ggml.model", "none");
       });
     },
     "'tokenizer.ggml.model' is 'none'"},
    {"no_tokens", [] { return with([](auto& w) { w.remove("tokenizer.ggml.tokens"); }); },
     "'tokenizer.ggml.tokens'"},
    {"tokens_type", [] { return swapped<uint32_t>("tokenizer.ggml.tokens", GgufWriter::kU32, 6); },
     "'tokenizer.ggml.tokens' is missing or not an array of strings"},
    {"tokens_empty", [] { return with_tokens({}); }, "has 0 tokens"},
    {"tokens_twice",
     [] {
       return with_tokens({"a", "b", "ab", "b", "<s>", "</s>"});
     },
     "tokens 1 and 3"},
    {"tokens_empty_name",
     [] {
       return with_tokens({"a", "[EMPTY_3]", "ab", "", "<s>", "</s>"});
     },
     "tokens 1 and 3"},
    {"token_types_short",
     [] {
       return with_tokens({"a", "b", "ab", "", "<s>", "</s>", "x"});
     },
     "'tokenizer.ggml.scores' has 6 entries for 7 tokens"},
    {"scores_nan",
     [] {
       return with([](auto& w) {
         w.remove("tokenizer.ggml.scores");
         w.template array<float>("tokenizer.ggml.scores", GgufWriter::kF32, {0, 0, NAN, 0, 0, 0});
       });
     },
     "'tokenizer.ggml.scores' of token 2"},
    {"scores_type",
     [] {
       return with([](auto& w) {
         w.remove("tokenizer.ggml.scores");
         w.template array<uint8_t>("tokenizer.ggml.scores", GgufWriter::kU8, {0, 0, 0, 0, 0, 0});
       });
     },
     "'tokenizer.ggml.scores' is not an array of f32"},
    {"token_type_type",
     [] {
       return with([](auto& w) {
         w.remove("tokenizer.ggml.token_type");
         w.template array<uint8_t>("tokenizer.ggml.token_type", GgufWriter::kU8, {0, 0, 0, 0, 0, 0});
       });
     },
     "'tokenizer.ggml.token_type' is not an array of i32"},
    {"byte_token_shape",
     [] {
       return with([](auto& w) {
         w.remove("tokenizer.ggml.token_type");
         w.template array<int32_t>("tokenizer.ggml.token_type", GgufWriter::kI32, {1, 6, 1, 1, 3, 3});
       });
     },
     "token 1 of 'tokenizer.ggml.tokens' is a byte by its type"},
    {"no_merges", [] { return with([](auto& w) { w.remove("tokenizer.ggml.merges"); }); },
     "'tokenizer.ggml.merges'"},
    {"special_outside", [] { return swapped<uint32_t>("tokenizer.ggml.eos_token_id", GgufWriter::kU32, 6); },
     "'tokenizer.ggml.eos_token_id' is token 6"},
    {"special_type", [] { return swapped<float>("tokenizer.ggml.eos_token_id", GgufWriter::kF32, 5); },
     "'tokenizer.ggml.eos_token_id' is not a whole number"},
    {"added_nothing", [] { return with([](auto& w) { w.remove("tokenizer.ggml.bos_token_id"); }); },
     "'tokenizer.ggml.add_bos_token' asks"},
    {"flag_type", [] { return swapped<uint32_t>("tokenizer.ggml.add_bos_token", GgufWriter::kU32, 1); },
     "'tokenizer.ggml.add_bos_token' is not a boolean"},
    {"pre_type", [] { return swapped<uint32_t>("tokenizer.ggml.pre", GgufWriter::kU32, 1); },
     "'tokenizer.ggml.pre'"},
    {"template_type", [] { return swapped<uint32_t>("tokenizer.chat_template", GgufWriter::kU32, 1); },
     "'tokenizer.chat_template' is not a string"},
    {"template_utf8",
     [] {
       return with([](auto& w) {
         w.remove("tokenizer.chat_template");
         w.string("tokenizer.chat_template", "\xC0\xAF");
       });
     },
     "'tokenizer.chat_template' is not valid UTF-8"},
    {"byte_missing", [] { return sentence_piece(0x41); }, "no token for the byte 0x41"},
};

void PrintTo(const Damage& damage, std::ostream* out) {
  *out << damage.name;
}

class DamagedGguf : public testing::TestWithParam<Damage> {};

TEST_P(DamagedGguf, IsRefusedByNameAtOnce) {
  const std::string bytes = GetParam().bytes();
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const auto start = std::chrono::steady_clock::now();
  auto file = parse(bytes);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.error().message, HasSubstr(GetParam().message));
  EXPECT_LT(seconds.count(), 0.5);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 * 1024) << "KiB: no allocation by a claimed number";
}

INSTANTIATE_TEST_SUITE_P(Layout, DamagedGguf, testing::ValuesIn(kLayoutDamages),
                         [](const auto& damage) { return std::string(damage.param.name); });
INSTANTIATE_TEST_SUITE_P(Vocabulary, DamagedGguf, testing::ValuesIn(kVocabularyDamages),
                         [](const auto& damage) { return std::string(damage.param.name); });

TEST(GgufFile, ASoundSentencePieceVocabularyPasses) {
  const std::string bytes = sentence_piece(-1);
  const auto file = parse(bytes);
  EXPECT_TRUE(file.ok()) << file.error().message;
}

TEST(GgufFile, EveryPrefixIsRefused) {
  const std::string bytes = small_model().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of its own, so that a sanitizer sees the first byte read past the end.
    const std::vector<char> prefix(bytes.begin(), bytes.begin() + static_cast<long>(size));
    ASSERT_FALSE(GgufFile::parse(std::as_bytes(std::span(prefix))).ok()) << size;
  }
}

TEST(GgufFile, NoSingleBitFlipCrashes) {
  const std::string sound = small_model().bytes();
  for (size_t bit = 0; bit < 8 * (sound.size() - 2000); ++bit) {
    std::string bytes = sound;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const auto file = parse(bytes);
    if (!file.ok()) {
      ASSERT_FALSE(file.error().message.empty()) << bit;
    }
  }
}

TEST(GgufFile, TokensMadeToCollideEndInLinearTime) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 300000; ++i) tokens.push_back(fmt::format("t{}", i));
  GgufWriter writer = small_model();
  for (const char* key : {"tokens", "scores", "token_type"})
    writer.remove(fmt::format("tokenizer.ggml.{}", key));
  writer.strings("tokenizer.ggml.tokens", tokens);
  const std::string bytes = writer.bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto file = parse(bytes);
  EXPECT_TRUE(file.ok()) << file.error().message;
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1.0);
}

TEST_F(GgufFolder, MissingFilesAndFoldersAreNamed) {
  const auto missing = GgufFile::open(folder_ / "none.gguf");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("none.gguf"));
  const auto folder = GgufFile::open(folder_);
  ASSERT_FALSE(folder.ok());
  EXPECT_THAT(folder.error().message, HasSubstr("not a regular file"));
}

class SplitGguf : public GgufFolder {
 protected:
  std::filesystem::path shard(int number) const {
    return folder_ / fmt::format("m-{:05}-of-00003.gguf", number);
  }
  void SetUp() override {
    GgufFolder::SetUp();
    for (int i = 1; i <= 3; ++i) write(i, i - 1, 3, 3);
  }
  void write(int number, uint16_t split_no, uint16_t split_count, int32_t tensors) {
    GgufWriter writer = number == 1 ? small_model() : GgufWriter();
    const GgufWriter::Tensor tensor = small_model().tensors[static_cast<size_t>(number - 1)];
    writer.tensors = {tensor};
    writer.scalar("split.no", GgufWriter::kU16, split_no);
    writer.scalar("split.count", GgufWriter::kU16, split_count);
    writer.scalar("split.tensors.count", GgufWriter::kI32, tensors);
    writer.save(shard(number));
  }
  std::string refusal(const std::filesystem::path& path) {
    auto file = GgufFile::open(path);
    return file.ok() ? "accepted" : file.error().message;
  }
};

TEST_F(SplitGguf, AllShardsAreLoaded) {
  auto file = GgufFile::open(shard(1));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 3u);
  EXPECT_NE(file->tensor("output_norm.weight"), nullptr);
  EXPECT_EQ(file->tensor("output_norm.weight")->data.size(), 128u);
  EXPECT_EQ(file->integer("split.no"), 0);
}

TEST_F(SplitGguf, DamageIsNamed) {
  EXPECT_THAT(refusal(shard(2)), HasSubstr("open the first one, m-00001-of-00003.gguf"));
  write(2, 2, 3, 3);
  EXPECT_THAT(refusal(shard(1)), HasSubstr("do not make it shard 2 of 3"));
  write(2, 1, 3, 3);
  write(1, 0, 3, 4);
  EXPECT_THAT(refusal(shard(1)), HasSubstr("'split.tensors.count' is 4"));
  write(1, 5, 3, 3);
  EXPECT_THAT(refusal(shard(1)), HasSubstr("make no sense"));
  write(1, 0, 3, 3);
  std::filesystem::resize_file(shard(2), std::filesystem::file_size(shard(2)) - 200);
  EXPECT_THAT(refusal(shard(1)), HasSubstr("tensor 'blk.0.attn_q.weight'"));
  std::filesystem::remove(shard(3));
  write(2, 1, 3, 3);
  EXPECT_THAT(refusal(shard(1)), HasSubstr("shard 3 of 3 is missing: " + shard(3).string()));
  std::filesystem::rename(shard(1), folder_ / "renamed.gguf");
  EXPECT_THAT(refusal(folder_ / "renamed.gguf"), HasSubstr("its name must end in '-00001-of-00003.gguf'"));
}

class RealGguf : public GgufFolder {};

TEST_F(RealGguf, OpensAndItsCutsAreRefused) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  auto whole = GgufFile::open(path);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->text("general.architecture"), "llama");
  EXPECT_EQ(whole->tensors().size(), 272u);
  const uint64_t size = whole->file_bytes();
  std::vector<char> content(size);
  std::ifstream(path, std::ios::binary).read(content.data(), static_cast<std::streamsize>(size));
  const struct {
    uint64_t bytes;
    const char* named;
  } cuts[] = {{1024, "272 tensors"}, {size / 2, "tensor 'blk."}, {size - 1, "tensor 'output_norm.weight'"}};
  for (const auto& [bytes, named] : cuts) {
    std::ofstream(folder_ / "cut.gguf", std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(bytes));
    const auto cut = GgufFile::open(folder_ / "cut.gguf");
    ASSERT_FALSE(cut.ok()) << bytes;
    EXPECT_EQ(cut.error().kind, ErrorKind::kCorrupt);
    EXPECT_THAT(cut.error().message, HasSubstr(named));
    EXPECT_THAT(cut.error().message, HasSubstr(std::to_string(bytes))) << "the actual size";
  }
}

}  // namespace
}  // namespace rhapsode::model
