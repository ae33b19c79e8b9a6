// The laboratory of finding over one-bit codes on a GPU: first checked against the CPU's scan, then timed.
//
//   find_lab [--chunks N] [--quick]
//
// Codes, questions and the lengths of passages (1 to 63 chunks) are random. "scan" is the kernel alone over
// codes beyond the L2; "all" is everything from a question's whitened states on the host to the best 40
// passages back on it, by the host's clock; of that, "four bits" is the rounding of the states. Shares: of
// the bytes a second that a kernel reads from memory, and of the tensor cores' one-bit products a second,
// both measured in the same run (4 planes, 16 rows for each begun row group, as many operations as the
// instructions make). Nothing else may use the GPU meanwhile.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "cuda/find_rates.h"
#include "cuda/lab_timing.h"
#include "index/code_scan.h"
#include "index/scan_question.h"
#include "kernels/cuda/code_scan.h"
#include "kernels/cuda/code_search.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_buffer.h"

namespace rhapsode::kernels::cuda::lab {
namespace {

constexpr int kCount = 40;

struct Ceilings {
  double read_bytes_per_s = 0;
  double bit_operations_per_s = 0;
};

Ceilings measure_ceilings() {
  Ceilings ceilings;
  DeviceBuffer data;
  constexpr size_t kBytes = size_t{4} << 30;
  must(data.allocate(kBytes, "a read"));
  must(cudaMemset(data.as<void>(), 0x35, kBytes));
  auto* sink = data.as<int32_t>();
  const double read =
      median_ms(10, nullptr, [&] { launch_read(data.as<const uint4>(), kBytes / 16, sink, nullptr); });
  must(cudaGetLastError());
  ceilings.read_bytes_per_s = kBytes / read * 1e3;
  double rates[2] = {};
  for (const Product product : {Product::kBits, Product::kBytes}) {
    const double ms = median_ms(10, nullptr, [&] { launch_products(product, sink, nullptr); });
    must(cudaGetLastError());
    rates[static_cast<int>(product)] = product_operations(product) / ms * 1e3;
  }
  ceilings.bit_operations_per_s = rates[0];
  std::printf(
      "ceilings: copy %.2f TB/s (read and written), read %.2f TB/s, mma.sync: 1 bit %.0f TOP/s, 8 bits %.0f "
      "TOP/s\n",
      copy_bytes_per_s() / 1e12, ceilings.read_bytes_per_s / 1e12, rates[0] / 1e12, rates[1] / 1e12);
  return ceilings;
}

struct Corpus {
  Corpus(int dimensions_in, int64_t chunks) : dimensions(dimensions_in) {
    std::mt19937_64 random(1);
    const auto words = static_cast<size_t>(dimensions + 63) / 64;
    codes.resize(static_cast<size_t>(chunks) * words);
    for (uint64_t& word : codes) word = random();
    for (int64_t begin = 0; begin < chunks;) {
      const auto size =
          static_cast<int32_t>(std::min<int64_t>(1 + static_cast<int64_t>(random() % 63), chunks - begin));
      const auto* at = reinterpret_cast<const std::byte*>(codes.data() + static_cast<size_t>(begin) * words);
      runs.push_back({static_cast<int64_t>(runs.size()), at, size});
      passages.push_back({runs.back().id, at, size});
      begin += size;
    }
  }
  int dimensions;
  std::vector<uint64_t> codes;
  std::vector<CodeRun> runs;
  std::vector<index::PassageCodes> passages;
};

struct Question {
  Question(int dimensions, int tokens, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(dimensions)));
    vectors.dimensions = dimensions;
    vectors.vectors.resize(static_cast<size_t>(tokens) * static_cast<size_t>(dimensions));
    for (float& value : vectors.vectors) value = normal(random);
    for (int t = 0; t < tokens; ++t)
      vectors.weights.push_back(0.5f + static_cast<float>(random() % 1000) / 250.0f);
  }
  // As recall/device_codes.cpp does.
  CodeQuestion round() {
    index::FourBitQuestion four_bits(vectors);
    levels = std::move(four_bits.levels);
    factors.clear();
    for (size_t t = 0; t < vectors.weights.size(); ++t) {
      factors.push_back(static_cast<double>(vectors.weights[t]) * static_cast<double>(four_bits.scales[t]));
    }
    return {vectors.tokens(), levels, factors};
  }
  index::QuestionVectors vectors;
  std::vector<int8_t> levels;
  std::vector<double> factors;
};

