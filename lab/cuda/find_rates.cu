#include "cuda/find_rates.h"

namespace rhapsode::kernels::cuda::lab {

namespace {

constexpr int kBlocks = 132 * 4;
constexpr int kThreads = 256;
constexpr int kRounds = 4096;
constexpr int kChains = 4;

template <Product product>
__global__ void products_kernel(int32_t* sink) {
  int sums[kChains][4] = {};
  uint32_t a[4];
  uint32_t b[kChains][2];
  uint32_t state = threadIdx.x * 747796405u + blockIdx.x * 2891336453u + 1u;
  const auto random = [&] {
    state = state * 1664525u + 1013904223u;
    return state ^ (state >> 15);
  };
  for (uint32_t& x : a) x = random();
  for (auto& pair : b) {
    for (uint32_t& x : pair) x = random();
  }
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      if constexpr (product == Product::kBits) {
        asm volatile(
            "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+r"(sums[i][0]), "+r"(sums[i][1]), "+r"(sums[i][2]), "+r"(sums[i][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[i][0]), "r"(b[i][1]));
      } else {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+r"(sums[i][0]), "+r"(sums[i][1]), "+r"(sums[i][2]), "+r"(sums[i][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[i][0]), "r"(b[i][1]));
      }
    }
  }
  int sum = 0;
  for (auto& chain : sums) {
    for (int x : chain) sum += x;
  }
  sink[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__global__ void read_kernel(const uint4* data, size_t count, int32_t* sink) {
  uint32_t sum = 0;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += 8 * stride) {
    uint4 x[8] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (i + j * stride >= count) continue;
      asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(x[j].x), "=r"(x[j].y), "=r"(x[j].z), "=r"(x[j].w)
                   : "l"(data + i + j * stride));
    }
#pragma unroll
    for (const uint4& one : x) sum += one.x ^ one.y ^ one.z ^ one.w;
  }
  if (sum == 0x12345678u) *sink = 1;
}

}  // namespace

double product_operations(Product product) {
  const double each = product == Product::kBits ? 16.0 * 8 * 256 : 16.0 * 8 * 32;
  return 2.0 * each * kChains * kRounds * kBlocks * (kThreads / 32);
}

void launch_products(Product product, int32_t* sink, cudaStream_t stream) {
  if (product == Product::kBits) {
    products_kernel<Product::kBits><<<kBlocks, kThreads, 0, stream>>>(sink);
  } else {
    products_kernel<Product::kBytes><<<kBlocks, kThreads, 0, stream>>>(sink);
  }
}

void launch_read(const uint4* data, size_t count, int32_t* sink, cudaStream_t stream) {
  read_kernel<<<132 * 8, 256, 0, stream>>>(data, count, sink);
}

}  // namespace rhapsode::kernels::cuda::lab
