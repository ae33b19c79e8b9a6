// The laboratory of fetching pages out of pinned memory: checked, then timed, alone and beside a matmul.
//
//   fetch_lab [alone|beside|variants ...] [--quick]     (alone and beside when none is named)
//
// Pages lie in random order in 1 GiB of pinned memory and go to as many scattered places of the device.
// "bulk" is one large copy, "a copy each" one cudaMemcpyAsync a page, a batch one cudaMemcpyBatchAsync.
// Beside compute: bf16 products of cuBLASLt run on one stream while pages are fetched on another without a
// pause; the slowdown is of the products, GB/s are those of the fetches that ended meanwhile. "variants":
// ways that are not the library's (fetch_variants.h), and copies over several streams. Nothing else may use
// the GPU or its bus.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "cuda/fetch_variants.h"
#include "cuda/lab_timing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/page_gather.h"
#include "kernels/element.h"
#include "kernels/page_sum.h"

namespace rhapsode::kernels::cuda::lab {
namespace {

constexpr size_t kBytes = size_t{1} << 30;
constexpr size_t kFetchBytes = size_t{64} << 20;  // of one fetch

class Pages {
 public:
  Pages() {
    must(host_.reserve(kBytes, "pages"));
    must(device_.allocate(kBytes, "pages"));
    must(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming));
    std::mt19937_64 random(1);
    for (size_t i = 0; i < kBytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(host_.data() + i, &word, 8);
    }
  }

  void cut(size_t page_bytes) {
    page_bytes_ = page_bytes;
    const size_t count = kBytes / page_bytes;
    std::vector<size_t> from(count);
    std::iota(from.begin(), from.end(), size_t{0});
    std::vector<size_t> to = from;
    std::mt19937 random(2);
    std::shuffle(from.begin(), from.end(), random);
    std::shuffle(to.begin(), to.end(), random);
    pages_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      pages_[i] = {host_.data() + from[i] * page_bytes, device_.at<std::byte>(to[i] * page_bytes)};
    }
    must(list_.reserve(count * sizeof(GatherPage), "a list"));
    must(list_.upload(std::as_bytes(std::span(pages_))));
    must(sums_.reserve(count * sizeof(uint64_t), "sums"));
  }

  // A part of the pages: the next one each time.
  GatherCall next(bool with_sums) {
    const size_t each = std::min(pages_.size(), kFetchBytes / page_bytes_);
    if (at_ + each > pages_.size()) at_ = 0;
    GatherCall call{list_.as<const GatherPage>() + at_, static_cast<int64_t>(each), page_bytes_};
    if (with_sums) call.sums = sums_.as<uint64_t>() + at_;
    at_ += each;
    return call;
  }

  void check(const GatherShape& shape) {
    check([&](const GatherCall& call) { must(gather_pages(call, shape, nullptr)); }, true);
  }
  // `fetch` brings all pages of the call.
  void check(const std::function<void(const GatherCall&)>& fetch, bool sums_too) {
    must(cudaMemset(sums_.as<void>(), 0, sums_.bytes()));
    must(cudaMemset(device_.as<void>(), 0xee, kBytes));
    GatherCall call{list_.as<const GatherPage>(), static_cast<int64_t>(pages_.size()), page_bytes_,
                    sums_.as<uint64_t>()};
    fetch(call);
    must(cudaDeviceSynchronize());
    std::vector<std::byte> arrived(kBytes);
    must(cudaMemcpy(arrived.data(), device_.as<void>(), kBytes, cudaMemcpyDeviceToHost));
    std::vector<uint64_t> sums(pages_.size());
    must(cudaMemcpy(sums.data(), sums_.as<void>(), sums.size() * 8, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < pages_.size(); ++i) {
      const auto to = static_cast<size_t>(pages_[i].to - device_.as<std::byte>());
      if (std::memcmp(arrived.data() + to, pages_[i].from, page_bytes_) != 0) stop("a page arrived damaged");
      if (sums_too && i % 7 == 0 && sums[i] != page_sum({pages_[i].from, page_bytes_}))
        stop("a sum differs from the host's");
    }
  }

  void copy_each(cudaStream_t stream) {
    const size_t each = std::min(pages_.size(), kFetchBytes / page_bytes_);
    for (size_t i = 0; i < each; ++i) {
      must(cudaMemcpyAsync(pages_[i].to, pages_[i].from, page_bytes_, cudaMemcpyHostToDevice, stream));
    }
  }
#if CUDART_VERSION >= 13000
  // One call for all of them; the driver's copy engines do the rest.
  void copy_batch(cudaStream_t stream) {
    const size_t each = std::min(pages_.size(), kFetchBytes / page_bytes_);
    std::vector<void*> to;
    std::vector<const void*> from;
    for (size_t i = 0; i < each; ++i) {
      to.push_back(pages_[i].to);
      from.push_back(pages_[i].from);
    }
    const std::vector<size_t> sizes(each, page_bytes_);
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    size_t first = 0;
    must(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), each, &attributes, &first, 1, stream));
  }
