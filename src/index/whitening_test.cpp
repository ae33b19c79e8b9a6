#include "index/whitening.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/sha256.h"
#include "index/whitening_product.h"
#include "io/file.h"
#include "support/temporary_folder.h"

namespace rhapsode::index {
namespace {

using testing::HasSubstr;
using Matrix = Eigen::MatrixXf;  // one state a column

// States like a residual stream: correlated dimensions, a spectrum that falls as a power down to some noise,
// two dimensions that are far larger than all others, and a mean far from zero.
class States {
 public:
  States(int d, uint32_t seed) : d_(d), random_(seed), mix_(d, d), mean_(d) {
    for (int i = 0; i < d; ++i) {
      const float size = std::pow(static_cast<float>(i + 1), -0.6f);
      for (int j = 0; j < d; ++j) mix_(j, i) = size * normal_(random_) / std::sqrt(static_cast<float>(d));
      mean_(i) = 2.0f * normal_(random_);
    }
    mix_.row(d / 3) *= 60.0f;
    mix_.row(d / 2) *= 25.0f;
    mean_(d / 3) = 900.0f;
  }
  Matrix draw(int count) {
    Matrix source(d_, count);
    Matrix noise(d_, count);
    for (float& value : source.reshaped()) value = normal_(random_);
    for (float& value : noise.reshaped()) value = 0.2f * normal_(random_) / std::sqrt(static_cast<float>(d_));
    return (mix_ * source + noise).colwise() + mean_;
  }

