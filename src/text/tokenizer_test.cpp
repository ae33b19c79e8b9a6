#include "text/tokenizer.h"

#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "support/test_models.h"
#include "text/regex_guard.h"
#include "text/utf8_gate.h"

namespace rhapsode::text {
namespace {

using ::testing::HasSubstr;

std::string to_utf8(uint32_t point) {
  std::string out;
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | point >> 6);
    out += static_cast<char>(0x80 | (point & 63));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | point >> 12);
    out += static_cast<char>(0x80 | (point >> 6 & 63));
    out += static_cast<char>(0x80 | (point & 63));
  } else {
    out += static_cast<char>(0xF0 | point >> 18);
    out += static_cast<char>(0x80 | (point >> 12 & 63));
    out += static_cast<char>(0x80 | (point >> 6 & 63));
    out += static_cast<char>(0x80 | (point & 63));
  }
  return out;
}

// Any assigned or unassigned code point but surrogates, with ASCII and white space often.
std::string random_text(std::mt19937& random) {
  std::string text;
  const size_t length = random() % 40;
  for (size_t i = 0; i < length; ++i) {
    const uint32_t kind = random() % 8;
    uint32_t point = random() % 128;
    if (kind == 0) point = std::string(" \t\r\n\v '")[random() % 7];
    if (kind == 1) point = 0x80 + random() % 0x700;
    if (kind == 2) point = 0x800 + random() % 0xF800;
    if (kind == 3) point = 0x10000 + random() % 0x100000;
    if (point >= 0xD800 && point < 0xE000) point -= 0x800;
    text += to_utf8(point);
  }
  return text;
}

// SmolLM2 has no token for 16 bytes that occur in hardly any text (0x13, 0xF1, ...): they vanish.
std::string without_unknown_bytes(const Tokenizer& tokenizer, const std::string& text) {
  std::array<bool, 256> known{};
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string piece = tokenizer.piece(id);
    if (piece.size() == 1) known[static_cast<unsigned char>(piece[0])] = true;
  }
  std::string out;
  for (const char c : text) {
    if (known[static_cast<unsigned char>(c)]) out += c;
  }
  return out;
}

std::vector<int32_t> reference(const Tokenizer& tokenizer, const std::string& text, bool parse_special) {
  std::vector<int32_t> ids(text.size() + 16);
  const int32_t count = llama_tokenize(tokenizer.vocab(), text.data(), static_cast<int32_t>(text.size()),
                                       ids.data(), static_cast<int32_t>(ids.size()), false, parse_special);
  ids.resize(static_cast<size_t>(std::max(count, 0)));
  return ids;
}

// A vocabulary of single bytes, with what a test adds or breaks: byte-pair in GPT-2's alphabet, or
// sentencepiece.
class TinyVocabulary {
 public:
  explicit TinyVocabulary(const char* model = "gpt2") : file_(gguf_init_empty()) {
    gguf_set_val_str(file_, "general.architecture", "llama");
    gguf_set_val_str(file_, "tokenizer.ggml.model", model);
    if (model == std::string("gpt2")) {
      gguf_set_val_str(file_, "tokenizer.ggml.pre", "gpt-2");
      for (uint32_t byte = 0, extra = 0; byte < 256; ++byte) {
        const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        add(to_utf8(printable ? byte : 256 + extra++));
      }
      add("<|end|>", LLAMA_TOKEN_TYPE_CONTROL);
    } else {
      add("<unk>", LLAMA_TOKEN_TYPE_UNKNOWN);
      add("<s>", LLAMA_TOKEN_TYPE_CONTROL);
      add("</s>", LLAMA_TOKEN_TYPE_CONTROL);
      char name[8];
      for (int byte = 0; byte < 256; ++byte) {
        snprintf(name, sizeof(name), "<0x%02X>", byte);
        add(name, LLAMA_TOKEN_TYPE_BYTE);
      }
      for (const char* word : {"▁", "a", "b", "▁a", "ab", "▁ab", "\n"}) add(word);
      add("<|endoftext|>", LLAMA_TOKEN_TYPE_CONTROL);
      add("<|user|>", LLAMA_TOKEN_TYPE_CONTROL);
      add("<tool>", LLAMA_TOKEN_TYPE_USER_DEFINED);
    }
  }
  ~TinyVocabulary() { gguf_free(file_); }

  gguf_context* file() { return file_; }

