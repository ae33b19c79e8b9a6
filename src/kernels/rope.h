// Rotary position embedding (RoFormer, arXiv 2104.09864) for every kind whose angle is linear in position.
//
// angle(position, pair) = position * frequency[pair]; the frequencies are fixed at load and held in double
// precision, so shifting a page is exact up to float rounding of sine and cosine. Linear scaling, YaRN (arXiv
// 2309.00071), Llama-3 factors and partial rotation fit; length-dependent kinds (dynamic NTK, LongRoPE's
// switch) do not and are refused when a model is loaded. YaRN's magnitude enters q and k once each and never
// depends on a shift. Threads: RopeTable::prepare() needs exclusive use; rows of prepared positions may be
// read by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace rhapsode::kernels {

enum class RopePairing : uint8_t {
  kAdjacent,  // (0,1) (2,3) ...        GGUF "norm": llama
  kHalves,    // (0,n/2) (1,n/2+1) ...  GGUF "neox": qwen2, qwen3, gemma3
};

struct RopeSpec {
  int dimensions = 0;  // rotated leading dimensions of a head (even; < head_dim: partial rotation)
  RopePairing pairing = RopePairing::kHalves;
  double theta = 10000.0;
  double frequency_scale = 1.0;     // linear: 1 / factor
  std::vector<double> factors;      // divides each pair's frequency (Llama 3); empty: none
  double yarn_extrapolation = 0.0;  // 1: YaRN's mix of scaled and unscaled frequencies
  double yarn_attention_factor = 1.0;
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  int yarn_original_context = 0;

  std::vector<double> frequencies() const;  // radians a position, [dimensions / 2]
  double magnitude() const;                 // multiplies rotated q and k
  bool operator==(const RopeSpec&) const = default;
};

// Sine and cosine rows by position, grown on demand; covers negative positions too.
class RopeTable {
 public:
  explicit RopeTable(RopeSpec spec);
  ~RopeTable();
  RopeTable(RopeTable&&) noexcept;
  RopeTable& operator=(RopeTable&&) noexcept;

  const RopeSpec& spec() const { return spec_; }

  // Makes rows for all of [first, last] available. Cost: one sincos a new (position, pair).
  void prepare(int32_t first, int32_t last);

  // [dimensions / 2] cosines, then as many sines, magnitude included. Only for prepared positions.
  const float* row(int32_t position) const;

  // Rotates the leading dimensions of one head in place, by a prepared position.
  void rotate(float* head, int32_t position) const;

 private:
  RopeSpec spec_;
  std::vector<double> frequencies_;
  struct Blocks;
  std::unique_ptr<Blocks> blocks_;
};

}  // namespace rhapsode::kernels
