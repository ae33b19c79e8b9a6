// What finding the largest logits costs, and what bringing whole rows would.
//
//   top_lab
//
// Rows of normally distributed logits, in a captured graph: microseconds for 1, 8, 32 and 128 rows of several
// vocabularies; of rows whose largest logits lie together, which take the slow way; and of a copy of the same
// rows to pinned memory. Medians of CUDA events.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/top_logits.h"
#include "lab_timing.h"

namespace rhapsode::kernels::cuda::lab {
namespace {

constexpr int kRuns = 200;

double find_us(const TopLogitsCall& call, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  find_top_logits(call, stream);
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&executable, graph, 0));
  const double ms = median_ms(kRuns, stream, [&] { must(cudaGraphLaunch(executable, stream)); });
  must(cudaGraphExecDestroy(executable));
  must(cudaGraphDestroy(graph));
  return 1e3 * ms;
}

void measure(int rows, int32_t vocabulary, cudaStream_t stream) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(static_cast<size_t>(rows) * static_cast<size_t>(vocabulary));
  const std::vector<float> some = [&] {
    std::vector<float> values(1 << 20);
    for (float& x : values) x = normal(random);
    return values;
  }();
  for (float& x : logits) x = some[random() % some.size()];
  const size_t bytes = logits.size() * sizeof(float);
  DeviceBuffer device, workspace, out;
  PinnedBuffer host;
  must(device.allocate(bytes, "rows"));
  must(workspace.allocate(top_logits_workspace_bytes(rows), "room"));
  must(out.allocate(static_cast<size_t>(rows) * sizeof(TopRow), "results"));
  must(host.reserve(bytes, "rows"));
  TopLogitsCall call;
  call.rows = rows;
  call.logits = device.as<const float>();
  call.stride = call.vocabulary = vocabulary;
  call.workspace = workspace.as<void>();
  call.out = out.as<TopRow>();
  must(device.upload(std::as_bytes(std::span(logits))));
  const double usual = find_us(call, stream);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] += i % static_cast<size_t>(vocabulary) / 8 % 1024 < 20 ? 60.0f : 0.0f;
  }
  must(device.upload(std::as_bytes(std::span(logits))));
  const double together = find_us(call, stream);
  const double copy =
      1e3 * median_ms(kRuns, stream, [&] {
        must(cudaMemcpyAsync(host.data(), device.as<void>(), bytes, cudaMemcpyDeviceToHost, stream));
      });
  const double brief =
      1e3 * median_ms(kRuns, stream, [&] {
        must(cudaMemcpyAsync(host.data(), out.as<void>(), static_cast<size_t>(rows) * sizeof(TopRow),
                             cudaMemcpyDeviceToHost, stream));
      });
  std::printf("%7d logits x %3d rows: %6.1f us, together %6.1f us, results %5.1f us; rows %7.1f us\n",
              vocabulary, rows, usual, together, brief, copy);
}

}  // namespace
}  // namespace rhapsode::kernels::cuda::lab

int main() {
  using namespace rhapsode::kernels::cuda::lab;  // NOLINT(google-build-using-namespace)
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const int32_t vocabulary : {49152, 151936, 262144}) {
    for (const int rows : {1, 8, 32, 128}) measure(rows, vocabulary, stream);
  }
  return 0;
}