  void add(const std::string& token, int32_t type = LLAMA_TOKEN_TYPE_NORMAL) {
    tokens_.push_back(token);
    types_.push_back(type);
  }

  std::filesystem::path write(const std::string& name) {
    std::vector<const char*> texts;
    for (const std::string& token : tokens_) texts.push_back(token.c_str());
    std::vector<float> scores(tokens_.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(tokens_[i].size());
    gguf_set_arr_str(file_, "tokenizer.ggml.tokens", texts.data(), texts.size());
    gguf_set_arr_data(file_, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types_.data(), types_.size());
    gguf_set_arr_data(file_, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
    const char* merge = "a b";
    gguf_set_arr_str(file_, "tokenizer.ggml.merges", &merge, 1);
    const auto path = std::filesystem::path(::testing::TempDir()) / (name + ".gguf");
    EXPECT_TRUE(gguf_write_to_file(file_, path.c_str(), /*only_meta=*/true));
    return path;
  }

 private:
  gguf_context* file_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

std::string load_error(const std::filesystem::path& path) {
  auto result = Tokenizer::load(path);
  return result.ok() ? "loaded" : result.error().message;
}

std::shared_ptr<const Tokenizer> load(const std::filesystem::path& path) {
  auto result = Tokenizer::load(path);
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return *result;
}

class TokenizerOfModel : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, TokenizerOfModel, ::testing::Values("smollm2-135m", "qwen2.5-coder-0.5b"),
                         [](const auto& model) { return std::string(model.param).substr(0, 5); });

TEST_P(TokenizerOfModel, T6SpecimenHasTheReferencesIdsAndRoundTrips) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  const std::string text = "Grüße, naïve façade — 42 ☃ 한글\r\n\t";
  auto ids = tokenizer->encode(text);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(*ids, reference(*tokenizer, text, false));
  EXPECT_EQ(tokenizer->decode(*ids), text);
}

TEST_P(TokenizerOfModel, T6TenThousandRandomTextsHaveTheReferencesIdsAndRoundTrip) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  std::mt19937 random(6);
  std::string all_texts;
  std::string all_decoded;
  for (int i = 0; i < 10000; ++i) {
    const std::string text = random_text(random);
    auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    ASSERT_EQ(*ids, reference(*tokenizer, text, false));
    all_texts += text;
    all_decoded += tokenizer->decode(*ids);
  }
  EXPECT_TRUE(all_decoded == without_unknown_bytes(*tokenizer, all_texts));
}

TEST_P(TokenizerOfModel, RandomBytesAreSafeAndReadAsReplacementCharacters) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const bool parse = random() % 2 == 0;
    auto ids = tokenizer->encode(bytes, {.add_special = true, .parse_special = parse});
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    for (const int32_t id : *ids) ASSERT_TRUE(tokenizer->contains(id));
    auto cleaned = tokenizer->encode(to_valid_utf8(bytes), {.add_special = true, .parse_special = parse});
    ASSERT_TRUE(cleaned.ok());
    ASSERT_EQ(*ids, *cleaned);
  }
}

TEST_P(TokenizerOfModel, EmptyTextAndNulBytesAreText) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  auto empty = tokenizer->encode("");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->empty());
  EXPECT_EQ(tokenizer->decode({}), "");
  const std::string text("a\0b\0\0c", 6);
  auto ids = tokenizer->encode(text);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer->decode(*ids), text);
}

TEST_P(TokenizerOfModel, ControlTokensTypedByUsersStayText) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  int found = 0;
  for (int32_t id = 0; id < tokenizer->size(); ++id) {
    if (!tokenizer->is_control(id)) continue;
    ++found;
    const std::string text = "before " + tokenizer->piece(id, true) + " after";
    auto typed = tokenizer->encode(text);
    ASSERT_TRUE(typed.ok());
    for (const int32_t token : *typed) EXPECT_FALSE(tokenizer->is_control(token)) << text;
    EXPECT_EQ(tokenizer->decode(*typed), text);
    auto trusted = tokenizer->encode(text, {.parse_special = true});
    ASSERT_TRUE(trusted.ok());
    EXPECT_EQ(std::count(trusted->begin(), trusted->end(), id), 1) << text;
  }
  EXPECT_GT(found, 3);
}

