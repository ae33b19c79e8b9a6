#include "model/gguf_vocabulary.h"

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "base/text_check.h"

namespace rhapsode::model {
namespace {

constexpr size_t kMaxTokens = 1u << 20;
constexpr size_t kMaxTokenBytes = 1u << 16;
constexpr size_t kMaxTemplateBytes = 1u << 20;
constexpr int64_t kNoToken = 0xFFFFFFFF;  // how converters write "none"
constexpr int64_t kByteTokenType = 6;     // LLAMA_TOKEN_TYPE_BYTE

constexpr std::string_view kSpecialTokenKeys[] = {
    "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",     "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",     "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.seperator_token_id",
    "tokenizer.ggml.padding_token_id", "tokenizer.ggml.cls_token_id",     "tokenizer.ggml.mask_token_id",
    "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.fim_mid_token_id",
    "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
    "tokenizer.ggml.prefix_token_id",  "tokenizer.ggml.suffix_token_id",  "tokenizer.ggml.middle_token_id",
};

// What the loader assumes where the file says nothing; -1 = no such token.
struct Defaults {
  std::string_view model;
  int64_t begin;
  int64_t end;
  int64_t separator;
};
constexpr Defaults kKnownModels[] = {{"gpt2", 11, 11, -1}, {"llama", 1, 2, -1}, {"bert", 101, -1, 102}};

class VocabularyCheck {
 public:
  VocabularyCheck(const GgufFile& file, const std::string& label) : file_(file), label_(label) {}
  Status run();

 private:
  template <typename... Args>
  Error damaged(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorKind::kCorrupt, "{}: {}", label_,
                      fmt::format(format, std::forward<Args>(args)...));
  }
  Status check_kinds() const;
  Status check_side_arrays() const;
  Status check_distinct() const;
  Status check_special_ids() const;
  Status check_added(const Defaults& defaults) const;
  Status check_byte_tokens(const Defaults& defaults) const;
  Status check_templates() const;
  std::string piece(size_t id) const;

