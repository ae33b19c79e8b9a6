// Arbitrary bytes as a GGUF file: they are refused with a sentence, or everything they claim can be read, by
// us and by libllama's vocabulary loader, which sees every accepted file in the product and aborts on what it
// cannot bear.
#include <llama.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/gguf_file.h"
#include "support/gguf_writer.h"

namespace rhapsode::model {
namespace {

using test::GgufWriter;

volatile uint64_t sink = 0;  // keeps reads alive

// Every element of an array must be readable at every index below its size, and at none above.
void read_array(const GgufArray& array) {
  for (size_t i = 0; i < array.size(); ++i) {
    sink = sink + static_cast<uint64_t>(array.integer(i).value_or(0)) + array.number(i).has_value();
    if (const auto text = array.text(i)) {
      for (const char c : *text) sink = sink + static_cast<uint8_t>(c);
    }
  }
  if (array.integer(array.size()) || array.text(array.size())) std::abort();
}

void read_everything(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    if (!file.has(key) || file.raw_entry(key).size() < key.size()) std::abort();
    sink = sink + static_cast<uint64_t>(file.integer(key).value_or(0)) + file.number(key).has_value();
    sink = sink + file.boolean(key).value_or(false) + file.text(key).value_or("").size();
    if (const GgufArray* array = file.array(key)) read_array(*array);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.data.empty() || file.tensor(tensor.name) == nullptr) std::abort();
    sink = sink + std::to_integer<uint64_t>(tensor.data.front() ^ tensor.data.back());
  }
  const auto architecture = parse_architecture(file);
  if (architecture.ok()) sink = sink + tensor_needs(*architecture).size();
}

void load_vocabulary(const uint8_t* data, size_t size) {
  const int descriptor = ::memfd_create("gguf", 0);
  if (descriptor < 0 || ::write(descriptor, data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(path.c_str(), params);
  if (model != nullptr) {
    const std::string text = "a b\né";
    std::vector<llama_token> tokens(64);
    sink = sink + static_cast<uint64_t>(llama_tokenize(llama_model_get_vocab(model), text.data(),
                                                       static_cast<int>(text.size()), tokens.data(), 64,
                                                       /*add_special=*/true, /*parse_special=*/true));
    llama_model_free(model);
  }
  ::close(descriptor);
}

void check(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (file.ok()) {
    read_everything(*file);
    if (file->has("tokenizer.ggml.model")) load_vocabulary(data, size);
  } else if (file.error().message.empty()) {
    std::abort();
  }
}

// What the forward pass asks of a model, so that mutations reach the architecture's checks.
GgufWriter runnable_model() {
  GgufWriter writer = test::small_model();
  writer.scalar<uint32_t>("llama.embedding_length", GgufWriter::kU32, 32);
  writer.scalar<uint32_t>("llama.feed_forward_length", GgufWriter::kU32, 64);
  writer.scalar<uint32_t>("llama.attention.head_count", GgufWriter::kU32, 2);
  writer.scalar<uint32_t>("llama.attention.head_count_kv", GgufWriter::kU32, 1);
  writer.scalar<uint32_t>("llama.rope.dimension_count", GgufWriter::kU32, 16);
  return writer;
}

GgufWriter adapter() {
  GgufWriter writer;
  writer.string("general.architecture", "llama");
  writer.string("general.type", "adapter");
  writer.string("adapter.type", "lora");
  writer.scalar<float>("adapter.lora.alpha", GgufWriter::kF32, 8.0f);
  writer.tensors = {{"blk.0.attn_q.weight.lora_a", {32, 4}, 0, 512},
                    {"blk.0.attn_q.weight.lora_b", {4, 32}, 0, 512}};
  return writer;
}

GgufWriter every_type() {
  GgufWriter writer = test::small_model();
  writer.scalar<int8_t>("t.i8", GgufWriter::kI8, -1);
  writer.scalar<int64_t>("t.i64", GgufWriter::kI64, -1);
  writer.scalar<uint64_t>("t.u64", GgufWriter::kU64, ~0ull);
  writer.array<uint8_t>("t.flags", GgufWriter::kBool, {0, 1});
  writer.array<double>("t.numbers", GgufWriter::kF64, {0.5, 2.0});
  writer.scalar<uint32_t>("general.alignment", GgufWriter::kU32, 64);
  writer.alignment = 64;
  return writer;
}

const std::vector<std::string>& sound_files() {
  static const std::vector<std::string> files = {
      test::small_model().bytes(), test::small_sentence_piece_model().bytes(), runnable_model().bytes(),
      adapter().bytes(), every_type().bytes()};
  return files;
}

}  // namespace
}  // namespace rhapsode::model

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rhapsode::model::check(data, size);
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// An empty corpus starts from sound files, else the fuzzer would first have to guess the format; later ones
// return now and then, so that every kind is mutated.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const auto& files = rhapsode::model::sound_files();
  if (size < 8 || seed % 64 == 0) {
    const std::string& sound = files[seed / 64 % files.size()];
    if (sound.size() <= max_size) {
      std::copy(sound.begin(), sound.end(), data);
      size = sound.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