TEST_P(TokenizerOfModel, PartsAreEncodedAsTheWholeTextWould) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  std::mt19937 random(8);
  const std::array<std::string, 6> pool = {"<|im_start|>", "<|im_end|>", "\n", " ", "user", "<|endoftext|>"};
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> texts;
    std::vector<bool> trusted;
    for (size_t part = random() % 6; part > 0; --part) {
      trusted.push_back(random() % 2 == 0);
      texts.push_back(trusted.back() ? pool[random() % pool.size()] : random_text(random));
    }
    std::vector<TextPart> parts;
    std::string whole;
    for (size_t k = 0; k < texts.size(); ++k) {
      parts.push_back({texts[k], trusted[k]});
      whole += texts[k];
    }
    auto ids = tokenizer->encode_parts(parts, false);
    ASSERT_TRUE(ids.ok());
    ASSERT_EQ(*ids, reference(*tokenizer, whole, true)) << whole;
  }
}

TEST_P(TokenizerOfModel, AControlTokenIsNotPutTogetherFromTwoParts) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  const std::array<TextPart, 3> parts = {TextPart{"<|im_", true}, TextPart{"end", false},
                                         TextPart{"|>", true}};
  auto ids = tokenizer->encode_parts(parts, false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, reference(*tokenizer, "<|im_end|>", false));
  const std::array<TextPart, 2> both = {TextPart{"<|im_", true}, TextPart{"end|>", true}};
  auto joined = tokenizer->encode_parts(both, false);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(*joined, reference(*tokenizer, "<|im_end|>", true));
}

TEST_P(TokenizerOfModel, LongRunsNeitherCrashNorTakeLong) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  for (const char* unit : {"a", " ", "7", "\n", "!", "é", "\xFF", " a", "x1"}) {
    std::string text;
    while (text.size() < 100000) text += unit;
    auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.ok()) << unit;
    if (is_valid_utf8(text)) {
      EXPECT_EQ(tokenizer->decode(*ids), text) << unit;
    }
  }
}

TEST_P(TokenizerOfModel, ThreadsShareOneTokenizer) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  const std::string text = "Threads share one tokenizer: ёжик 😺 数.";
  const std::vector<int32_t> expected = reference(*tokenizer, text, false);
  std::array<int, 4> equal{};
  std::vector<std::thread> threads;
  for (int& count : equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        auto ids = tokenizer->encode(text);
        count += ids.ok() && *ids == expected && tokenizer->decode(*ids) == text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(equal, ::testing::Each(200));
}

