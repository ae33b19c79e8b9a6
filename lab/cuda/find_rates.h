// Ceilings of finding over codes: products a second of one-bit and of 8-bit tensor-core instructions, and
// bytes a second that a kernel can read.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace rhapsode::kernels::cuda::lab {

enum class Product : uint8_t { kBits, kBytes };

// Multiplications and additions of one launch.
double product_operations(Product product);
// On random-ish data that the compiler cannot know.
void launch_products(Product product, int32_t* sink, cudaStream_t stream);
// Reads all of it, 16 bytes a lane.
void launch_read(const uint4* data, size_t count, int32_t* sink, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda::lab
