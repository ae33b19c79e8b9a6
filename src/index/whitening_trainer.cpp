// Training of a Whitening: covariance, eigenvectors, and rounding to int8.
#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cassert>
#include <cmath>
#include <new>

#include "index/whitening.h"
#include "index/whitening_product.h"

namespace rhapsode::index {
namespace {

using Matrix = Eigen::MatrixXd;  // column-major
using Vector = Eigen::VectorXd;
using MatrixView = Eigen::Map<const Matrix>;
using VectorView = Eigen::Map<const Vector>;

constexpr int64_t kMinChunks = 20'000;
constexpr int64_t kMinQuestionTokens = 1'000;
constexpr size_t kBlockChunks = 128;        // chunks that enter the products together
constexpr double kFloor = 0.05;             // of the mean eigenvalue, added to each
constexpr double kSmallestSpread = 1e-4;    // of the root of the mean variance
constexpr double kRoundingRidge = 1e-4;     // keeps the Cholesky factor of the correlation well-conditioned
constexpr Eigen::Index kRoundingRows = 32;  // rows rounded together: their errors fit the second-level cache
constexpr double kLargestStep = 124.0;      // of 127: room for the errors that are carried over

// Row i: the i-th output's factors. Eigenvectors have an arbitrary sign: the largest component is positive.
Matrix whitening_matrix(const Matrix& covariance) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(covariance);
  const Eigen::Index d = covariance.rows();
  const Vector values = solver.eigenvalues().cwiseMax(0.0);
  const double floor = kFloor * values.mean();
  Matrix rows(d, d);
  for (Eigen::Index i = 0; i < d; ++i) {
    const Eigen::Index from = d - 1 - i;  // the solver gives them ascending
    const auto vector = solver.eigenvectors().col(from);
    Eigen::Index largest = 0;
    vector.cwiseAbs().maxCoeff(&largest);
    const double sign = vector(largest) < 0 ? -1.0 : 1.0;
    rows.row(i) = vector.transpose() * (sign / std::sqrt(values(from) + floor));
  }
  return rows;
}

// The standard deviation of each dimension, bounded from below for those that never change.
Vector spreads_of(const Matrix& covariance) {
  const double floor = kSmallestSpread * std::sqrt(covariance.diagonal().mean());
  return covariance.diagonal().cwiseMax(0.0).cwiseSqrt().cwiseMax(floor);
}

// The unit lower triangle L of correlation = L D L^T.
Matrix feedback_of(const Matrix& covariance, const Vector& spreads) {
  const auto inverse = spreads.cwiseInverse().asDiagonal();
  Matrix correlation = inverse * covariance * inverse;
  correlation.diagonal().array() += kRoundingRidge;
  Matrix lower = Eigen::LLT<Matrix>(correlation).matrixL();
  for (Eigen::Index j = 0; j < lower.cols(); ++j) lower.col(j) /= double{lower(j, j)};
  return lower;
}

// Rounds rows, which apply to dimensions divided by their spread, to int8 with a scale a row so that the
// *outputs* change least. Dimensions are correlated, and plain rounding would drown the small eigenvectors in
// the noise of the large ones; so the error made in one dimension is made good in those that are rounded
// after it, as the correlation predicts (LDLQ, the core of GPTQ).
void round_rows(const Matrix& rows, const Matrix& feedback, std::vector<int8_t>& matrix,
                std::vector<float>& scales) {
  const Eigen::Index d = rows.cols();
  const auto stride = static_cast<Eigen::Index>(matrix.size()) / d;
  for (Eigen::Index begin = 0; begin < d; begin += kRoundingRows) {
    const Eigen::Index count = std::min(kRoundingRows, d - begin);
    const Matrix exact = rows.middleRows(begin, count);
    Vector steps(count);
    for (Eigen::Index r = 0; r < count; ++r) {
      const auto scale = static_cast<float>(exact.row(r).cwiseAbs().maxCoeff() / kLargestStep);
      scales[static_cast<size_t>(begin + r)] = scale;
      steps(r) = scale;
    }
    Matrix errors = Matrix::Zero(count, d);
    for (Eigen::Index j = d - 1; j >= 0; --j) {
      const Eigen::Index done = d - 1 - j;
      const Vector wanted = exact.col(j) + errors.rightCols(done) * feedback.col(j).tail(done);
      for (Eigen::Index r = 0; r < count; ++r) {
        const double step = std::clamp(std::nearbyint(wanted(r) / steps(r)), -127.0, 127.0);
        matrix[static_cast<size_t>((begin + r) * stride + j)] = static_cast<int8_t>(step);
        errors(r, j) = exact(r, j) - step * steps(r);
      }
    }
  }
}

std::vector<float> mean_of(const std::vector<double>& origin, const std::vector<double>& sum, int64_t count) {
  std::vector<float> mean(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    mean[i] = static_cast<float>(sum[i] / static_cast<double>(count) + (origin.empty() ? 0.0 : origin[i]));
  }
  return mean;
}

void add_products(const std::vector<double>& chunks, Eigen::Map<Matrix> products) {
  const Eigen::Index d = products.rows();
  const MatrixView block(chunks.data(), d, static_cast<Eigen::Index>(chunks.size()) / d);
  products.selfadjointView<Eigen::Lower>().rankUpdate(block);
}

}  // namespace