TEST_P(TokenizerOfModel, IdsOutsideTheVocabularyAreNoText) {
  RH_REQUIRE_MODEL(path, GetParam());
  const auto tokenizer = load(path);
  for (const int32_t id : {-1, tokenizer->size(), INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(tokenizer->piece(id, true), "");
    EXPECT_FALSE(tokenizer->is_end_of_generation(id));
    EXPECT_FALSE(tokenizer->is_control(id));
  }
}

TEST(Tokenizer, T5BeginTokenIsAddedOnceAndOnlyWhereTheFileAsks) {
  for (const bool adds : {true, false}) {
    TinyVocabulary tiny;
    gguf_set_val_u32(tiny.file(), "tokenizer.ggml.bos_token_id", 256);
    gguf_set_val_bool(tiny.file(), "tokenizer.ggml.add_bos_token", adds);
    const auto tokenizer = load(tiny.write("begin"));
    EXPECT_EQ(tokenizer->adds_bos(), adds);
    const std::array<std::string, 2> texts = {"x", "<|end|>x"};
    for (const std::string& text : texts) {
      auto ids = tokenizer->encode(text, {.add_special = true, .parse_special = true});
      ASSERT_TRUE(ids.ok());
      const bool expected = adds || text.starts_with('<');
      EXPECT_EQ(std::count(ids->begin(), ids->end(), 256), expected ? 1 : 0) << text;
    }
    auto typed = tokenizer->encode("<|end|>x", {.add_special = true});
    ASSERT_TRUE(typed.ok());
    EXPECT_EQ(std::count(typed->begin(), typed->end(), 256), adds ? 1 : 0);
  }
}

TEST(Tokenizer, SentencepieceHasTheReferencesIdsAndRoundTrips) {
  for (const char* name : {"plain", "phi-3"}) {  // libllama gives the control tokens of Phi-3 right stripping
    TinyVocabulary tiny("llama");
    gguf_set_val_str(tiny.file(), "general.name", name);
    const auto tokenizer = load(tiny.write(name));
    EXPECT_TRUE(tokenizer->adds_bos());
    std::mt19937 random(9);
    const std::array<std::string, 9> pool = {"a", "b", " ", "\n", "é", "<|user|>", "<s>", "<tool>", "  "};
    for (int i = 0; i < 2000; ++i) {
      std::vector<TextPart> parts;
      std::string whole;
      for (size_t k = random() % 10; k > 0; --k) {
        const std::string& text = pool[random() % pool.size()];
        const bool is_control = text == "<|user|>" || text == "<s>";
        parts.push_back({text, is_control || random() % 2 == 0});
        whole += text;
      }
      auto ids = tokenizer->encode_parts(parts, false);
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      ASSERT_EQ(*ids, reference(*tokenizer, whole, true)) << whole;
      auto typed = tokenizer->encode(whole);
      ASSERT_TRUE(typed.ok());
      ASSERT_EQ(*typed, reference(*tokenizer, whole, false)) << whole;
      if (whole.find("<tool>") != std::string::npos) continue;  // libllama puts a space behind it
      ASSERT_EQ(tokenizer->decode(*typed, {.at_start = true}), whole);
    }
  }
}

TEST(Tokenizer, T6UnknownOrMissingPreTokenizerIsRefusedByName) {
  TinyVocabulary unknown;
  gguf_set_val_str(unknown.file(), "tokenizer.ggml.pre", "from-the-future");
  EXPECT_THAT(load_error(unknown.write("unknown")), HasSubstr("from-the-future"));
  TinyVocabulary missing;
  gguf_remove_key(missing.file(), "tokenizer.ggml.pre");
  EXPECT_THAT(load_error(missing.write("missing")), HasSubstr("tokenizer.ggml.pre"));
}

TEST(Tokenizer, DamagedVocabulariesAreRefusedWithTheFieldNamed) {
  TinyVocabulary twice;
  twice.add("a");
  EXPECT_THAT(load_error(twice.write("twice")), HasSubstr("token 257 occurs twice"));
  TinyVocabulary reserved;
  reserved.add("[EMPTY_3]");
  EXPECT_THAT(load_error(reserved.write("reserved")), HasSubstr("reserved"));
  TinyVocabulary giant;
  giant.add(std::string(100000, 'a'));
  EXPECT_THAT(load_error(giant.write("giant")), HasSubstr("bytes long"));
  TinyVocabulary kind;
  gguf_set_val_str(kind.file(), "tokenizer.ggml.model", "bert");
  EXPECT_THAT(load_error(kind.write("kind")), HasSubstr("'bert'"));
  TinyVocabulary type;
  gguf_set_val_u32(type.file(), "tokenizer.ggml.model", 3);
  EXPECT_THAT(load_error(type.write("type")), HasSubstr("not a string"));
}

TEST(Tokenizer, FilesThatAreNoModelsAreRefused) {
  const auto folder = std::filesystem::path(::testing::TempDir());
  EXPECT_THAT(load_error(folder / "absent.gguf"), HasSubstr("absent.gguf"));
  std::ofstream(folder / "text.gguf") << "not a model";
  EXPECT_THAT(load_error(folder / "text.gguf"), HasSubstr("not a readable GGUF"));
}

TEST(Tokenizer, PreTokenizersOnStdRegexSurviveLongRuns) {
  TinyVocabulary tiny;
  gguf_set_val_str(tiny.file(), "tokenizer.ggml.pre", "tekken");
  const auto tokenizer = load(tiny.write("tekken"));
  for (const char* unit : {"a", " ", "7", "\n", "!", "é", "aB"}) {
    std::string text;
    while (text.size() < 100000) text += unit;
    auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.ok()) << unit;
    EXPECT_EQ(tokenizer->decode(*ids), text) << unit;
  }
}

TEST(RegexGuard, CutsOnlyLongRunsAndOnlyBetweenCharacters) {
  EXPECT_EQ(cut_long_runs("").size(), 1u);
  std::string prose;
  for (int i = 0; i < 10000; ++i) prose += "word, ";
  EXPECT_EQ(cut_long_runs(prose).size(), 1u);
  std::string run;
  for (int i = 0; i < 5000; ++i) run += "é";
  std::string joined;
  for (const std::string_view piece : cut_long_runs(run)) {
    EXPECT_TRUE(is_valid_utf8(piece));
    EXPECT_LE(piece.size(), kLongestRun + 4);
    joined += piece;
  }
  EXPECT_EQ(joined, run);
}

}  // namespace
}  // namespace rhapsode::text