#endif
  // A copy each, in turn on the stream and on others that begin behind it and end before it goes on.
  void copy_spread(cudaStream_t stream, size_t streams) {
    while (others_.size() + 1 < streams) {
      others_.emplace_back();
      must(cudaStreamCreateWithFlags(&others_.back(), cudaStreamNonBlocking));
    }
    must(cudaEventRecord(fork_, stream));
    for (size_t s = 0; s + 1 < streams; ++s) must(cudaStreamWaitEvent(others_[s], fork_));
    const size_t each = std::min(pages_.size(), kFetchBytes / page_bytes_);
    for (size_t i = 0; i < each; ++i) {
      const cudaStream_t on = i % streams == 0 ? stream : others_[i % streams - 1];
      must(cudaMemcpyAsync(pages_[i].to, pages_[i].from, page_bytes_, cudaMemcpyHostToDevice, on));
    }
    for (size_t s = 0; s + 1 < streams; ++s) {
      must(cudaEventRecord(fork_, others_[s]));
      must(cudaStreamWaitEvent(stream, fork_));
    }
  }
  void copy_bulk(cudaStream_t stream) {
    must(cudaMemcpyAsync(device_.as<void>(), host_.data(), kFetchBytes, cudaMemcpyHostToDevice, stream));
  }
  double host_sum_bytes_per_s() {
    Event begin, end;
    begin.record(nullptr);
    begin.wait();
    const uint64_t sum = page_sum({host_.data(), kFetchBytes});
    end.record(nullptr);
    end.wait();
    return sum == 1 ? 0 : kFetchBytes / end.ms_since(begin) * 1e3;
  }
  double fetch_bytes() const {
    return static_cast<double>(std::min(pages_.size(), kFetchBytes / page_bytes_) * page_bytes_);
  }

 private:
  PinnedBuffer host_;
  DeviceBuffer device_, list_, sums_;
  std::vector<GatherPage> pages_;
  std::vector<cudaStream_t> others_;
  cudaEvent_t fork_ = nullptr;
  size_t page_bytes_ = 0;
  size_t at_ = 0;
};

double gb(double bytes, double ms) {
  return bytes / ms / 1e6;
}

// Products of a size that a layer of a small model has.
class Compute {
 public:
  Compute() {
    auto made = Gemm::make();
    if (!made.ok()) stop(made.error().message);
    gemm_ = std::move(*made);
    must(factors_.allocate(3 * size_t{kSide} * kSide * 2, "factors"));
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> values(size_t{1} << 22);
    for (uint16_t& value : values) value = f32_to_bf16(normal(random));
    for (size_t at = 0; at < factors_.bytes(); at += values.size() * 2) {
      must(cudaMemcpy(factors_.at<void>(at), values.data(),
                      std::min(values.size() * 2, factors_.bytes() - at), cudaMemcpyHostToDevice));
    }
  }
  void run(int rows, cudaStream_t stream) {
    GemmCall call;
    call.weight = {factors_.as<void>(), Element::kBF16};
    call.x = {factors_.at<void>(size_t{kSide} * kSide * 2), Element::kBF16};
    call.out = {factors_.at<void>(2 * size_t{kSide} * kSide * 2), Element::kBF16};
    call.m = call.k = kSide;
    call.rows = rows;
    must(gemm_->run(call, stream));
  }

 private:
  static constexpr int kSide = 8192;
  std::unique_ptr<Gemm> gemm_;
  DeviceBuffer factors_;
};

