#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#define HWY_WANT_AVX3_DL

#include "machine_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "thread_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "machine_peak.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes before the other per-target headers.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rhapsode::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
constexpr int kChains = 12;  // more than latency x units of any CPU of interest, and they fit its registers

// Returns the number of floating-point operations done.
double multiply_add(int64_t rounds, float* sink) {
  const Tag tag;
  const Vector factor = hn::Set(tag, 0.999f);
  const Vector term = hn::Set(tag, 0.001f);
  Vector sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(tag, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
    for (Vector& sum : sums) sum = hn::MulAdd(sum, factor, term);
  }
  Vector total = hn::Zero(tag);
  for (const Vector& sum : sums) total = hn::Add(total, sum);
  *sink = hn::GetLane(total);
  return 2.0 * static_cast<double>(rounds) * kChains * static_cast<double>(hn::Lanes(tag));
}

float read_all(const float* data, size_t count) {
  const Tag tag;
  Vector sums[8];
  for (Vector& sum : sums) sum = hn::Zero(tag);
  const size_t lanes = hn::Lanes(tag);
  for (size_t i = 0; i + 8 * lanes <= count; i += 8 * lanes) {
    for (size_t j = 0; j < 8; ++j) sums[j] = hn::Add(sums[j], hn::LoadU(tag, data + i + j * lanes));
  }
  Vector total = hn::Zero(tag);
  for (const Vector& sum : sums) total = hn::Add(total, sum);
  return hn::GetLane(total);
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rhapsode::bench {
HWY_EXPORT(multiply_add);
HWY_EXPORT(read_all);

namespace {

constexpr size_t kBufferFloats = size_t{1} << 26;  // 256 MiB
constexpr int64_t kRounds = 4'000'000;
constexpr int kTries = 5;

template <class Work>
double best_seconds(const Work& work) {
  double best = 1e30;
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

MachinePeak measure_machine_peak(ThreadTeam& team) {
  MachinePeak peak;
  const auto threads = static_cast<size_t>(team.size());
  std::vector<float> sinks(threads * 16);
  std::vector<double> operations(threads * 8);
  const double compute = best_seconds([&] {
    team.run([&](int ith) {
      const auto i = static_cast<size_t>(ith);
      operations[i * 8] = HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, &sinks[i * 16]);
    });
  });
  peak.gflop_per_s = operations[0] * static_cast<double>(threads) / compute * 1e-9;

  const std::vector<float> buffer(kBufferFloats, 1.0f);
  const size_t share = kBufferFloats / threads;
  const double reading = best_seconds([&] {
    team.run([&](int ith) {
      const auto i = static_cast<size_t>(ith);
      sinks[i * 16] = HWY_DYNAMIC_DISPATCH(read_all)(buffer.data() + i * share, share);
    });
  });
  peak.read_gb_per_s = static_cast<double>(share * threads * sizeof(float)) / reading * 1e-9;
  return peak;
}

}  // namespace rhapsode::bench
#endif  // HWY_ONCE
