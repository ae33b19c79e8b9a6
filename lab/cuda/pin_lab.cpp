// The laboratory of pinning: how fast host memory becomes fit for the bus, what that costs others meanwhile,
// and how fast it is let go.
//
//   pin_lab [--gib 2] [--disturb-only]
//
// Ways: cudaHostAlloc of each slab; cudaHostRegister of slabs of a mapping that nobody touched, that was
// touched before by one thread or by eight, in pages of 4 KB or as huge as the system gives; by one thread or
// by several, a slab each. Then what a stream's smallest operation and a copy of 6 MB wait for while another
// thread pins. Nothing else may run.
#include <fmt/format.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/parallel.h"
#include "cuda/lab_timing.h"

namespace rhapsode::kernels::cuda::lab {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

struct Way {
  const char* name;
  bool huge = false;
  int touchers = 0;  // 0: nobody touches before
  int pinners = 1;
};

class Region {
 public:
  Region(size_t bytes, bool huge) : bytes_(bytes), mapped_bytes_(bytes + kHuge) {
    mapped_ = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) stop("no address space");
    const auto address = reinterpret_cast<uintptr_t>(mapped_);
    data_ = reinterpret_cast<std::byte*>((address + kHuge - 1) / kHuge * kHuge);
    ::madvise(data_, bytes_, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  ~Region() { ::munmap(mapped_, mapped_bytes_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  std::byte* data() const { return data_; }

  void touch(size_t begin, size_t bytes, int threads) {
    const size_t part = std::max(kHuge, (bytes / static_cast<size_t>(threads) + kHuge - 1) / kHuge * kHuge);
    for_each_on_threads((bytes + part - 1) / part, threads, [&](size_t i) {
      const size_t at = begin + i * part;
      const size_t size = std::min(part, begin + bytes - at);
      if (::madvise(data_ + at, size, MADV_POPULATE_WRITE) == 0) return;
      for (size_t b = 0; b < size; b += 4096) data_[at + b] = std::byte{0};
    });
  }
  // Bytes that lie in huge pages.
  double huge_bytes() const {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool ours = false;
    double sum = 0;
    while (std::getline(maps, line)) {
      uintptr_t begin = 0, end = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
        const auto first = reinterpret_cast<uintptr_t>(mapped_);
        ours = begin >= first && begin < first + mapped_bytes_;
      }
      double kib = 0;
      if (ours && std::sscanf(line.c_str(), "AnonHugePages: %lf kB", &kib) == 1) sum += kib * 1024;
    }
    return sum;
  }

 private:
  size_t bytes_;
  size_t mapped_bytes_;
  void* mapped_ = nullptr;
  std::byte* data_ = nullptr;
};

double seconds_since(int64_t begin) {
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

double copy_gb_per_s(const std::byte* from, size_t bytes) {
  void* to = nullptr;
  must(cudaMalloc(&to, bytes));
  const double ms =
      median_ms(3, nullptr, [&] { must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice)); });
  must(cudaFree(to));
  return static_cast<double>(bytes) / ms / 1e6;
}

void measure_host_alloc(size_t total, size_t slab_bytes) {
  std::vector<void*> slabs(total / slab_bytes, nullptr);
  int64_t begin = now_ns();
  for (void*& slab : slabs) must(cudaHostAlloc(&slab, slab_bytes, cudaHostAllocPortable));
  const double taken = seconds_since(begin);
  const double copied = copy_gb_per_s(static_cast<std::byte*>(slabs[0]), slab_bytes);
  begin = now_ns();
  for (void* slab : slabs) must(cudaFreeHost(slab));
  std::printf("  %-44s %6.2f GB/s; freed %6.2f GB/s; copies %.1f GB/s\n", "cudaHostAlloc",
              static_cast<double>(total) / taken / 1e9,
              static_cast<double>(total) / seconds_since(begin) / 1e9, copied);
}

void measure_register(const Way& way, size_t total, size_t slab_bytes) {
  Region region(total, way.huge);
  const size_t slabs = total / slab_bytes;
  std::atomic<int64_t> touch_ns{0}, pin_ns{0};
  int64_t begin = now_ns();
  for_each_on_threads(slabs, way.pinners, [&](size_t slab) {
    const int64_t at = now_ns();
    if (way.touchers > 0) region.touch(slab * slab_bytes, slab_bytes, way.touchers);
    const int64_t touched = now_ns();
    must(cudaHostRegister(region.data() + slab * slab_bytes, slab_bytes, cudaHostRegisterPortable));
    touch_ns += touched - at;
    pin_ns += now_ns() - touched;
  });
  const double taken = seconds_since(begin);
  const double huge = region.huge_bytes() / static_cast<double>(total);
  const double copied = copy_gb_per_s(region.data(), slab_bytes);
  begin = now_ns();
  for (size_t slab = 0; slab < slabs; ++slab) must(cudaHostUnregister(region.data() + slab * slab_bytes));
  const double let_go = seconds_since(begin);
  const auto of_one = [&](const std::atomic<int64_t>& ns) {
    return static_cast<double>(ns.load()) * 1e-6 / static_cast<double>(slabs);
  };
  std::printf(
      "  %-44s %6.2f GB/s (a slab: touching %6.2f, pinning %6.2f ms); let go %6.2f GB/s; huge %3.0f %%; "
      "copies %.1f GB/s\n",
      way.name, static_cast<double>(total) / taken / 1e9, of_one(touch_ns), of_one(pin_ns),
      static_cast<double>(total) / let_go / 1e9, 100 * huge, copied);
}

// What somebody else's operations wait for.
void measure_disturbance(const char* name, size_t total, size_t slab_bytes, const Way* way) {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr size_t kCopy = 6u << 20;
  void* from = nullptr;
  void* to = nullptr;
  must(cudaHostAlloc(&from, kCopy, cudaHostAllocPortable));
  must(cudaMalloc(&to, kCopy));
  std::atomic<bool> pinning{way != nullptr};
  std::thread pinner([&] {
    if (way == nullptr) return;
    Region region(total, way->huge);
    for (size_t slab = 0; slab < total / slab_bytes; ++slab) {
      if (way->touchers > 0) region.touch(slab * slab_bytes, slab_bytes, way->touchers);
      must(cudaHostRegister(region.data() + slab * slab_bytes, slab_bytes, cudaHostRegisterPortable));
    }
    pinning = false;
    for (size_t slab = 0; slab < total / slab_bytes; ++slab) {
      must(cudaHostUnregister(region.data() + slab * slab_bytes));
    }
  });
  std::vector<double> small, copies;
  const int64_t begin = now_ns();
  while (pinning || (way == nullptr && seconds_since(begin) < 0.3)) {
    int64_t at = now_ns();
    must(cudaMemsetAsync(to, 1, 64, stream));
    must(cudaStreamSynchronize(stream));
    small.push_back(ms_between(at, now_ns()));
    at = now_ns();
    must(cudaMemcpyAsync(to, from, kCopy, cudaMemcpyHostToDevice, stream));
    must(cudaStreamSynchronize(stream));
    copies.push_back(ms_between(at, now_ns()));
  }
  pinner.join();
  const auto report = [](std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return fmt::format("median {:.3f}, 99 % {:.3f}, most {:.3f} ms", times[times.size() / 2],
                       times[times.size() * 99 / 100], times.back());
  };
  std::printf("  %-30s smallest operation: %s; 6 MB: %s (%zu)\n", name, report(small).c_str(),
              report(copies).c_str(), small.size());
  must(cudaFreeHost(from));
  must(cudaFree(to));
  must(cudaStreamDestroy(stream));
}

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  size_t total = size_t{2} << 30;
  bool disturb_only = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--gib") == 0 && i + 1 < argc) total = std::stoul(argv[++i]) << 30;
    if (std::strcmp(argv[i], "--disturb-only") == 0) disturb_only = true;
  }
  must(cudaFree(nullptr));
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string huge;
  std::getline(setting, huge);
  std::printf("%zu GiB; transparent huge pages: %s\n", total >> 30, huge.c_str());
  constexpr Way kWays[] = {{"4 KB, untouched", false, 0, 1},
                           {"4 KB, touched by 1", false, 1, 1},
                           {"4 KB, touched by 8", false, 8, 1},
                           {"huge, untouched", true, 0, 1},
                           {"huge, touched by 1", true, 1, 1},
                           {"huge, touched by 4", true, 4, 1},
                           {"huge, touched by 8", true, 8, 1},
                           {"4 KB, 4 threads touch and pin a slab each", false, 1, 4},
                           {"huge, 2 threads touch and pin a slab each", true, 1, 2},
                           {"huge, 4 threads touch and pin a slab each", true, 1, 4},
                           {"huge, 8 threads touch and pin a slab each", true, 1, 8}};
  for (const size_t mib : {16, 64, 256}) {
    if (disturb_only) break;
    std::printf("slabs of %zu MiB\n", mib);
    measure_host_alloc(total, mib << 20);
    for (const Way& way : kWays) measure_register(way, total, mib << 20);
  }
  std::printf("what others wait for\n");
  measure_disturbance("nobody pins", total, 64u << 20, nullptr);
  for (const size_t mib : {16, 64, 256}) {
    for (const Way& way : {kWays[0], kWays[1], kWays[4], kWays[6]}) {
      measure_disturbance(fmt::format("{} MiB, {}", mib, way.name).c_str(), total, mib << 20, &way);
    }
  }
  return 0;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda::lab

int main(int argc, char** argv) {
  return rhapsode::kernels::cuda::lab::main(argc, argv);
}