struct Beside {
  double compute_ms = 0;  // a product
  double bytes_per_ms = 0;
};

// Whose blocks are placed first.
enum class First { kNobody, kFetch };

struct Fetching {
  std::function<void(cudaStream_t)> fetch;  // empty: nothing is fetched
  double bytes = 0;                         // of one call
  First first = First::kNobody;
};

// Products while another thread fetches without a pause.
Beside run_beside(Compute& compute, int rows, int products, const Fetching& what) {
  const std::function<void(cudaStream_t)>& fetch = what.fetch;
  cudaStream_t computing = nullptr;
  cudaStream_t fetching = nullptr;
  must(cudaStreamCreateWithFlags(&computing, cudaStreamNonBlocking));
  must(cudaStreamCreateWithPriority(&fetching, cudaStreamNonBlocking, what.first == First::kFetch ? -1 : 0));
  Event start, begin, end;
  constexpr int kMostFetches = 400;
  std::vector<Event> fetched(kMostFetches);
  compute.run(rows, computing);
  must(cudaDeviceSynchronize());
  start.record(fetching);
  std::atomic<bool> stopped{false};
  std::atomic<int> started{0};
  std::thread fetcher([&] {
    while (fetch && !stopped && started < kMostFetches) {
      fetch(fetching);
      fetched[static_cast<size_t>(started)].record(fetching);
      ++started;
      // So far ahead that the bus never waits, and not farther: the products' end stops it.
      if (started > 4) fetched[static_cast<size_t>(started - 4)].wait();
    }
  });
  while (fetch && started < 3) std::this_thread::yield();
  begin.record(computing);
  for (int i = 0; i < products; ++i) compute.run(rows, computing);
  end.record(computing);
  end.wait();
  stopped = true;
  fetcher.join();
  must(cudaDeviceSynchronize());
  Beside result;
  result.compute_ms = end.ms_since(begin) / products;
  // What ended while products ran.
  int first = -1;
  int last = -1;
  for (int i = 0; i < started; ++i) {
    const double at = fetched[static_cast<size_t>(i)].ms_since(begin);
    if (at >= 0 && first < 0) first = i;
    if (at <= end.ms_since(begin)) last = i;
  }
  if (first >= 0 && last > first) {
    result.bytes_per_ms = (last - first) * what.bytes /
                          fetched[static_cast<size_t>(last)].ms_since(fetched[static_cast<size_t>(first)]);
  }
  must(cudaStreamDestroy(computing));
  must(cudaStreamDestroy(fetching));
  return result;
}

Beside median_beside(Compute& compute, int rows, int products, const Fetching& what, int runs = 5) {
  std::vector<double> times, rates;
  for (int i = 0; i < runs; ++i) {
    const Beside one = run_beside(compute, rows, products, what);
    times.push_back(one.compute_ms);
    rates.push_back(one.bytes_per_ms);
  }
  return {median(times), median(rates)};
}

// ", a batch of copies 12.3 GB/s"; its stream may not be the default one.
std::string batch_rate([[maybe_unused]] Pages& pages) {
#if CUDART_VERSION >= 13000
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const double ms = median_ms(5, stream, [&] { pages.copy_batch(stream); });
  must(cudaStreamDestroy(stream));
  return fmt::format(", a batch of copies {:.1f} GB/s", gb(pages.fetch_bytes(), ms));
#else
  return {};
#endif
}

