// Tokenizer: text to token ids and back, exactly as the model's vocabulary in its GGUF file says.
//
// Text is bytes; UTF-8 is expected. Bytes that are not valid UTF-8 are read as U+FFFD; NUL bytes are ordinary
// characters. Some vocabularies (SmolLM2's) have no token for some rare bytes: the model cannot see them, so
// they are left out, as by the reference. Two kinds of text exist. Text of users and documents is never
// searched for control tokens: "<|im_end|>" typed by a user is ten ordinary characters. Trusted text (a chat
// template's own) may contain them. encode_parts() takes a mixture and gives the ids that the model's
// reference tokenizer gives for the whole text, whatever the borders between the parts; only control tokens
// are confined to the trusted parts. Tokens that the publisher declared as "user defined" are words of the
// vocabulary, not control tokens, and are found in any text, as the reference does.
//
// Ownership: shared and immutable; the file is closed after load. Threads: every call may run on any thread
// at any time. Errors: Result values; a text over 700 MB is kTooLarge. Cost: load 0.1-0.3 s, encode about 4
// MB/s a thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/result.h"
#include "text/control_tokens.h"

struct llama_model;
struct llama_vocab;

namespace rhapsode::text {

inline constexpr int32_t kNoToken = -1;

struct EncodeOptions {
  bool add_special = false;    // put begin and end tokens where the model's file asks for them, never twice
  bool parse_special = false;  // the text is trusted: its control tokens are meant
};

struct TextPart {
  std::string_view text;
  bool trusted = false;
};

struct DecodeOptions {
  bool special = false;   // write control tokens as their names instead of leaving them out
  bool at_start = false;  // the tokens begin a text: drop the space that some vocabularies put before it
};

class Tokenizer : public std::enable_shared_from_this<Tokenizer> {
 public:
  // Reads only the vocabulary and the chat template. Refused, with the field named: a file without a
  // vocabulary, kinds other than byte-pair (gpt2) and sentencepiece (llama), and a missing or unknown
  // pre-tokenizer.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& gguf);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;
  Result<std::vector<int32_t>> encode_parts(std::span<const TextPart> parts, bool add_special) const;

  // The bytes of the pieces, joined. Ids outside the vocabulary are left out.
  std::string decode(std::span<const int32_t> tokens, DecodeOptions options = {}) const;

  // The bytes one token stands for, maybe only a part of a character; empty for an id outside the vocabulary,
  // and for a control token unless `special`.
  std::string piece(int32_t id, bool special = false) const;

  int32_t size() const { return size_; }
  bool contains(int32_t id) const { return id >= 0 && id < size_; }

  // Ids of begin of text, end of text and end of turn; kNoToken where the vocabulary has none.
  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }
  int32_t eot() const { return eot_; }
  bool adds_bos() const { return adds_bos_; }
  bool adds_eos() const { return adds_eos_; }
  bool is_end_of_generation(int32_t id) const;
  bool is_control(int32_t id) const;

  // The Jinja source of the model's chat template, if it has one.
  const std::optional<std::string>& chat_template() const { return chat_template_; }
  const std::string& pre_tokenizer() const { return pre_tokenizer_; }

  const ControlTokens& control_tokens() const { return control_tokens_; }

  // For samplers and grammars of libllama; lives as long as the tokenizer.
  const llama_vocab* vocab() const { return vocab_; }

 private:
  explicit Tokenizer(llama_model* model);
  Result<std::vector<int32_t>> encode_between(std::string_view text,
                                              std::span<const ControlMatch> matches) const;
  Status append_plain(std::string_view text, std::vector<int32_t>& out) const;
  Status append_pieces(std::string_view text, std::vector<int32_t>& out) const;

  llama_model* model_;
  const llama_vocab* vocab_;
  int32_t size_;
  int32_t bos_;
  int32_t eos_;
  int32_t eot_;
  bool adds_bos_;
  bool adds_eos_;
  ControlTokens control_tokens_;
  bool adds_space_prefix_ = false;
  bool guards_regex_ = false;
  std::string pre_tokenizer_;
  std::optional<std::string> chat_template_;
};

}  // namespace rhapsode::text
