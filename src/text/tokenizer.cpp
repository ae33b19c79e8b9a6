#include "text/tokenizer.h"

#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <exception>
#include <limits>

#include "base/result.h"
#include "text/library_log.h"
#include "text/regex_guard.h"
#include "text/utf8_gate.h"
#include "text/vocabulary_check.h"

namespace rhapsode::text {
namespace {

struct GgufDeleter {
  void operator()(gguf_context* file) const { gguf_free(file); }
};

Result<VocabularyKind> read_kind(const std::filesystem::path& path) {
  const std::unique_ptr<gguf_context, GgufDeleter> file(
      gguf_init_from_file(path.c_str(), gguf_init_params{/*no_alloc=*/true, /*ctx=*/nullptr}));
  if (!file) return make_error(ErrorKind::kCorrupt, "{}: not a readable GGUF file", path.string());
  return check_vocabulary(file.get(), path);
}

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// One text and the stretches of it that may hold control tokens.
struct JoinedParts {
  std::string text;
  std::vector<TextRange> trusted;

  // Broken UTF-8 is replaced here, since libllama lets some of it (surrogates, values over U+10FFFF) through.
  explicit JoinedParts(std::span<const TextPart> parts) {
    for (const TextPart& part : parts) {
      const size_t begin = text.size();
      text += to_valid_utf8(part.text);
      if (!part.trusted || text.size() == begin) continue;
      const bool continues = !trusted.empty() && trusted.back().end == begin;
      if (!continues) trusted.push_back({begin, begin});
      trusted.back().end = text.size();
    }
  }
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& gguf) {
  const LibraryLog log;
  try {
    RH_TRY(VocabularyKind kind, read_kind(gguf));
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_model* model = llama_model_load_from_file(gguf.c_str(), params);
    if (!model) {
      return make_error(ErrorKind::kUnsupported, "{}: the vocabulary cannot be used: {}", gguf.string(),
                        log.last_complaint());
    }
    std::shared_ptr<Tokenizer> tokenizer(new Tokenizer(model));
    tokenizer->guards_regex_ = kind.model == "gpt2" && needs_regex_guard(kind.pre_tokenizer);
    tokenizer->pre_tokenizer_ = std::move(kind.pre_tokenizer);
    RH_TRY(const std::vector<int32_t> probe, tokenizer->encode("a"));
    tokenizer->adds_space_prefix_ = tokenizer->decode(probe).starts_with(' ');
    return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
  } catch (const std::exception& exception) {
    return make_error(ErrorKind::kUnsupported, "{}: the vocabulary cannot be used: {}", gguf.string(),
                      exception.what());
  }
}

Tokenizer::Tokenizer(llama_model* model)
    : model_(model),
      vocab_(llama_model_get_vocab(model)),
      size_(llama_vocab_n_tokens(vocab_)),
      bos_(llama_vocab_bos(vocab_)),
      eos_(llama_vocab_eos(vocab_)),
      eot_(llama_vocab_eot(vocab_)),
      adds_bos_(llama_vocab_get_add_bos(vocab_) && bos_ != kNoToken),
      adds_eos_(llama_vocab_get_add_eos(vocab_) && eos_ != kNoToken),
      control_tokens_(vocab_) {
  if (const char* source = llama_model_chat_template(model, nullptr)) chat_template_ = source;
}

Tokenizer::~Tokenizer() {
  llama_model_free(model_);
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  return contains(id) && llama_vocab_is_eog(vocab_, id);
}

bool Tokenizer::is_control(int32_t id) const {
  return contains(id) && llama_vocab_is_control(vocab_, id);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextPart part{text, options.parse_special};
  return encode_parts({&part, 1}, options.add_special);
}

Result<std::vector<int32_t>> Tokenizer::encode_parts(std::span<const TextPart> parts,
                                                     bool add_special) const {
  size_t bytes = 0;
  for (const TextPart& part : parts) bytes += part.text.size();
  // Replacement characters may triple a text of broken bytes.
  if (bytes > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 3) {
    return make_error(ErrorKind::kTooLarge, "a text of {} bytes is too long to encode at once: split it",
                      bytes);
  }
  try {
    const JoinedParts joined(parts);
    RH_TRY(std::vector<int32_t> tokens,
           encode_between(joined.text, control_tokens_.find(joined.text, joined.trusted)));
    if (add_special && adds_bos_ && (tokens.empty() || tokens.front() != bos_))
      tokens.insert(tokens.begin(), bos_);
    if (add_special && adds_eos_ && (tokens.empty() || tokens.back() != eos_)) tokens.push_back(eos_);
    return tokens;
  } catch (const std::exception& exception) {
    return make_error(ErrorKind::kInternal, "the vocabulary cannot encode this text: {}", exception.what());
  }
}

Result<std::vector<int32_t>> Tokenizer::encode_between(std::string_view text,
                                                       std::span<const ControlMatch> matches) const {
  std::vector<int32_t> tokens;
  size_t begin = 0;
  bool strips = false;
  for (const ControlMatch& match : matches) {
    size_t end = match.where.begin;
    while (strips && begin < end && is_space(text[begin])) ++begin;
    while (match.token->strips_left && begin < end && is_space(text[end - 1])) --end;
    RH_TRY_STATUS(append_plain(text.substr(begin, end - begin), tokens));
    tokens.push_back(match.token->id);
    begin = match.where.end;
    strips = match.token->strips_right;
  }
  while (strips && begin < text.size() && is_space(text[begin])) ++begin;
  RH_TRY_STATUS(append_plain(text.substr(begin), tokens));
  return tokens;
}

Status Tokenizer::append_plain(std::string_view text, std::vector<int32_t>& out) const {
  if (!guards_regex_) return append_pieces(text, out);
  for (const std::string_view piece : cut_long_runs(text)) RH_TRY_STATUS(append_pieces(piece, out));
  return {};
}

Status Tokenizer::append_pieces(std::string_view text, std::vector<int32_t>& out) const {
  if (text.empty()) return {};
  const size_t old_size = out.size();
  const auto bytes = static_cast<int32_t>(text.size());
  // Ordinary text has over four bytes a token; a second call with the exact number serves the rest.
  int32_t room = bytes / 3 + 16;
  for (int attempt = 0; attempt < 2; ++attempt) {
    out.resize(old_size + static_cast<size_t>(room));
    const int32_t count =
        llama_tokenize(vocab_, text.data(), bytes, out.data() + old_size, room, /*add_special=*/false,
                       /*parse_special=*/false);
    if (count >= 0) {
      out.resize(old_size + static_cast<size_t>(count));
      return {};
    }
    if (count == std::numeric_limits<int32_t>::min()) break;
    room = -count;
  }
  out.resize(old_size);
  return make_error(ErrorKind::kTooLarge, "a text of {} bytes has more tokens than can be counted: split it",
                    bytes);
}

std::string Tokenizer::decode(std::span<const int32_t> tokens, DecodeOptions options) const {
  std::string text;
  for (const int32_t id : tokens) text += piece(id, options.special);
  if (options.at_start && adds_space_prefix_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string Tokenizer::piece(int32_t id, bool special) const {
  std::string bytes(15, '\0');  // fits without an allocation
  if (!contains(id)) return {};
  int32_t count =
      llama_token_to_piece(vocab_, id, bytes.data(), static_cast<int32_t>(bytes.size()), 0, special);
  if (count < 0) {
    bytes.resize(static_cast<size_t>(-count));
    count = llama_token_to_piece(vocab_, id, bytes.data(), -count, 0, special);
  }
  bytes.resize(static_cast<size_t>(std::max(count, 0)));
  return bytes;
}

}  // namespace rhapsode::text