void measure_alone(Pages& pages, bool quick) {
  const double bulk = median_ms(10, nullptr, [&] { pages.copy_bulk(nullptr); });
  std::printf("bulk copy from pinned memory %.1f GB/s; the host's own sums %.1f GB/s a thread\n",
              gb(kFetchBytes, bulk), pages.host_sum_bytes_per_s() / 1e9);
  for (const size_t kib : {8, 24, 64, 256, 768, 1792}) {
    pages.cut(kib << 10);
    pages.check({});
    const double each = median_ms(3, nullptr, [&] { pages.copy_each(nullptr); });
    std::printf("pages of %3zu KiB: checked; a copy each %5.1f GB/s%s\n", kib, gb(pages.fetch_bytes(), each),
                batch_rate(pages).c_str());
    for (const GatherShape shape :
         {GatherShape{1, 512, false}, GatherShape{1, 1024, false}, GatherShape{2, 512, false},
          GatherShape{2, 1024, false}, GatherShape{4, 256, false}, GatherShape{4, 512, false},
          GatherShape{8, 128, false}, GatherShape{8, 256, false}, GatherShape{16, 128, false},
          GatherShape{16, 256, false}, GatherShape{32, 256, false}, GatherShape{1, 512, true},
          GatherShape{2, 256, true}, GatherShape{2, 512, true}, GatherShape{4, 256, true}}) {
      double ms[2] = {};
      for (const bool sums : {false, true}) {
        ms[sums ? 1 : 0] =
            median_ms(quick ? 3 : 7, nullptr, [&] { must(gather_pages(pages.next(sums), shape, nullptr)); });
      }
      std::printf(
          "  gather, %2d blocks of %4d threads%s  %5.1f GB/s, with sums %5.1f GB/s (%3.0f %% of bulk)\n",
          shape.blocks, shape.threads, shape.deep ? ", deep" : "", gb(pages.fetch_bytes(), ms[0]),
          gb(pages.fetch_bytes(), ms[1]), 100 * bulk / ms[1] * pages.fetch_bytes() / kFetchBytes);
    }
  }
}

void measure_beside(Pages& pages) {
  Compute compute;
  for (const int rows : {8192, 1024}) {
    const int products = rows == 8192 ? 30 : 200;
    median_beside(compute, rows, products, {});  // until clocks and heat are steady
    const Beside alone = median_beside(compute, rows, products, {});
    std::printf("products of %d rows: %.3f ms alone\n", rows, alone.compute_ms);
    const auto report = [&](const std::string& what, const std::function<void(cudaStream_t)>& fetch,
                            double bytes) {
      const Beside one = median_beside(compute, rows, products, {fetch, bytes});
      std::printf("  beside %-54s %.3f ms (%+5.1f %%), %5.1f GB/s\n", what.c_str(), one.compute_ms,
                  100 * (one.compute_ms / alone.compute_ms - 1), one.bytes_per_ms / 1e6);
    };
    report(
        "a bulk copy", [&](cudaStream_t stream) { pages.copy_bulk(stream); }, kFetchBytes);
    for (const size_t kib : {8, 24, 256, 768, 1792}) {
      pages.cut(kib << 10);
      const std::string what = fmt::format("of {} KiB pages", kib);
      report(
          "a copy each " + what, [&](cudaStream_t stream) { pages.copy_each(stream); }, pages.fetch_bytes());
#if CUDART_VERSION >= 13000
      report(
          "batches of copies " + what, [&](cudaStream_t stream) { pages.copy_batch(stream); },
          pages.fetch_bytes());
#endif
      for (const GatherShape shape :
           {GatherShape{1, 1024, false}, GatherShape{2, 512, false}, GatherShape{2, 1024, false},
            GatherShape{4, 512, false}, GatherShape{1, 512, true}, GatherShape{2, 512, true}}) {
        report(
            fmt::format("a gather {}, {} x {}{}, sums", what, shape.blocks, shape.threads,
                        shape.deep ? " deep" : ""),
            [&](cudaStream_t stream) { must(gather_pages(pages.next(true), shape, stream)); },
            pages.fetch_bytes());
      }
    }
    const Beside again = median_beside(compute, rows, products, {});
    std::printf("products of %d rows: %.3f ms alone at the end\n", rows, again.compute_ms);
  }
}

struct Variant {
  std::string name;
  std::function<void(cudaStream_t)> fetch;
  std::function<void(const GatherCall&)> all;  // for the check; empty: nothing to check
  First first = First::kNobody;
};

