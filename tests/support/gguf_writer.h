// Writes small GGUF files in memory, sound or damaged on purpose. For tests and fuzz seeds only.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::test {

class GgufWriter {
 public:
  // The types as the format numbers them.
  enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t type = 0;
    uint64_t bytes = 0;
    int64_t offset = -1;    // -1: right behind the tensor before it
    std::string data = {};  // of `bytes` bytes; empty: any
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  int64_t claimed_entries = -1;  // -1: the truth
  int64_t claimed_tensors = -1;
  uint64_t alignment = 32;
  std::vector<Tensor> tensors;

  template <typename T>
  static std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string text(std::string_view value) { return raw<uint64_t>(value.size()) + std::string(value); }

  // Any entry, byte for byte: the value follows the type.
  void entry(std::string_view key, uint32_t type, std::string value) {
    entries_.push_back({std::string(key), text(key) + raw(type) + std::move(value)});
  }
  template <typename T>
  void scalar(std::string_view key, Type type, T value) {
    entry(key, type, raw(value));
  }
  void string(std::string_view key, std::string_view value) { entry(key, kString, text(value)); }
  void strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = raw<uint32_t>(kString) + raw<uint64_t>(values.size());
    for (const std::string& value : values) bytes += text(value);
    entry(key, kArray, std::move(bytes));
  }
  template <typename T>
  void array(std::string_view key, Type type, const std::vector<T>& values) {
    std::string bytes = raw<uint32_t>(type) + raw<uint64_t>(values.size());
    for (const T& value : values) bytes += raw(value);
    entry(key, kArray, std::move(bytes));
  }
  void remove(std::string_view key) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
  }

  std::string bytes() const {
    std::string out = magic + raw(version);
    out += raw<int64_t>(claimed_tensors < 0 ? static_cast<int64_t>(tensors.size()) : claimed_tensors);
    out += raw<int64_t>(claimed_entries < 0 ? static_cast<int64_t>(entries_.size()) : claimed_entries);
    for (const Entry& entry : entries_) out += entry.bytes;
    uint64_t expected = 0;
    for (const Tensor& tensor : tensors) {
      out += text(tensor.name) + raw<uint32_t>(static_cast<uint32_t>(tensor.shape.size()));
      for (const int64_t extent : tensor.shape) out += raw(extent);
      out += raw(tensor.type) +
             raw<uint64_t>(tensor.offset < 0 ? expected : static_cast<uint64_t>(tensor.offset));
      expected += padded(tensor.bytes);
    }
    out.resize(padded(out.size()));
    for (const Tensor& tensor : tensors) {
      const size_t begin = out.size();
      out.resize(begin + padded(tensor.bytes), '\1');
      out.replace(begin, tensor.data.size(), tensor.data);
    }
    return out;
  }

  void save(const std::filesystem::path& path) const {
    const std::string content = bytes();
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }

 private:
  struct Entry {
    std::string key, bytes;
  };
  uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
  std::vector<Entry> entries_;
};

// A sound little file: byte-level BPE vocabulary of six tokens, three tensors.
inline GgufWriter small_model() {
  GgufWriter writer;
  writer.string("general.architecture", "llama");
  writer.string("general.name", "small");
  writer.scalar<uint32_t>("llama.block_count", GgufWriter::kU32, 1);
  writer.scalar<uint32_t>("llama.context_length", GgufWriter::kU32, 64);
  writer.scalar<float>("llama.attention.layer_norm_rms_epsilon", GgufWriter::kF32, 1e-5f);
  writer.scalar<double>("llama.rope.freq_base", GgufWriter::kF64, 10000.0);
  writer.string("tokenizer.ggml.model", "gpt2");
  writer.string("tokenizer.ggml.pre", "default");
  writer.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "", "<s>", "</s>"});
  writer.array<int32_t>("tokenizer.ggml.token_type", GgufWriter::kI32, {1, 1, 1, 1, 3, 3});
  writer.array<float>("tokenizer.ggml.scores", GgufWriter::kF32, {0, 0, -1, -2, 0, 0});
  writer.strings("tokenizer.ggml.merges", {"a b"});
  writer.scalar<uint32_t>("tokenizer.ggml.bos_token_id", GgufWriter::kU32, 4);
  writer.scalar<uint32_t>("tokenizer.ggml.eos_token_id", GgufWriter::kU32, 5);
  writer.scalar<uint8_t>("tokenizer.ggml.add_bos_token", GgufWriter::kBool, 1);
  writer.string("tokenizer.chat_template", "{{ messages }}");
  writer.tensors = {{"token_embd.weight", {32, 6}, 0, 32 * 6 * 4},
                    {"blk.0.attn_q.weight", {32, 32}, 8, 32 * 34},
                    {"output_norm.weight", {32}, 0, 32 * 4}};
  return writer;
}

// The same with a SentencePiece vocabulary: six tokens and those of the 256 bytes, without `left_out` (-1:
// none).
inline GgufWriter small_sentence_piece_model(int left_out = -1) {
  GgufWriter writer = small_model();
  for (const char* key : {"model", "pre", "tokens", "token_type", "scores", "merges"}) {
    writer.remove(std::string("tokenizer.ggml.").append(key));
  }
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "x", "y", "z"};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1};
  std::vector<float> scores(6, 0.0f);
  for (int i = 0; i < 256; ++i) {
    if (i == left_out) continue;
    constexpr char kDigits[] = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kDigits[i / 16] + kDigits[i % 16] + ">");
    types.push_back(6);
    scores.push_back(static_cast<float>(-i));
  }
  writer.string("tokenizer.ggml.model", "llama");
  writer.strings("tokenizer.ggml.tokens", tokens);
  writer.array("tokenizer.ggml.token_type", GgufWriter::kI32, types);
  writer.array("tokenizer.ggml.scores", GgufWriter::kF32, scores);
  return writer;
}

}  // namespace rhapsode::test