double wall_ms(int runs, const std::function<void()>& call) {
  std::vector<double> times;
  for (int run = -3; run < runs; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (run >= 0) times.push_back(took.count());
  }
  return median(std::move(times));
}

// The scan alone, over random groups.
class ScanBed {
 public:
  ScanBed(int dimensions, int64_t chunks) : shape_(code_shape(dimensions)) {
    const auto groups = static_cast<size_t>((chunks + kGroupChunks - 1) / kGroupChunks);
    must(codes_.allocate(groups * shape_.group_words() * sizeof(uint32_t), "codes"));
    std::mt19937_64 random(5);
    std::vector<uint64_t> words((size_t{32} << 20) / 8 + 24);
    for (uint64_t& word : words) word = random();
    for (size_t at = 0; at < codes_.bytes(); at += words.size() * 8) {
      must(cudaMemcpy(codes_.at<void>(at), words.data(), std::min(words.size() * 8, codes_.bytes() - at),
                      cudaMemcpyHostToDevice));
    }
    std::vector<uint32_t> ends(groups);
    std::vector<int32_t> first(groups);
    int32_t slot = 0;
    for (size_t g = 0, left = 17; g < groups; ++g) {
      first[g] = slot;
      for (size_t c = 0; c < kGroupChunks; ++c) {
        if (--left > 0) continue;
        ends[g] |= 1u << c;
        ++slot;
        left = 1 + random() % 63;
      }
    }
    slots_ = static_cast<size_t>(slot) + 1;
    must(ends_.allocate(groups * 4, "ends"));
    must(ends_.upload(std::as_bytes(std::span(ends))));
    must(first_.allocate(groups * 4, "slots"));
    must(first_.upload(std::as_bytes(std::span(first))));
    must(ones_.allocate(groups * kGroupChunks * 2, "counts"));
    must(cudaMemset(ones_.as<void>(), 2, ones_.bytes()));
    segment_ = {codes_.as<uint32_t>(), ones_.as<int16_t>(), ends_.as<uint32_t>(), first_.as<int32_t>(),
                chunks};
  }

  double ms(int row_groups, int runs) {
    must(fragments_.reserve(shape_.fragment_words() * static_cast<size_t>(row_groups) * 4, "a question"));
    must(cudaMemset(fragments_.as<void>(), 0x35, fragments_.bytes()));
    must(maxima_.reserve(slots_ * static_cast<size_t>(row_groups) * kRowGroupTokens * 4, "maxima"));
    must(cudaMemset(maxima_.as<void>(), 0x80, maxima_.bytes()));
    ScanCall call;
    call.shape = shape_;
    call.segment = segment_;
    call.fragments = fragments_.as<const uint32_t>();
    call.row_groups = row_groups;
    call.maxima = maxima_.as<int32_t>();
    call.stride = row_groups * kRowGroupTokens;
    return median_ms(runs, nullptr, [&] { must(scan_codes(call, nullptr)); });
  }
  double bytes() const {
    return static_cast<double>(codes_.bytes() + ones_.bytes() + ends_.bytes() + first_.bytes());
  }
  double operations(int row_groups) const {
    const double groups = static_cast<double>((segment_.chunks + kGroupChunks - 1) / kGroupChunks);
    return 2.0 * groups * kGroupChunks * shape_.blocks * shape_.block_pairs() * 256.0 * kCodePlanes *
           kRowGroupTokens * row_groups;
  }

 private:
  CodeShape shape_;
  CodeSegment segment_;
  size_t slots_ = 0;
  DeviceBuffer codes_, ones_, ends_, first_, fragments_, maxima_;
};