  const GgufFile& file_;
  const std::string& label_;
  const GgufArray* tokens_ = nullptr;
};

// Text of a token as the loader keeps it: an empty one gets a made-up name.
std::string VocabularyCheck::piece(size_t id) const {
  const std::string_view text = *tokens_->text(id);
  return text.empty() ? fmt::format("[EMPTY_{}]", id) : std::string(text);
}

Status VocabularyCheck::run() {
  tokens_ = file_.array("tokenizer.ggml.tokens");
  if (!file_.has("tokenizer.ggml.model") && !file_.has("tokenizer.ggml.tokens")) return {};
  const std::optional<std::string_view> model = file_.text("tokenizer.ggml.model");
  if (!model) return damaged("metadata key 'tokenizer.ggml.model' is missing or not a string");
  const Defaults* defaults = nullptr;
  for (const Defaults& known : kKnownModels) {
    if (known.model == *model) defaults = &known;
  }
  if (defaults == nullptr) {
    return make_error(ErrorKind::kUnsupported,
                      "{}: 'tokenizer.ggml.model' is '{}'; this build treats gpt2, llama and bert", label_,
                      shown(*model));
  }
  if (tokens_ == nullptr || tokens_->type() != GgufType::kString) {
    return damaged("metadata key 'tokenizer.ggml.tokens' is missing or not an array of strings");
  }
  if (tokens_->size() == 0 || tokens_->size() > kMaxTokens) {
    return damaged("metadata key 'tokenizer.ggml.tokens' has {} tokens; 1 to {} are allowed", tokens_->size(),
                   kMaxTokens);
  }
  RH_TRY_STATUS(check_kinds());
  RH_TRY_STATUS(check_side_arrays());
  RH_TRY_STATUS(check_distinct());
  RH_TRY_STATUS(check_special_ids());
  RH_TRY_STATUS(check_added(*defaults));
  RH_TRY_STATUS(check_byte_tokens(*defaults));
  return check_templates();
}

Status VocabularyCheck::check_kinds() const {
  if (file_.has("tokenizer.ggml.pre") && !file_.text("tokenizer.ggml.pre")) {
    return damaged("metadata key 'tokenizer.ggml.pre' is not a string");
  }
  for (const std::string_view key :
       {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_sep_token",
        "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.remove_extra_whitespaces"}) {
    if (file_.has(key) && !file_.boolean(key)) return damaged("metadata key '{}' is not a boolean", key);
  }
  return {};
}

Status VocabularyCheck::check_side_arrays() const {
  const size_t count = tokens_->size();
  if (file_.has("tokenizer.ggml.scores")) {
    const GgufArray* scores = file_.array("tokenizer.ggml.scores");
    if (!scores || (scores->type() != GgufType::kF32 && scores->type() != GgufType::kI32)) {
      return damaged("metadata key 'tokenizer.ggml.scores' is not an array of f32 or i32");
    }
    if (scores->size() != count) {
      return damaged("metadata key 'tokenizer.ggml.scores' has {} entries for {} tokens", scores->size(),
                     count);
    }
    for (size_t i = 0; i < count; ++i) {
      if (std::isnan(*scores->number(i)))
        return damaged("'tokenizer.ggml.scores' of token {} is not a number", i);
    }
  }
  if (file_.has("tokenizer.ggml.token_type")) {
    const GgufArray* types = file_.array("tokenizer.ggml.token_type");
    if (!types || types->type() != GgufType::kI32) {
      return damaged("metadata key 'tokenizer.ggml.token_type' is not an array of i32");
    }
    if (types->size() != count) {
      return damaged("metadata key 'tokenizer.ggml.token_type' has {} entries for {} tokens", types->size(),
                     count);
    }
  }
  if (file_.text("tokenizer.ggml.model") == "gpt2" || file_.has("tokenizer.ggml.merges")) {
    const GgufArray* merges = file_.array("tokenizer.ggml.merges");
    if (!merges || merges->type() != GgufType::kString) {
      return damaged("metadata key 'tokenizer.ggml.merges' is missing or not an array of strings");
    }
  }
  return {};
}

// An open-addressing table; a bound on all probes together keeps text made to collide from taking more than
// linear time (and would have taken as long in the loader's own table).
Status VocabularyCheck::check_distinct() const {
  const size_t count = tokens_->size();
  const size_t mask = std::bit_ceil(2 * count) - 1;
  std::vector<uint32_t> table(mask + 1, 0);
  size_t probes_left = 64 * count + 4096;
  for (size_t id = 0; id < count; ++id) {
    std::string_view text = *tokens_->text(id);
    if (text.size() > kMaxTokenBytes)
      return damaged("token {} of 'tokenizer.ggml.tokens' has {} bytes", id, text.size());
    std::string made_up;
    if (text.empty()) text = made_up = piece(id);
    size_t slot = std::hash<std::string_view>{}(text)&mask;
    for (; table[slot] != 0; slot = (slot + 1) & mask) {
      const std::string_view other = *tokens_->text(table[slot] - 1);
      if (other == text || (other.empty() && piece(table[slot] - 1) == text)) {
        return damaged("tokens {} and {} of 'tokenizer.ggml.tokens' are equal: '{}'", table[slot] - 1, id,
                       shown(text));
      }
      if (--probes_left == 0) return damaged("the tokens of 'tokenizer.ggml.tokens' were made to collide");
    }
    table[slot] = static_cast<uint32_t>(id + 1);
  }
  return {};
}

Status VocabularyCheck::check_special_ids() const {
  for (const std::string_view key : kSpecialTokenKeys) {
    if (!file_.has(key)) continue;
    const std::optional<int64_t> id = file_.integer(key);
    if (!id) return damaged("metadata key '{}' is not a whole number", key);
    const bool none = *id == kNoToken || *id == -1;
    if (!none && (*id < 0 || *id >= static_cast<int64_t>(tokens_->size()))) {
      return damaged("metadata key '{}' is token {}, outside of the vocabulary of {}", key, *id,
                     tokens_->size());
    }
  }
  return {};
}

Status VocabularyCheck::check_added(const Defaults& defaults) const {
  const bool begins = defaults.model != "gpt2";  // what the loader does where the file says nothing
  const struct {
    std::string_view flag, id;
    int64_t fallback;
    bool by_default;
  } added[] = {
      {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", defaults.begin, begins},
      {"tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", defaults.end, false},
      {"tokenizer.ggml.add_sep_token", "tokenizer.ggml.seperator_token_id", defaults.separator,
       defaults.model == "bert"},
  };
  const auto count = static_cast<int64_t>(tokens_->size());
  for (const auto& [flag, key, fallback, by_default] : added) {
    if (!file_.boolean(flag).value_or(by_default)) continue;
    std::optional<int64_t> id = file_.integer(key);
    if (!id || *id == kNoToken) id = fallback;
    if (*id < 0 || *id >= count) {
      return damaged("'{}' asks for a token to be added, but '{}' names none in the vocabulary of {}", flag,
                     key, count);
    }
  }
  return {};
}

// A SentencePiece vocabulary writes what it lacks as bytes, so all 256 must be there; each must read <0xNN>.
Status VocabularyCheck::check_byte_tokens(const Defaults& defaults) const {
  const GgufArray* types = file_.array("tokenizer.ggml.token_type");
  std::array<bool, 256> there{};
  for (size_t id = 0; id < tokens_->size(); ++id) {
    const std::string_view text = *tokens_->text(id);
    const auto digit = [&](size_t at) -> int {
      const char c = text[at];
      return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    const bool shaped =
        text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') && digit(3) >= 0 && digit(4) >= 0;
    if (shaped) there[static_cast<size_t>(digit(3) * 16 + digit(4))] = true;
    if (text.size() == 1) there[static_cast<uint8_t>(text[0])] = true;
    if (!shaped && types != nullptr && types->integer(id) == kByteTokenType) {
      return damaged("token {} of 'tokenizer.ggml.tokens' is a byte by its type, but reads '{}'", id,
                     shown(text));
    }
  }
  if (defaults.model != "llama") return {};
  for (size_t byte = 0; byte < there.size(); ++byte) {
    if (!there[byte]) return damaged("'tokenizer.ggml.tokens' has no token for the byte 0x{:02X}", byte);
  }
  return {};
}

Status VocabularyCheck::check_templates() const {
  for (const std::string_view key : file_.keys()) {
    if (key == "tokenizer.chat_templates") continue;  // a list of names
    if (!key.starts_with("tokenizer.chat_template")) continue;
    const std::optional<std::string_view> text = file_.text(key);
    if (!text) return damaged("metadata key '{}' is not a string", key);
    if (text->size() > kMaxTemplateBytes) {
      return damaged("metadata key '{}' has {} bytes; at most {} are allowed", key, text->size(),
                     kMaxTemplateBytes);
    }
    if (!is_utf8(*text)) return damaged("metadata key '{}' is not valid UTF-8", key);
  }
  return {};
}

}  // namespace

Status check_general(const GgufFile& file, const std::string& label) {
  const std::optional<std::string_view> architecture = file.text("general.architecture");
  if (!architecture || architecture->empty()) {
    return make_error(ErrorKind::kCorrupt,
                      "{}: metadata key 'general.architecture' is missing or not a string", label);
  }
  if (architecture->size() > 64 || shown(*architecture) != *architecture) {
    return make_error(ErrorKind::kUnsupported,
                      "{}: 'general.architecture' is '{}', which this build does not know", label,
                      shown(*architecture));
  }
  return {};
}

Status check_vocabulary(const GgufFile& file, const std::string& label) {
  return VocabularyCheck(file, label).run();
}

}  // namespace rhapsode::model
