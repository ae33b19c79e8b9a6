// The largest logits found on the GPU against those of the sorted row; needs a GPU.
#include "kernels/cuda/top_logits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/reference/top_logits.h"

namespace rhapsode::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a row may look like; a batch has rows of all of them.
enum class Kind {
  kNormal,
  kWide,
  kTied,  // a few values only
  kEqual,
  kFew,  // all but some impossible
  kImpossible,
  kClustered,  // the largest in few of the groups that the kernel deals pieces to
  kRising,
  kZeros,  // of both signs
  kHuge,
  kTiny,  // denormals
  kNan,
  kPlusInfinity,
  kKinds,
};

std::vector<float> random_row(Kind kind, int32_t width, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<size_t>(width));
  for (float& x : row) x = 3 * normal(random);
  const auto each = [&](auto change) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = change(i, row[i]);
  };
  switch (kind) {
    case Kind::kWide:
      each([](size_t, float x) { return 40 * x; });
      break;
    case Kind::kTied:
      each([](size_t, float x) { return std::round(x); });
      break;
    case Kind::kEqual:
      each([](size_t, float) { return -1.5f; });
      break;
    case Kind::kFew: {
      const unsigned share = 2 + random() % 900;
      each([&](size_t, float x) { return random() % share == 0 ? x : -kInfinity; });
      break;
    }
    case Kind::kImpossible:
      each([](size_t, float) { return -kInfinity; });
      break;
    case Kind::kClustered:
      each([](size_t i, float x) { return i / 8 % 1024 < 20 || i % 1024 < 20 ? x + 30 : x; });
      break;
    case Kind::kRising:
      each([](size_t i, float) { return static_cast<float>(i) * 1e-3f; });
      break;
    case Kind::kZeros:
      each([](size_t, float x) { return x < 2 ? 0.0f * x : x; });
      break;
    case Kind::kHuge:
      each([](size_t, float x) { return 1e37f * x; });
      break;
    case Kind::kTiny:
      each([](size_t, float x) { return 1e-41f * x; });
      break;
    case Kind::kNan:
      row[random() % row.size()] = std::nanf("");
      break;
    case Kind::kPlusInfinity:
      row[random() % row.size()] = kInfinity;
      break;
    default:
      break;
  }
  return row;
}

// Rows of a stride, and what was found in them.
class Rows {
 public:
  Rows(int rows, int32_t vocabulary, int32_t stride)
      : rows_(rows), vocabulary_(vocabulary), stride_(stride), host_(static_cast<size_t>(rows) * stride) {
    EXPECT_TRUE(logits_.allocate(host_.size() * sizeof(float), "rows").ok());
    EXPECT_TRUE(workspace_.allocate(top_logits_workspace_bytes(rows), "room").ok());
    EXPECT_TRUE(out_.allocate(static_cast<size_t>(rows) * sizeof(TopRow), "results").ok());
  }

  void fill(std::mt19937& random, int first_kind) {
    for (int r = 0; r < rows_; ++r) {
      const auto kind = static_cast<Kind>((first_kind + r) % static_cast<int>(Kind::kKinds));
      const std::vector<float> row = random_row(kind, vocabulary_, random);
      const auto at = host_.begin() + std::ptrdiff_t{r} * stride_;
      std::copy(row.begin(), row.end(), at);
      // Padding would win, or break the row.
      std::fill(at + vocabulary_, at + stride_, r % 2 == 0 ? 1e30f : std::nanf(""));
    }
    ASSERT_TRUE(logits_.upload(std::as_bytes(std::span(host_))).ok());
  }

  void find(cudaStream_t stream) {
    TopLogitsCall call;
    call.rows = rows_;
    call.logits = logits_.as<const float>();
    call.stride = stride_;
    call.vocabulary = vocabulary_;
    call.workspace = workspace_.as<void>();
    call.out = out_.as<TopRow>();
    find_top_logits(call, stream);
  }