std::vector<Variant> variants(Pages& pages) {
  std::vector<Variant> all;
  for (const size_t streams : {1, 2}) {
    all.push_back({fmt::format("a copy each over {} streams", streams),
                   [&pages, streams](cudaStream_t stream) { pages.copy_spread(stream, streams); }, nullptr});
  }
#if CUDART_VERSION >= 13000
  all.push_back({"a batch of copies", [&pages](cudaStream_t stream) { pages.copy_batch(stream); }, nullptr});
#endif
  const auto gather = [&](GatherShape shape, First first, const char* placed) {
    all.push_back(
        {fmt::format("gather {} x {}{}{}", shape.blocks, shape.threads, shape.deep ? " deep" : "", placed),
         [&pages, shape](cudaStream_t stream) { must(gather_pages(pages.next(false), shape, stream)); },
         nullptr, first});
  };
  gather({1, 512, true}, First::kNobody, "");
  gather({2, 512, true}, First::kNobody, "");
  gather({2, 512, true}, First::kFetch, ", placed first");
  const auto bulk = [&](BulkShape shape, First first, const char* placed) {
    const std::string blocks = fmt::format("{} blocks{}", shape.blocks, shape.pairs ? " in pairs" : "");
    all.push_back(
        {fmt::format("bulk, {}, {} x {} KiB{}", blocks, shape.stages, shape.piece_kib, placed),
         [&pages, shape](cudaStream_t stream) { must(bulk_gather_pages(pages.next(false), shape, stream)); },
         [shape](const GatherCall& call) { must(bulk_gather_pages(call, shape, nullptr)); }, first});
  };
  for (const int blocks : {1, 2}) {
    bulk({blocks, 16, 13}, First::kNobody, "");
    bulk({blocks, 24, 9}, First::kNobody, "");
    bulk({blocks, 32, 6}, First::kNobody, "");
    bulk({blocks, 48, 4}, First::kNobody, "");
    bulk({blocks, 64, 3}, First::kNobody, "");
  }
  bulk({1, 32, 3}, First::kNobody, "");
  bulk({1, 64, 2}, First::kNobody, "");
  bulk({2, 32, 6, true}, First::kNobody, "");
  bulk({1, 64, 3}, First::kFetch, ", placed first");
  return all;
}

void measure_variants(Pages& pages) {
  Compute compute;
  const std::vector<Variant> all = variants(pages);
  const double bulk = median_ms(10, nullptr, [&] { pages.copy_bulk(nullptr); });
  std::printf("bulk copy %.1f GB/s\n", gb(kFetchBytes, bulk));
  median_beside(compute, 8192, 60, {});  // until clocks are steady
  for (const size_t kib : {24, 64, 256, 768}) {
    pages.cut(kib << 10);
    std::printf("pages of %zu KiB: alone; beside products of 8,192 rows; of 1,024 rows\n", kib);
    for (const Variant& one : all) {
      if (one.all && kib == 24 && one.name.find("1 blocks") != std::string::npos) pages.check(one.all, false);
      cudaStream_t stream = nullptr;
      must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      const double ms = median_ms(5, stream, [&] { one.fetch(stream); });
      must(cudaStreamDestroy(stream));
      std::string line = fmt::format("  {:52} {:5.1f} GB/s", one.name, gb(pages.fetch_bytes(), ms));
      for (const int rows : {8192, 1024}) {
        if (kib == 64) continue;
        // Alone right before: clocks move as the chip grows warm.
        const int products = rows == 8192 ? 30 : 200;
        const Beside alone = median_beside(compute, rows, products, {}, 3);
        const Beside beside =
            median_beside(compute, rows, products, {one.fetch, pages.fetch_bytes(), one.first}, 3);
        line += fmt::format("; {:5.1f} GB/s, {:+5.1f} %", beside.bytes_per_ms / 1e6,
                            100 * (beside.compute_ms / alone.compute_ms - 1));
      }
      std::printf("%s\n", line.c_str());
    }
  }
}

int main(int argc, char** argv) {
  if (!why_no_device().empty()) stop(why_no_device());
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was measured is shown even if a later part is cut off
  const std::vector<std::string> parts(argv + 1, argv + argc);
  const auto given = [&](const char* name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  const bool quick = given("--quick");
  const bool all = !given("alone") && !given("beside") && !given("variants");
  std::printf("%s\n", device_name().c_str());
  Pages pages;
  if (all || given("alone")) measure_alone(pages, quick);
  if (all || given("beside")) measure_beside(pages);
  if (given("variants")) measure_variants(pages);
  return 0;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda::lab

int main(int argc, char** argv) {
  return rhapsode::kernels::cuda::lab::main(argc, argv);
}