WhiteningTrainer::WhiteningTrainer(int dimensions, int layer, std::string model)
    : dimensions_(dimensions), layer_(layer), model_(std::move(model)) {
  assert(dimensions >= 1 && dimensions <= kMaxWhiteningDimensions);
  const auto d = static_cast<size_t>(dimensions);
  chunk_sum_.resize(d);
  chunk_products_.resize(d * d);
  question_sum_.resize(d);
}

void WhiteningTrainer::add_chunk(std::span<const float> state) {
  assert(state.size() == chunk_sum_.size());
  if (chunks_ == 0) origin_.assign(state.begin(), state.end());
  ++chunks_;
  for (size_t i = 0; i < state.size(); ++i) {
    const double value = state[i] - origin_[i];
    pending_.push_back(value);
    chunk_sum_[i] += value;
  }
  if (pending_.size() < kBlockChunks * state.size()) return;
  add_products(pending_, {chunk_products_.data(), dimensions_, dimensions_});
  pending_.clear();
}

void WhiteningTrainer::add_question_token(std::span<const float> state) {
  assert(state.size() == question_sum_.size());
  ++question_tokens_;
  for (size_t i = 0; i < state.size(); ++i) question_sum_[i] += state[i];
}

Status WhiteningTrainer::check(bool few_are_enough) const {
  const int64_t chunks = few_are_enough ? 2 : kMinChunks;
  const int64_t tokens = few_are_enough ? 1 : kMinQuestionTokens;
  if (chunks_ < chunks || question_tokens_ < tokens) {
    return make_error(ErrorKind::kInvalidArgument,
                      "whitening of {} needs {} chunks and {} question tokens, there are {} and {}", model_,
                      chunks, tokens, chunks_, question_tokens_);
  }
  return {};
}

Result<Whitening> WhiteningTrainer::finish(bool few_are_enough) const {
  RH_TRY_STATUS(check(few_are_enough));
  try {
    std::vector<double> products = chunk_products_;
    if (!pending_.empty()) add_products(pending_, {products.data(), dimensions_, dimensions_});
    const VectorView sum(chunk_sum_.data(), dimensions_);
    const auto n = static_cast<double>(chunks_);
    Matrix covariance = MatrixView(products.data(), dimensions_, dimensions_).selfadjointView<Eigen::Lower>();
    covariance = (covariance - sum * sum.transpose() / n) / (n - 1.0);
    const double variance = covariance.diagonal().mean();
    const auto question_mean = mean_of({}, question_sum_, question_tokens_);
    // Outside of these bounds a float32 cannot hold the matrix; NaN fails both.
    const bool usable = variance > 1e-30 && variance < 1e30 &&
                        std::all_of(question_mean.begin(), question_mean.end(),
                                    [](float value) { return std::isfinite(value); });
    if (!usable) {
      return make_error(ErrorKind::kInvalidArgument,
                        "whitening of {}: the states do not differ or are not finite (mean variance {})",
                        model_, variance);
    }
    Whitening whitening;
    whitening.dimensions_ = dimensions_;
    whitening.layer_ = layer_;
    whitening.model_ = model_;
    whitening.document_mean_ = mean_of(origin_, chunk_sum_, chunks_);
    whitening.question_mean_ = question_mean;
    whitening.allocate_matrix();
    Vector spreads = spreads_of(covariance);
    std::transform(spreads.begin(), spreads.end(), whitening.spreads_.begin(),
                   [](double spread) { return static_cast<float>(spread); });
    spreads = Eigen::Map<const Eigen::VectorXf>(whitening.spreads_.data(), dimensions_).cast<double>();
    const Matrix rows = whitening_matrix(covariance) * spreads.asDiagonal();
    round_rows(rows, feedback_of(covariance, spreads), whitening.matrix_, whitening.scales_);
    RH_TRY_STATUS(whitening.set_id());
    return whitening;
  } catch (const std::bad_alloc&) {
    return make_error(ErrorKind::kNoSpace, "no memory for the whitening of {} ({} dimensions)", model_,
                      dimensions_);
  }
}

}  // namespace rhapsode::index
