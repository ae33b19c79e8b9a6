// Whitening: the fixed linear map that turns a model's early residual states into vectors whose directions
// tell texts apart, and the bits kept of them (design: "Find").
//
// Shapes: d = the model's embedding length. A chunk's state is the mean of its tokens' residuals entering
// block ceil(L/5); its code is one sign bit a dimension of W^T (state - document_mean). A question token's
// vector is W^T (state - question_mean) scaled to unit length. Made once per model from >= 20,000 chunks: W =
// U diag((e + 0.05 mean(e))^-1/2), with e, U the eigenvalues (descending) and -vectors of the chunks'
// covariance. Stored as a side file whose id is the SHA-256 of its content (docs/formats/whitening.md); it
// never changes under existing codes. The matrix is held and stored as int8 with a scale for each
// input and output, rounded so that outputs change least.
// Errors: kCorrupt for a damaged file. Threads: const functions from any. Cost: d * d multiply-adds a vector
// (on one core with AVX-512 0.025 ms at d = 1536 when four vectors or more come in one call); training O(n
// d^2
// + d^3), 4 s for 20,000 chunks at d = 1536.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace rhapsode::index {

inline constexpr int kMaxWhiteningDimensions = 16384;

class Whitening {
 public:
  static Result<Whitening> load(const std::filesystem::path& path);
  Status save(const std::filesystem::path& path) const;

  int dimensions() const { return dimensions_; }
  int layer() const { return layer_; }                 // the block whose input the states are
  const std::string& model() const { return model_; }  // a name for people
  const std::string& id() const { return id_; }        // SHA-256 of the content, lower-case hex
  int code_bytes() const { return (dimensions_ + 63) / 64 * 8; }

  // `states` and `out` hold one or more vectors of d floats, one after the other; the results have unit
  // length (a state equal to the mean gives zeros). A vector's result does not depend on the others.
  void transform_question(std::span<const float> states, std::span<float> out) const;
  void transform_document(std::span<const float> states, std::span<float> out) const;
  // Sign bits of transform_document, 1 where positive: dimension i is bit i % 8 of byte i / 8. `codes` holds
  // code_bytes() for each state; padding bits are 0.
  void encode(std::span<const float> states, std::span<std::byte> codes) const;

 private:
  friend class WhiteningTrainer;
  Whitening() = default;
  void allocate_matrix();
  void multiply(std::span<const float> states, const std::vector<float>& mean, std::span<float> out) const;
  // The content of the side file, its SHA-256 excluded.
  std::string content() const;
  Status set_id();

  int dimensions_ = 0;
  int layer_ = 0;
  std::string model_;
  std::string id_;
  std::vector<float> document_mean_;
  std::vector<float> question_mean_;
  std::vector<float> spreads_;  // [d] what each dimension of a state is divided by, after its mean
  std::vector<float> scales_;   // [d] what each row of the matrix is multiplied with
  std::vector<int8_t> matrix_;  // [d][stride], row i makes output i; zeros behind d
};

// Gathers the statistics of one model. Threads: one at a time.
class WhiteningTrainer {
 public:
  // 1 <= dimensions <= kMaxWhiteningDimensions; the model's name has at most 1,000 bytes.
  WhiteningTrainer(int dimensions, int layer, std::string model);
  void add_chunk(std::span<const float> state);
  void add_question_token(std::span<const float> state);
  int64_t chunks() const { return chunks_; }
  // kInvalidArgument below 20,000 chunks or 1,000 question tokens unless `few_are_enough` (tests), and when
  // the chunks do not differ or are not finite. The matrix is rounded to what the file holds, so a loaded
  // file gives the same codes.
  Result<Whitening> finish(bool few_are_enough = false) const;

 private:
  Status check(bool few_are_enough) const;

  int dimensions_;
  int layer_;
  std::string model_;
  int64_t chunks_ = 0;
  int64_t question_tokens_ = 0;
  std::vector<double> origin_;          // the first chunk: sums are of differences from it, which stay small
  std::vector<double> pending_;         // [< block][d] chunks that are not in the products yet
  std::vector<double> chunk_sum_;       // [d]
  std::vector<double> chunk_products_;  // [d][d], one triangle
  std::vector<double> question_sum_;    // [d]
};

}  // namespace rhapsode::index
