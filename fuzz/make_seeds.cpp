// make_seeds FOLDER: writes the seeds of the GGUF target to FOLDER/gguf.
#include <cstdio>
#include <filesystem>

#include "support/gguf_writer.h"

using rhapsode::test::GgufWriter;

namespace {

// What the forward pass asks of a model, so that mutations reach the architecture's checks.
GgufWriter runnable_model() {
  GgufWriter writer = rhapsode::test::small_model();
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
  GgufWriter writer = rhapsode::test::small_model();
  writer.scalar<int8_t>("t.i8", GgufWriter::kI8, -1);
  writer.scalar<int64_t>("t.i64", GgufWriter::kI64, -1);
  writer.scalar<uint64_t>("t.u64", GgufWriter::kU64, ~0ull);
  writer.array<uint8_t>("t.flags", GgufWriter::kBool, {0, 1});
  writer.array<double>("t.numbers", GgufWriter::kF64, {0.5, 2.0});
  writer.scalar<uint32_t>("general.alignment", GgufWriter::kU32, 64);
  writer.scalar<uint16_t>("split.count", GgufWriter::kU16, 1);
  writer.alignment = 64;
  return writer;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: make_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = std::filesystem::path(arguments[1]) / "gguf";
  std::filesystem::create_directories(folder);
  rhapsode::test::small_model().save(folder / "bpe");
  rhapsode::test::small_sentence_piece_model().save(folder / "spm");
  runnable_model().save(folder / "runnable");
  adapter().save(folder / "adapter");
  every_type().save(folder / "types");
  return 0;
}