 private:
  int d_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  Matrix mix_;
  Eigen::VectorXf mean_;
};

std::span<const float> column(const Matrix& states, Eigen::Index index) {
  return {states.col(index).data(), static_cast<size_t>(states.rows())};
}

std::span<const float> all(const Matrix& states) {
  return {states.data(), static_cast<size_t>(states.size())};
}

std::span<float> all(Matrix& states) {
  return {states.data(), static_cast<size_t>(states.size())};
}

Whitening train(const Matrix& chunks, const Matrix& questions) {
  WhiteningTrainer trainer(static_cast<int>(chunks.rows()), 5, "a model");
  for (Eigen::Index i = 0; i < chunks.cols(); ++i) trainer.add_chunk(column(chunks, i));
  for (Eigen::Index i = 0; i < questions.cols(); ++i) trainer.add_question_token(column(questions, i));
  auto whitening = trainer.finish(true);
  EXPECT_TRUE(whitening.ok()) << whitening.error().message;
  return *whitening;
}

// The definition, in double and not rounded: W^T (state - document mean), one state a column.
Matrix exact_transform(const Matrix& chunks, const Matrix& states) {
  const Eigen::MatrixXd wide = chunks.cast<double>();
  const Eigen::VectorXd mean = wide.rowwise().mean();
  const Eigen::MatrixXd centred = wide.colwise() - mean;
  const Eigen::MatrixXd covariance = centred * centred.transpose() / static_cast<double>(chunks.cols() - 1);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(covariance);
  const Eigen::Index d = chunks.rows();
  Eigen::MatrixXd rows(d, d);
  for (Eigen::Index i = 0; i < d; ++i) {
    Eigen::VectorXd vector = solver.eigenvectors().col(d - 1 - i);
    if (vector.maxCoeff() < -vector.minCoeff()) vector = -vector;
    rows.row(i) = vector / std::sqrt(solver.eigenvalues()(d - 1 - i) + 0.05 * solver.eigenvalues().mean());
  }
  return (rows * (states.cast<double>().colwise() - mean)).cast<float>();
}

class WhiteningTest : public test::TemporaryFolder {};

TEST_F(WhiteningTest, EightBitsGiveTheCodesAndProductsOfTheExactMatrix) {
  for (const int d : {64, 100, 320}) {
    SCOPED_TRACE(d);
    States source(d, 1);
    const Matrix chunks = source.draw(6 * d);
    const Whitening whitening = train(chunks, source.draw(10));
    const Matrix fresh = source.draw(60);
    Matrix exact = exact_transform(chunks, fresh);
    std::vector<std::byte> codes(static_cast<size_t>(60 * whitening.code_bytes()));
    whitening.encode(all(fresh), codes);
    int wrong = 0;
    for (int c = 0; c < 60; ++c) {
      for (int i = 0; i < whitening.code_bytes() * 8; ++i) {
        const auto byte = codes[static_cast<size_t>(c * whitening.code_bytes() + i / 8)];
        const bool bit = (byte >> (i % 8) & std::byte{1}) != std::byte{0};
        wrong += bit != (i < d && exact(i, c) > 0.0f);
      }
    }
    EXPECT_LT(wrong, 60 * d / 100) << "fewer than 1 % of the bits";
    Matrix rounded(d, 60);
    whitening.transform_document(all(fresh), all(rounded));
    exact.colwise().normalize();
    EXPECT_LT((rounded.transpose() * rounded - exact.transpose() * exact).cwiseAbs().maxCoeff(), 0.01f);
    RecordProperty(fmt::format("wrong_bits_per_10000_at_{}", d), wrong * 10000 / (60 * d));
  }
}

TEST_F(WhiteningTest, OutputsOfTheTrainingSetAreWhite) {
  constexpr int kD = 48;
  States source(kD, 2);
  const Matrix chunks = source.draw(3000);
  const Matrix outputs = exact_transform(chunks, chunks);
  const Eigen::MatrixXf covariance = outputs * outputs.transpose() / 2999.0f;
  EXPECT_LT((covariance - Eigen::MatrixXf(covariance.diagonal().asDiagonal())).cwiseAbs().maxCoeff(), 0.01f);
  const Whitening whitening = train(chunks, source.draw(2));
  Matrix unit(kD, 1);
  whitening.transform_document(column(chunks, 7), all(unit));
  EXPECT_NEAR(unit.norm(), 1.0f, 1e-5f);
  EXPECT_GT(unit.col(0).dot(outputs.col(7).normalized()), 0.999f);
}

TEST_F(WhiteningTest, QuestionsHaveAMeanOfTheirOwn) {
  States source(64, 3);
  const Matrix chunks = source.draw(400);
  Matrix questions = source.draw(30);
  questions.array() += 4.0f;
  const Whitening whitening = train(chunks, questions);
  Matrix as_question(64, 1);
  Matrix as_document(64, 1);
  const Eigen::VectorXf shift = questions.rowwise().mean() - chunks.rowwise().mean();
  const Matrix state = source.draw(1);
  const Matrix moved = state.colwise() + shift;
  whitening.transform_question(all(moved), all(as_question));
  whitening.transform_document(all(state), all(as_document));
  EXPECT_LT((as_question - as_document).cwiseAbs().maxCoeff(), 1e-2f);
  const Matrix mean = questions.rowwise().mean();
  whitening.transform_question(all(mean), all(as_question));
  EXPECT_TRUE(as_question.allFinite());
}

TEST_F(WhiteningTest, AVectorDoesNotDependOnItsNeighbours) {
  States source(100, 4);
  const Whitening whitening = train(source.draw(300), source.draw(5));
  const Matrix states = source.draw(11);
  Matrix together(100, 11);
  whitening.transform_question(all(states), all(together));
  std::vector<std::byte> codes(static_cast<size_t>(11 * whitening.code_bytes()));
  whitening.encode(all(states), codes);
  for (int i = 0; i < 11; ++i) {
    Matrix alone(100, 1);
    whitening.transform_question(column(states, i), all(alone));
    EXPECT_EQ(std::memcmp(alone.data(), together.col(i).data(), 100 * sizeof(float)), 0) << i;
    std::vector<std::byte> code(static_cast<size_t>(whitening.code_bytes()));
    whitening.encode(column(states, i), code);
    EXPECT_EQ(std::memcmp(code.data(), &codes[static_cast<size_t>(i) * code.size()], code.size()), 0) << i;
  }
}

TEST_F(WhiteningTest, EveryInstructionSetAgrees) {
  States source(100, 4);
  const Whitening whitening = train(source.draw(300), source.draw(5));
  const Matrix states = source.draw(7);
  Matrix best(100, 7);
  whitening.transform_question(all(states), all(best));
  const std::string chosen = whitening_kernels().target;
  int targets = 0;
  for (const char* name : {"AVX3_DL", "AVX3", "AVX2", "SSE4", "SSE2", "NEON", "EMU128", "SCALAR"}) {
    if (!force_whitening_target(name)) continue;
    ++targets;
    EXPECT_STREQ(whitening_kernels().target, name);
    Matrix other(100, 7);
    whitening.transform_question(all(states), all(other));
    EXPECT_LT((other - best).cwiseAbs().maxCoeff(), 1e-5f) << name;
  }
  EXPECT_GE(targets, 1);
  EXPECT_TRUE(force_whitening_target(""));
  EXPECT_EQ(whitening_kernels().target, chosen);
}

TEST_F(WhiteningTest, TrainingIsRepeatableAndTheFileIsTheSame) {
  States source(64, 5);
  const Matrix chunks = source.draw(500);
  const Matrix questions = source.draw(20);
  const Whitening first = train(chunks, questions);
  EXPECT_EQ(first.id(), train(chunks, questions).id());
  EXPECT_NE(first.id(), train(chunks.leftCols(499), questions).id());
  ASSERT_TRUE(first.save(folder_ / "w").ok());
  const auto second = Whitening::load(folder_ / "w");
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->id(), first.id());
  EXPECT_TRUE(is_sha256(second->id()));
  EXPECT_EQ(second->dimensions(), 64);
  EXPECT_EQ(second->layer(), 5);
  EXPECT_EQ(second->model(), "a model");
  std::vector<std::byte> a(8);
  std::vector<std::byte> b(8);
  for (int i = 0; i < 50; ++i) {
    first.encode(column(chunks, i), a);
    second->encode(column(chunks, i), b);
    EXPECT_EQ(a, b);
  }
}

TEST_F(WhiteningTest, TheFileIsWhatTheFormatPageSays) {
  States source(10, 6);
  const Whitening whitening = train(source.draw(50), source.draw(20));
  ASSERT_TRUE(whitening.save(folder_ / "w").ok());
  const std::string file = *read_text_file(folder_ / "w");
  ASSERT_EQ(file.size(), 32u + 7 + 4 * 40 + 100 + 64);
  EXPECT_EQ(file.substr(0, 24), std::string("RHAPSEWH\1\0\0\0\12\0\0\0\5\0\0\0\7\0\0\0", 24));
  EXPECT_EQ(file.substr(32, 7), "a model");
  const std::string content = file.substr(0, file.size() - 64);
  EXPECT_EQ(file.substr(file.size() - 64), *sha256(std::as_bytes(std::span(content))));
  EXPECT_EQ(file.substr(file.size() - 64), whitening.id());
}

TEST_F(WhiteningTest, DamagedFilesAreCorrupt) {
  States source(16, 6);
  ASSERT_TRUE(train(source.draw(50), source.draw(20)).save(folder_ / "w").ok());
  const std::string good = *read_text_file(folder_ / "w");
  const auto expect_corrupt = [&](const std::string& file, const std::string& words) {
    ASSERT_TRUE(replace_file(folder_ / "bad", file).ok());
    const auto loaded = Whitening::load(folder_ / "bad");
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().kind, ErrorKind::kCorrupt);
    EXPECT_THAT(loaded.error().message, HasSubstr((folder_ / "bad").string()));
    EXPECT_THAT(loaded.error().message, HasSubstr(words));
  };
  for (size_t i = 0; i < good.size(); i += 5) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    expect_corrupt(bad, "");
  }
  for (const size_t size : {size_t{0}, size_t{31}, size_t{32}, size_t{100}, good.size() - 1}) {
    expect_corrupt(good.substr(0, size), "");
  }
  expect_corrupt(good + "x", "its header asks for");
  for (const size_t field : {size_t{12}, size_t{16}, size_t{20}}) {
    for (const uint32_t value : {0xffffffffu, 0x80000000u, 120'000u}) {
      std::string bad = good;
      std::memcpy(bad.data() + field, &value, sizeof(value));
      expect_corrupt(bad, "");
    }
  }
  std::string infinite = good.substr(0, good.size() - 64);
  const float value = std::numeric_limits<float>::infinity();
  std::memcpy(infinite.data() + 32 + 7, &value, sizeof(value));
  expect_corrupt(infinite + *sha256(std::as_bytes(std::span(infinite))), "not finite");
  EXPECT_EQ(Whitening::load(folder_ / "none").error().kind, ErrorKind::kNotFound);
}

