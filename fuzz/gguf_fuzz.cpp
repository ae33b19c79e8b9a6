// Any bytes as a GGUF file: parsing never crashes, and what is accepted can be read without harm, by us and
// by libllama's vocabulary loader, which sees every accepted file in the product.
#include <llama.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/architecture.h"
#include "model/gguf_file.h"

using namespace rhapsode::model;

namespace {

volatile uint64_t sink;  // keeps reads alive

void read_array(const GgufArray& array) {
  for (size_t i = 0; i <= array.size(); ++i) {
    const bool text = array.text(i).has_value();
    if (text != (array.type() == GgufType::kString && i < array.size())) std::abort();
    if (text) sink = sink + array.text(i)->size();
    sink = sink + static_cast<uint64_t>(array.integer(i).value_or(0));
    sink = sink + static_cast<uint64_t>(array.number(i).has_value());
  }
}

void read_everything(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    if (!file.has(key) || file.raw_entry(key).empty()) std::abort();
    if (const auto text = file.text(key)) sink = sink + text->size();
    sink = sink + static_cast<uint64_t>(file.integer(key).value_or(0)) + file.boolean(key).value_or(false);
    if (const GgufArray* array = file.array(key)) read_array(*array);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.data.empty() || file.tensor(tensor.name) == nullptr) std::abort();
    sink = sink + static_cast<uint64_t>(tensor.data.front()) + static_cast<uint64_t>(tensor.data.back());
  }
  if (const auto architecture = parse_architecture(file); architecture.ok()) {
    sink = sink + tensor_needs(*architecture).size();
  }
}

// An abort inside libllama ends the process here as it would end the product.
void load_vocabulary(const uint8_t* data, size_t size) {
  const int descriptor = ::memfd_create("gguf", 0);
  if (descriptor < 0 || ::write(descriptor, data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(path.c_str(), params);
  if (model != nullptr) {
    const llama_vocab* vocabulary = llama_model_get_vocab(model);
    llama_token tokens[64];
    sink =
        sink + static_cast<uint64_t>(llama_tokenize(vocabulary, "a b\n\xc3\xa9", 6, tokens, 64, true, true));
    llama_model_free(model);
  }
  ::close(descriptor);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) {
    if (file.error().message.empty()) std::abort();
    return 0;
  }
  read_everything(*file);
  if (file->has("tokenizer.ggml.model")) load_vocabulary(data, size);
  return 0;
}
