// What laboratory programs share: stopping with a message, and times of device work.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "rhapsode/result.h"

namespace rhapsode::kernels::cuda::lab {

[[noreturn]] inline void stop(const std::string& message) {
  std::fprintf(stderr, "lab: %s\n", message.c_str());
  std::exit(1);
}
inline void must(const Status& status) {
  if (!status.ok()) stop(status.error().message);
}
inline void must(cudaError_t code) {
  if (code != cudaSuccess) stop(cudaGetErrorString(code));
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Event {
 public:
  Event() { must(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { must(cudaEventRecord(event_, stream)); }
  void wait() { must(cudaEventSynchronize(event_)); }
  double ms_since(const Event& earlier) const {
    float ms = 0;
    must(cudaEventElapsedTime(&ms, earlier.event_, event_));
    return static_cast<double>(ms);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Milliseconds of one call on the stream: the median over `runs`, after two that do not count.
inline double median_ms(int runs, cudaStream_t stream, const std::function<void()>& call) {
  Event begin;
  Event end;
  std::vector<double> times;
  for (int run = -2; run < runs; ++run) {
    begin.record(stream);
    call();
    end.record(stream);
    end.wait();
    if (run >= 0) times.push_back(end.ms_since(begin));
  }
  return median(std::move(times));
}

// Bytes read and written a second by a large copy within the device.
inline double copy_bytes_per_s() {
  constexpr size_t kBytes = size_t{2} << 30;
  void* memory = nullptr;
  must(cudaMalloc(&memory, 2 * kBytes));
  must(cudaMemset(memory, 0x5a, 2 * kBytes));
  const double ms = median_ms(10, nullptr, [&] {
    must(cudaMemcpyAsync(static_cast<std::byte*>(memory) + kBytes, memory, kBytes, cudaMemcpyDeviceToDevice));
  });
  must(cudaFree(memory));
  return 2.0 * kBytes / ms * 1e3;
}

}  // namespace rhapsode::kernels::cuda::lab