TEST_F(WhiteningTest, TooLittleOrNonsenseIsRefused) {
  WhiteningTrainer trainer(4, 5, "a model");
  const auto kind_of = [&](bool few) {
    const auto result = trainer.finish(few);
    return result.ok() ? ErrorKind::kInternal : result.error().kind;
  };
  EXPECT_EQ(kind_of(true), ErrorKind::kInvalidArgument);
  const std::vector<float> state = {1.0f, 2.0f, 3.0f, 4.0f};
  trainer.add_chunk(state);
  trainer.add_chunk(state);
  trainer.add_question_token(state);
  EXPECT_EQ(kind_of(true), ErrorKind::kInvalidArgument) << "all states are equal";
  trainer.add_chunk(std::vector<float>{0.0f, 1.0f, 0.0f, 2.0f});
  EXPECT_TRUE(trainer.finish(true).ok());
  EXPECT_EQ(kind_of(false), ErrorKind::kInvalidArgument);
  EXPECT_THAT(trainer.finish().error().message,
              HasSubstr("20000 chunks and 1000 question tokens, there are 3 and 1"));
  EXPECT_EQ(trainer.chunks(), 3);
  trainer.add_chunk(std::vector<float>{0.0f, std::numeric_limits<float>::quiet_NaN(), 0.0f, 2.0f});
  EXPECT_EQ(kind_of(true), ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace rhapsode::index