  std::vector<TopRow> results() {
    std::vector<TopRow> rows(static_cast<size_t>(rows_));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(rows.data(), out_.as<void>(), rows.size() * sizeof(TopRow), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return rows;
  }

  void expect_right(const std::vector<TopRow>& found) const {
    for (int r = 0; r < rows_; ++r) {
      SCOPED_TRACE(fmt::format("row {} of {}, {} logits, stride {}", r, rows_, vocabulary_, stride_));
      const auto row = std::span(host_).subspan(static_cast<size_t>(r) * stride_, vocabulary_);
      const auto expected = reference::top_logits(row);
      const TopRow& top = found[static_cast<size_t>(r)];
      EXPECT_EQ(top.broken != 0, expected.broken);
      if (expected.broken) {
        EXPECT_EQ(top.count, 0);
        continue;
      }
      EXPECT_EQ(top.possible, expected.possible);
      const auto count = static_cast<size_t>(top.count);
      ASSERT_EQ(count, expected.tokens.size());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(top.tokens[i], expected.tokens[i]) << "place " << i;
        ASSERT_EQ(top.logits[i], expected.logits[i]) << "place " << i;
      }
      EXPECT_NEAR(top.exp_sum, expected.exp_sum, 0x1p-36 * expected.exp_sum);
    }
  }

 private:
  int rows_;
  int32_t vocabulary_;
  int32_t stride_;
  std::vector<float> host_;
  DeviceBuffer logits_;
  DeviceBuffer workspace_;
  DeviceBuffer out_;
};

#define RH_REQUIRE_GPU() \
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device()

constexpr int kKinds = static_cast<int>(Kind::kKinds);

TEST(CudaTopLogits, AreThoseOfTheSortedRow) {
  RH_REQUIRE_GPU();
  std::mt19937 random(3);
  for (const int32_t vocabulary : {1, 33, 255, 256, 257, 1025, 8192, 49152, 151936, 262144}) {
    for (const int rows : {1, 3, 64}) {
      for (int kind = 0; kind < (rows < 64 && vocabulary < 200000 ? kKinds : 1); kind += rows) {
        Rows batch(rows, vocabulary, vocabulary);
        batch.fill(random, kind);
        batch.find(nullptr);
        batch.expect_right(batch.results());
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaTopLogits, PaddingIsNeverLookedAt) {
  RH_REQUIRE_GPU();
  std::mt19937 random(4);
  for (const int32_t vocabulary : {1, 30, 31, 32, 997, 49152, 151665}) {
    for (const int32_t padding : {1, 4, 7, 271}) {
      Rows batch(kKinds, vocabulary, vocabulary + padding);
      batch.fill(random, 0);
      batch.find(nullptr);
      batch.expect_right(batch.results());
      if (HasFailure()) return;
    }
  }
}

TEST(CudaTopLogits, ComeFromACapturedGraphAndAlwaysInTheSameBytes) {
  RH_REQUIRE_GPU();
  std::mt19937 random(5);
  Rows batch(kKinds, 151936, 151936);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  batch.find(stream);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int round = 0; round < 3; ++round) {
    batch.fill(random, round);
    std::vector<TopRow> first;
    for (int repeat = 0; repeat < 20; ++repeat) {
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      const std::vector<TopRow> found = batch.results();
      if (repeat == 0) {
        first = found;
        batch.expect_right(found);
      }
      for (size_t r = 0; r < found.size(); ++r) {
        ASSERT_EQ(std::bit_cast<uint64_t>(found[r].exp_sum), std::bit_cast<uint64_t>(first[r].exp_sum));
        const auto count = static_cast<size_t>(found[r].count);
        ASSERT_EQ(std::memcmp(found[r].tokens, first[r].tokens, count * sizeof(int32_t)), 0);
        ASSERT_EQ(std::memcmp(found[r].logits, first[r].logits, count * sizeof(float)), 0);
      }
    }
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
