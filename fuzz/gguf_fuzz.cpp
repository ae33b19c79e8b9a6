// Arbitrary bytes as a GGUF file: they are refused with a sentence, or everything they claim can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "model/architecture.h"
#include "model/gguf_file.h"
#include "support/gguf_writer.h"

namespace rhapsode::model {
namespace {

// Every element of an array must be readable at every index below its size, and at none above.
void read_array(const GgufArray& array) {
  for (size_t i = 0; i < array.size(); ++i) {
    array.integer(i);
    array.number(i);
    array.text(i);
  }
  if (array.integer(array.size()) || array.text(array.size())) std::abort();
}

void read_everything(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    file.integer(key);
    file.number(key);
    file.boolean(key);
    file.text(key);
    if (const GgufArray* array = file.array(key)) read_array(*array);
  }
  unsigned sum = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (file.tensor(tensor.name) == nullptr) std::abort();
    if (!tensor.data.empty()) sum += std::to_integer<unsigned>(tensor.data.front() ^ tensor.data.back());
  }
  volatile unsigned sink = sum;
  static_cast<void>(sink);
  const auto architecture = parse_architecture(file);
  if (architecture.ok()) tensor_needs(*architecture);
}

void check(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (file.ok()) {
    read_everything(*file);
  } else if (file.error().message.empty()) {
    std::abort();
  }
}

}  // namespace
}  // namespace rhapsode::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rhapsode::model::check(data, size);
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// An empty corpus starts from a sound file, else the fuzzer would first have to guess the format.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned /*seed*/) {
  if (size < 8) {
    static const std::string sound = rhapsode::test::small_model().bytes();
    if (sound.size() <= max_size) {
      std::copy(sound.begin(), sound.end(), data);
      size = sound.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
