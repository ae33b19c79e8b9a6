// The CUDA back end: bf16 weights, cuBLASLt products and our own attention where the pages lie, on one NVIDIA
// GPU of compute capability 9.0 (BackendOptions::device, of those that are visible).
//
// Weights are dequantised when they are added: F32 and F16 files to float32 (their products round to tf32, as
// exact as F16 is), all others to bf16. The residual stream is float32. Pages must lie in new_page_memory().
// A pass uploads its plan with one copy and brings its result back with one; what is allocated after start is
// only room for activations of more rows than any pass before. No CUDA header is needed to include this one;
// a build without CUDA has the same functions and no device.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/graph.h"

namespace rhapsode::kernels::cuda {

// Why this program cannot use a GPU, in one sentence; empty if it can. Cost: starts the driver, once.
const std::string& why_no_device();

// The GPU's own name, such as "NVIDIA H200"; empty without one.
std::string device_name();

// Whether these GPUs, numbered from 0, are there and alike: of one kind, with as many processors each.
Status check_devices(std::span<const int> gpus);

class OpClock;

// `clock` may be null; else it outlives the back end and is told of every operation.
Result<std::unique_ptr<Backend>> make_cuda_backend(BackendOptions options, OpClock* clock = nullptr);

}  // namespace rhapsode::kernels::cuda
