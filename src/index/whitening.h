// Whitening: the fixed linear map that turns a model's early residual states into vectors whose directions
// tell texts apart, and the bits kept of them (design: "Find").
//
// Shapes: d = the model's embedding length. A chunk's state is the mean of its tokens' residuals entering
// block ceil(L/5); its code is one sign bit a dimension of W^T (state - document_mean). A question token's
// vector is W^T (state - question_mean) scaled to unit length. Made once per model from >= 20,000 chunks: W =
// U diag((e + 0.05 mean(e))^-1/2), with e, U the eigenvalues (descending) and -vectors of the chunks'
// covariance. Stored as a side file whose id is the SHA-256 of its content (docs/formats/whitening.md); it
// never changes under existing codes. Errors: kCorrupt for a damaged file. Threads: const functions from any.
// Cost: transform is one d x d product a vector; training O(n d^2 + d^3), about 10 s at d = 1536.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace rhapsode::index {

class Whitening {
 public:
  static Result<Whitening> load(const std::filesystem::path& path);
  Status save(const std::filesystem::path& path) const;

  int dimensions() const { return dimensions_; }
  int layer() const { return layer_; }                 // the block whose input the states are
  const std::string& model() const { return model_; }  // a name for people
  const std::string& id() const { return id_; }        // SHA-256 of the content, lower-case hex
  int code_bytes() const { return (dimensions_ + 63) / 64 * 8; }

  // `state` and `out` hold d floats; unit length.
  void transform_question(std::span<const float> state, std::span<float> out) const;
  void transform_document(std::span<const float> state, std::span<float> out) const;
  // Sign bits of transform_document, bit i of byte i / 8; `code` holds code_bytes(), padding bits are 0.
  void encode(std::span<const float> state, std::span<std::byte> code) const;

 private:
  friend class WhiteningTrainer;
  Whitening() = default;
  int dimensions_ = 0;
  int layer_ = 0;
  std::string model_;
  std::string id_;
  std::vector<float> document_mean_;
  std::vector<float> question_mean_;
  std::vector<float> matrix_;  // [d][d], row i: the i-th output
};

// Gathers the statistics of one model. Threads: one at a time.
class WhiteningTrainer {
 public:
  WhiteningTrainer(int dimensions, int layer, std::string model);
  void add_chunk(std::span<const float> state);
  void add_question_token(std::span<const float> state);
  int64_t chunks() const { return chunks_; }
  // kInvalidArgument below 20,000 chunks or 1,000 question tokens unless `few_are_enough` (tests).
  // The matrix is rounded to what the file holds, so a loaded file gives the same codes.
  Result<Whitening> finish(bool few_are_enough = false) const;

 private:
  int dimensions_;
  int layer_;
  std::string model_;
  int64_t chunks_ = 0;
  int64_t question_tokens_ = 0;
  std::vector<double> chunk_sum_;
  std::vector<double> chunk_products_;  // [d][d], upper triangle
  std::vector<double> question_sum_;
};

}  // namespace rhapsode::index
