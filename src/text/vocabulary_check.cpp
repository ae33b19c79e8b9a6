#include "text/vocabulary_check.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_set>

namespace rhapsode::text {
namespace {

constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kPreKey[] = "tokenizer.ggml.pre";
constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr size_t kLongestToken = 4096;  // bytes; libllama's grammars recurse once a character

Result<std::string> read_string(const gguf_context* file, const char* key) {
  const int64_t id = gguf_find_key(file, key);
  if (id < 0) return std::string();
  if (gguf_get_kv_type(file, id) != GGUF_TYPE_STRING) {
    return make_error(ErrorKind::kCorrupt, "field '{}' is not a string", key);
  }
  return std::string(gguf_get_val_str(file, id));
}

bool is_array_of(const gguf_context* file, int64_t id, gguf_type type) {
  return gguf_get_kv_type(file, id) == GGUF_TYPE_ARRAY && gguf_get_arr_type(file, id) == type;
}

// libllama indexes tokens by text and asserts that no two are equal; it names empty ones "[EMPTY_<id>]"
// first.
Status check_tokens(const gguf_context* file) {
  const int64_t id = gguf_find_key(file, kTokensKey);
  if (id < 0)
    return make_error(ErrorKind::kUnsupported, "field '{}' is missing: the file has no vocabulary",
                      kTokensKey);
  if (!is_array_of(file, id, GGUF_TYPE_STRING)) {
    return make_error(ErrorKind::kCorrupt, "field '{}' is not an array of strings", kTokensKey);
  }
  const size_t count = gguf_get_arr_n(file, id);
  if (count == 0 || count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return make_error(ErrorKind::kCorrupt, "field '{}' has {} tokens", kTokensKey, count);
  }
  std::unordered_set<std::string_view> seen;
  seen.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view token = gguf_get_arr_str(file, id, i);
    if (token.size() > kLongestToken) {
      return make_error(ErrorKind::kCorrupt, "field '{}': token {} is {} bytes long", kTokensKey, i,
                        token.size());
    }
    if (token.starts_with("[EMPTY_")) {
      return make_error(ErrorKind::kCorrupt, "field '{}': token {} has a reserved name", kTokensKey, i);
    }
    if (!token.empty() && !seen.insert(token).second) {
      return make_error(ErrorKind::kCorrupt, "field '{}': token {} occurs twice", kTokensKey, i);
    }
  }
  return {};
}

Status check_kind(const VocabularyKind& kind) {
  if (kind.model.empty()) return make_error(ErrorKind::kUnsupported, "field '{}' is missing", kModelKey);
  if (kind.model != "gpt2" && kind.model != "llama") {
    return make_error(ErrorKind::kUnsupported,
                      "tokenizer '{}' (field '{}') is not supported: only gpt2 and llama are", kind.model,
                      kModelKey);
  }
  if (kind.model == "gpt2" && kind.pre_tokenizer.empty()) {
    return make_error(
        ErrorKind::kUnsupported,
        "field '{}' is missing: without the pre-tokenizer's name tokens would differ from the model's; "
        "convert the model again with a recent converter",
        kPreKey);
  }
  return {};
}

Result<VocabularyKind> check(const gguf_context* file) {
  VocabularyKind kind;
  RH_TRY(kind.model, read_string(file, kModelKey));
  RH_TRY(kind.pre_tokenizer, read_string(file, kPreKey));
  RH_TRY_STATUS(check_kind(kind));
  RH_TRY_STATUS(check_tokens(file));
  return kind;
}

}  // namespace

Result<VocabularyKind> check_vocabulary(const gguf_context* file, const std::filesystem::path& path) {
  auto kind = check(file);
  if (!kind.ok()) return make_error(kind.error().kind, "{}: {}", path.string(), kind.error().message);
  return kind;
}

}  // namespace rhapsode::text