void check(CodeSearch& search, const Corpus& corpus, Question question,
           const std::vector<uint64_t>& visible) {
  const CodeQuestion view = question.round();
  const auto found = search.best({&view, 1}, visible, kCount);
  if (!found.ok()) stop(found.error().message);
  const auto threads = static_cast<int>(std::thread::hardware_concurrency());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<index::ScanHit> expected = index::best_passages(
      question.vectors, corpus.passages, index::QuestionForm::kFourBits, kCount, threads);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  for (size_t i = 0; i < expected.size(); ++i) {
    if ((*found)[0].size() != expected.size() || (*found)[0][i].id != expected[i].id ||
        (*found)[0][i].score != expected[i].score) {
      stop(fmt::format("the GPU's result differs from the CPU's at place {}", i));
    }
  }
  std::printf("  %d tokens: the best %d are the CPU's, bit for bit (there %.0f ms on %d threads)\n",
              view.tokens, kCount, took.count(), threads);
}

void measure(int dimensions, int64_t chunks, const Ceilings& ceilings, bool quick) {
  std::printf("%d dimensions, %.2f million chunks\n", dimensions, static_cast<double>(chunks) / 1e6);
  {
    ScanBed bed(dimensions, chunks);
    for (const int row_groups : {1, 2, 3, 4}) {
      const double ms = bed.ms(row_groups, quick ? 5 : 30);
      const double bytes = bed.bytes() / ms * 1e3;
      const double operations = bed.operations(row_groups) / ms * 1e3;
      std::printf(
          "  scan, up to %2d tokens  %8.4f ms  %5.2f TB/s (%3.0f %% of reading)  %6.0f TOP/s (%3.0f %% of "
          "products)\n",
          row_groups * kRowGroupTokens, ms, bytes / 1e12, 100 * bytes / ceilings.read_bytes_per_s,
          operations / 1e12, 100 * operations / ceilings.bit_operations_per_s);
    }
  }
  const Corpus corpus(dimensions, chunks);
  auto made = make_code_search(dimensions);
  if (!made.ok()) stop(made.error().message);
  CodeSearch& search = **made;
  const auto begin = std::chrono::steady_clock::now();
  must(search.add(corpus.runs));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const std::vector<uint64_t> visible((search.slots() + 63) / 64, ~uint64_t{0});
  std::printf("  %zu passages brought to the GPU in %.2f s, %.2f GB there\n", search.slots(), took.count(),
              static_cast<double>(search.device_bytes()) / 1e9);
  for (const int tokens : {12, 30}) check(search, corpus, Question(dimensions, tokens, 7), visible);
  const auto time = [&](int questions, int tokens) {
    std::vector<Question> asked;
    for (int q = 0; q < questions; ++q) asked.emplace_back(dimensions, tokens, static_cast<unsigned>(q));
    std::vector<CodeQuestion> views;
    const auto round_all = [&] {
      views.clear();
      for (Question& question : asked) views.push_back(question.round());
    };
    const int runs = quick ? 5 : 50;
    const double rounding = wall_ms(runs, round_all);
    const double ms = wall_ms(runs, [&] {
      round_all();
      if (!search.best(views, visible, kCount).ok()) stop("a search failed");
    });
    std::printf("  all, %2d question%s of %2d tokens  %8.4f ms (four bits %.4f)\n", questions,
                questions > 1 ? "s" : " ", tokens, ms, rounding);
  };
  time(1, 12);
  time(1, 16);
  time(1, 30);
  time(1, 64);
  time(4, 12);
  time(16, 12);
}

int main(int argc, char** argv) {
  if (!why_no_device().empty()) stop(why_no_device());
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was measured is shown even if a later part is cut off
  int64_t chunks = 6'250'000;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--quick") {
      quick = true;
    } else if (option == "--chunks" && i + 1 < argc) {
      chunks = std::max(1LL, std::atoll(argv[++i]));
    } else {
      stop("find_lab [--chunks N] [--quick]");
    }
  }
  std::printf("%s\n", device_name().c_str());
  const Ceilings ceilings = measure_ceilings();
  measure(1536, chunks, ceilings, quick);
  measure(896, chunks, ceilings, quick);
  return 0;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda::lab

int main(int argc, char** argv) {
  return rhapsode::kernels::cuda::lab::main(argc, argv);
}
