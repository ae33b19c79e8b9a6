// Copies of a model's weights in another number format, kept in HOME/weights under a byte cap.
//
// A BF16 copy of a quantised file holds the same weights up to rounding and is multiplied 2-4 times as fast
// by CPUs with bf16 dot products; F16 and F32 copies serve exact comparisons. Matrices are converted, vectors
// kept as they are. The copy is named by the SHA-256 of the file it was made from, written beside its place
// and moved there whole. Room is made first: the copies used longest ago go, so the folder never holds more
// than the cap. Adapters are not copied. Cost: reads the file and writes 2 or 4 bytes a weight, on `threads`
// threads with a few MiB each; hashing the file the first time. Threads and processes: any; makers of copies
// wait for each other. Errors: kTooLarge when the copy alone is over the cap, kNoSpace before anything is
// written, those of GgufFile and io/file.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/result.h"
#include "model/gguf_file.h"

namespace rhapsode::model {

enum class CopyType : uint8_t { kBF16, kF16, kF32 };
const char* to_string(CopyType type);  // "bf16", "f16", "f32"

struct WeightCopyOptions {
  std::filesystem::path home;  // empty: home_folder()
  uint64_t cap_bytes = 8ull << 30;
  int threads = 0;  // 0: usable_cores()
  // Called from the caller's thread; false cancels and leaves nothing.
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> on_progress;
};

struct WeightCopy {
  std::filesystem::path path;  // the model's own when it has this type already
  uint64_t bytes = 0;
  bool made = false;                           // false: it was there
  std::vector<std::filesystem::path> removed;  // copies that had to make room
};

Result<WeightCopy> weight_copy(const std::filesystem::path& model, CopyType type,
                               const WeightCopyOptions& options = {});

// Bytes the copy has, without making it.
uint64_t weight_copy_bytes(const GgufFile& file, CopyType type);

// Whether the CPU back end multiplies BF16 with dot-product instructions (AVX512-BF16 or AMX): as the loaded
// ggml says.
bool cpu_has_bf16_dot_products();

}  // namespace rhapsode::model
