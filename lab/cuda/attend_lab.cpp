// The laboratory of the attention kernels: numbered kernels over synthetic plans, first checked, then timed.
//
//   attend_lab [decode|prefill|scattered|peaks ...] [--quick] [--variants]
//
// Kernels: 1 rows (one warp a row and head; exact arithmetic, equal to the reference in the tests), 2 stream
// (tensor cores, pages straight into registers), 3 ring (wgmma, pages through a ring between warpgroups);
// with
// --variants also other settings of 2 and 3. Every case is checked against kernel 1 (norm of the difference
// over norm of the result) before it is timed. Bytes count each page once a KV head and pass; floating point
// operations count causal pairs once. Times are medians of CUDA events, of one call or, of decoding, of
// several in a row, as the layers of a pass are; calls rotate over layers whose pages together exceed the L2.
// The ceilings are measured in the same run: a large copy, and cuBLASLt on random bf16. Nothing else may use
// the GPU meanwhile.
//
// What lost on an H200 and is gone. Prefill: mma.sync (24 % of the ceiling); keys and values in unswizzled
// pieces of 16 bytes (a third slower: copies and products meet in few banks); every fourth power by a
// polynomial (5 % slower); one ring for keys and values together (430 TFLOP/s at d 128 and 16k, where two
// have 535: keys wait for values that are not needed yet); copying warps that wait for what they copied
// before they begin more (502); queries kept in 16 bits for the sake of a third stage (1 %); probabilities
// summed behind the wait for the values before (520). Decoding: a tile's splits as blocks of one cluster that
// merge by themselves (a third slower: clusters of six leave processors idle); at d 128, where registers have
// 88 % of the copy: pages through shared memory by bulk copies (76 %) or by each lane's own (48 %), the next
// page's keys asked for before values are multiplied (60 %, spills), every next page brought to the L2 (75
// %).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/ring_variants.h"
#include "kernels/cuda/attend_ring.h"
#include "kernels/cuda/attend_stream.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/plan_upload.h"
#include "kernels/cuda/rope_tables.h"
#include "kernels/element.h"

namespace rhapsode::kernels::cuda {
namespace {

constexpr int kPagesOfAPassage = 8;

struct Case {
  std::string name;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::kF16;
  int sequences = 1;
  int context = 0;         // tokens that lie in pages
  int rows = 1;            // of each sequence
  double row_share = 0.0;  // > 0: so many of the context's tokens are rows, scattered; overrides `rows`
  bool shifts = true;      // every passage in a frame of its own, and some slots masked
};

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "attend_lab: %s\n", message.c_str());
  std::exit(1);
}
void must(const Status& status) {
  if (!status.ok()) stop(status.error().message);
}
void must(cudaError_t code) {
  if (code != cudaSuccess) stop(cudaGetErrorString(code));
}

// Random 16-bit numbers of order 1, many times over.
void fill_random(std::byte* to, size_t bytes, KvType type) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values((size_t{8} << 20) + 24);
  for (uint16_t& value : values) {
    value = type == KvType::kBF16 ? f32_to_bf16(normal(random)) : f32_to_f16(normal(random));
    if (type == KvType::kI8) value = static_cast<uint16_t>(random());
  }
  const size_t piece = values.size() * 2;
  for (size_t begin = 0; begin < bytes; begin += piece) {
    must(cudaMemcpy(to + begin, values.data(), std::min(piece, bytes - begin), cudaMemcpyHostToDevice));
  }
}

DeviceBuffer random_floats(size_t count) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> values(std::min<size_t>(count, size_t{1} << 22));
  for (float& value : values) value = normal(random);
  DeviceBuffer buffer;
  must(buffer.allocate(count * sizeof(float), "queries"));
  for (size_t begin = 0; begin < count; begin += values.size()) {
    const size_t part = std::min(values.size(), count - begin);
    must(cudaMemcpy(buffer.at<float>(begin * sizeof(float)), values.data(), part * sizeof(float),
                    cudaMemcpyHostToDevice));
  }
  return buffer;
}

// Milliseconds of one call: the median over `runs` of `calls` in a row, after two runs that do not count.
double median_ms(int runs, int calls, const std::function<void(int)>& call) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  must(cudaEventCreate(&begin));
  must(cudaEventCreate(&end));
  std::vector<double> times;
  for (int run = -2; run < runs; ++run) {
    must(cudaEventRecord(begin));
    for (int i = 0; i < calls; ++i) call((run + 2) * calls + i);
    must(cudaEventRecord(end));
    must(cudaEventSynchronize(end));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end));
    if (run >= 0) times.push_back(static_cast<double>(ms) / calls);
  }
  must(cudaEventDestroy(begin));
  must(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// A kernel and how it wants rows cut.
struct Kernel {
  std::string name;
  int tile_rows = 1;
  void (*launch)(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) = nullptr;
  int splits = -1;       // attend_stream: 0 as many as it chooses; -1: another kernel
  bool planned = false;  // attend_ring: as the plan says, where it does
};

// Pages, plan and tensors of one case on the device.
class Bed {
 public:
  explicit Bed(const Case& c)
      : case_(c),
        shape_{layers_for(c), c.kv_heads, c.head_dim, c.type},
        layers_(static_cast<size_t>(shape_.layers), layer_of(c)),
        ropes_(layers_) {
    make_pages();
    make_plan();
    upload();
  }

  DeviceAttend call(int run) {
    DeviceAttend call;
    const int layer = run % shape_.layers;
    const PlanOffsets& offsets = packer_->offsets();
    call.shape = shape_;
    call.plan.rows = rows();
    call.plan.positions = plan_.at<const int32_t>(offsets.angles);
    call.plan.row_sequence = plan_.at<const int32_t>(offsets.row_sequence);
    call.plan.writes = plan_.at<const DeviceWrite>(offsets.writes);
    call.plan.lists = plan_.at<const DeviceList>(offsets.lists);
    call.plan.references = plan_.at<const DeviceReference>(offsets.references);
    call.plan.gathered = plan_.at<const int32_t>(offsets.gathered);
    call.layer = layer;
    call.heads = case_.heads;
    call.scale = layers_[0].scale;
    const RopeRows rope = ropes_.of_layer(layer);
    call.pairs = rope.pairs;
    call.adjacent = rope.adjacent;
    call.row_angles = rope.rows;
    call.write_angles = rope.writes;
    call.shift_angles = rope.shifts;
    call.q = q_.as<const float>();
    call.k = call.v = q_.as<const float>();  // no row is written
    call.q_stride = call.k_stride = call.v_stride = int64_t{case_.heads} * case_.head_dim;
    call.turned = turned_.as<float>();
    call.out = {out_.as<void>(), Element::kBF16};
    return call;
  }

  // One call of a kernel, in the layer whose turn it is.
  void run(const Kernel& kernel, int number) {
    const DeviceAttend c = call(number);
    const TileList tiles{plan_.at<const DeviceTile>(packer_->offsets().tiles), packer_->sizes().wide_tiles,
                         kernel.tile_rows};
    if (kernel.splits >= 0) {
      StreamSchedule schedule{tiles};
      schedule.splits = stream_splits(shape_, case_.heads, tiles.count, packer_->sizes().most_references);
      if (kernel.splits > 0) schedule.splits = kernel.splits;
      must(partials_.reserve(stream_workspace_bytes(shape_, case_.heads, tiles.count, schedule.splits),
                             "partial results"));
      schedule.partials = partials_.as<float>();
      attend_stream(c, schedule, nullptr);
    } else if (kernel.planned) {
      const PlanSizes& sizes = packer_->sizes();
      must(partials_.reserve(ring_slots_bytes(shape_, sizes.part_slots), "partial results"));
      attend_ring(c,
                  {tiles,
                   1,
                   partials_.as<float>(),
                   {plan_.at<const DevicePart>(packer_->offsets().parts), sizes.part_rounds,
                    plan_.at<const DeviceMerge>(packer_->offsets().merges), sizes.merges}},
                  nullptr);
    } else {
      kernel.launch(c, tiles, nullptr);
    }
    must(cudaGetLastError());
  }

  // The tiles that a kernel wants; then run() may be called with it.
  void cut_for(const Kernel& kernel) {
    pack(kernel.tile_rows);
    turn_and_write(call(0), nullptr);
  }

  // How far the result of a kernel is from that of attend_rows(): ‖a - b‖ / ‖a‖.
  double difference(const Kernel& kernel) {
    if (exact_.empty()) exact_ = result_of({"rows", 1, attend_rows});
    const std::vector<uint16_t> result = result_of(kernel);
    double squares = 0;
    double differences = 0;
    for (size_t i = 0; i < exact_.size(); ++i) {
      const double x = bf16_to_f32(exact_[i]);
      const double d = x - bf16_to_f32(result[i]);
      squares += x * x;
      differences += d * d;
    }
    return std::sqrt(differences / squares);
  }

  int rows() const { return batch_.rows(); }
  double page_bytes() const {  // read once a pass
    return static_cast<double>(case_.sequences) * case_.context * 2 * case_.kv_heads * case_.head_dim *
           element_bytes(case_.type);
  }
  double operations() const {
    double pairs = 0;
    for (const int32_t position : batch_.positions) pairs += std::min<double>(position + 1, case_.context);
    return 4.0 * pairs * case_.heads * case_.head_dim;
  }

 private:
  static int layers_for(const Case& c) {
    // Together far beyond the L2's 60 MB.
    const double bytes = 2.0 * c.sequences * c.context * c.kv_heads * c.head_dim * element_bytes(c.type);
    return bytes > 200e6 ? 2 : std::clamp(static_cast<int>(400e6 / bytes), 2, 24);
  }
  static AttendLayer layer_of(const Case& c) {
    AttendLayer layer;
    layer.heads = c.heads;
    layer.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    layer.rope.dimensions = c.head_dim;
    return layer;
  }

  void make_pages() {
    const int per_sequence = (case_.context + kPageTokens - 1) / kPageTokens;
    pages_.resize(static_cast<size_t>(per_sequence * case_.sequences));
    must(memory_.allocate(pages_.size() * shape_.block_bytes(), "pages"));
    fill_random(memory_.as<std::byte>(), memory_.bytes(), case_.type);
    if (case_.type == KvType::kI8) set_scales();
    for (size_t i = 0; i < pages_.size(); ++i) {
      const int number = static_cast<int>(i) % per_sequence;
      const int frame = case_.shifts ? number % kPagesOfAPassage : number;
      pages_[i].data = memory_.at<std::byte>(i * shape_.block_bytes());
      pages_[i].count = kPageTokens;
      std::iota(pages_[i].positions.begin(), pages_[i].positions.end(), frame * kPageTokens);
    }
  }

  void set_scales() {
    const size_t page_count = pages_.size() * static_cast<size_t>(shape_.layers);
    const std::vector<float> scales(page_count * shape_.scale_bytes() / sizeof(float), 1.0f / 64);
    must(cudaMemcpy2D(memory_.at<std::byte>(shape_.k_bytes() + shape_.v_bytes()), shape_.page_bytes(),
                      scales.data(), shape_.scale_bytes(), shape_.scale_bytes(), page_count,
                      cudaMemcpyHostToDevice));
  }

  void make_plan() {
    const int per_sequence = static_cast<int>(pages_.size()) / case_.sequences;
    std::mt19937 random(3);
    for (int s = 0; s < case_.sequences; ++s) {
      SequencePlan sequence;
      for (int i = 0; i < per_sequence; ++i) {
        PageReference reference{&pages_[static_cast<size_t>(s * per_sequence + i)]};
        reference.shift = case_.shifts ? i / kPagesOfAPassage * kPagesOfAPassage * kPageTokens : 0;
        if (case_.shifts && i % kPagesOfAPassage == 3) reference.mask = ~(1ull << (random() % 64));
        sequence.references.push_back(reference);
      }
      sequence.row_begin = batch_.rows();
      const int first = case_.row_share > 0 ? 0 : case_.context - case_.rows;
      for (int position = first; position < case_.context; ++position) {
        if (case_.row_share > 0 && random() % 1000 >= case_.row_share * 1000) continue;
        batch_.positions.push_back(position);
      }
      batch_.writes.resize(batch_.positions.size());
      sequence.row_count = batch_.rows() - sequence.row_begin;
      batch_.sequences.push_back(std::move(sequence));
    }
    must(validate(batch_, shape_));
  }

  std::vector<uint16_t> result_of(const Kernel& kernel) {
    cut_for(kernel);
    must(cudaMemset(out_.as<void>(), 0xff, out_.bytes()));  // what is not written is NaN
    run(kernel, 0);
    std::vector<uint16_t> result(static_cast<size_t>(rows()) * case_.heads * case_.head_dim);
    must(cudaMemcpy(result.data(), out_.as<void>(), result.size() * 2, cudaMemcpyDeviceToHost));
    return result;
  }

  void pack(int tile_rows) {
    packer_ =
        std::make_unique<PlanPacker>(shape_.layers, TileRule{1, tile_rows, 0, case_.kv_heads, kProcessors});
    const std::vector<int32_t> tokens(static_cast<size_t>(rows()));
    packer_->pack({tokens, &batch_, {}});
    must(plan_.reserve(packer_->bytes().size(), "a plan"));
    must(plan_.upload(packer_->bytes()));
    must(ropes_.fill(plan_.at<const int32_t>(packer_->offsets().angles), rows(), packer_->sizes().shifts,
                     nullptr));
  }

  void upload() {
    must(ropes_.start());
    const size_t floats = static_cast<size_t>(rows()) * case_.heads * case_.head_dim;
    q_ = random_floats(floats);
    must(turned_.allocate(floats * sizeof(float), "turned queries"));
    must(out_.allocate(floats * 2, "results"));
  }

  Case case_;
  KvShape shape_;
  std::vector<AttendLayer> layers_;
  RopeTables ropes_;
  std::vector<Page> pages_;
  BatchPlan batch_;
  std::unique_ptr<PlanPacker> packer_;
  std::vector<uint16_t> exact_;
  DeviceBuffer memory_, plan_, q_, turned_, out_, partials_;
};

struct Peaks {
  double bytes_per_s = 0;
  double flops_per_s = 0;
};

// How often a kernel is timed, and calls in a row each time.
struct Runs {
  int count = 20;
  int calls = 1;
};

Peaks measure_peaks() {
  Peaks peaks;
  constexpr size_t kBytes = size_t{4} << 30;
  DeviceBuffer from;
  DeviceBuffer to;
  must(from.allocate(kBytes, "a copy"));
  must(to.allocate(kBytes, "a copy"));
  fill_random(from.as<std::byte>(), kBytes, KvType::kF16);
  const double copy = median_ms(10, 1, [&](int) {
    must(cudaMemcpyAsync(to.as<void>(), from.as<void>(), kBytes, cudaMemcpyDeviceToDevice));
  });
  peaks.bytes_per_s = 2.0 * kBytes / copy * 1e3;

  auto gemm = Gemm::make();
  if (!gemm.ok()) stop(gemm.error().message);
  constexpr int64_t kSide = 8192;
  fill_random(from.as<std::byte>(), 3 * kSide * kSide * 2, KvType::kBF16);
  GemmCall call;
  call.weight = {from.as<void>(), Element::kBF16};
  call.x = {from.at<void>(kSide * kSide * 2), Element::kBF16};
  call.out = {to.as<void>(), Element::kBF16};
  call.m = call.k = call.rows = kSide;
  const double product = median_ms(20, 1, [&](int) { must((*gemm)->run(call, nullptr)); });
  peaks.flops_per_s = 2.0 * kSide * kSide * kSide / product * 1e3;
  std::printf("peaks: copy %.2f TB/s (bytes read and written), bf16 product %.0f TFLOP/s\n",
              peaks.bytes_per_s / 1e12, peaks.flops_per_s / 1e12);
  return peaks;
}

void measure(const Case& c, const std::vector<Kernel>& kernels, const Peaks& peaks, const Runs& runs) {
  Bed bed(c);
  for (const Kernel& kernel : kernels) {
    const double difference = bed.difference(kernel);
    bed.cut_for(kernel);
    const double ms = median_ms(runs.count, runs.calls, [&](int run) { bed.run(kernel, run); });
    const double bytes = bed.page_bytes() / ms * 1e3;
    const double flops = bed.operations() / ms * 1e3;
    std::printf("%-30s %-36s %8.4f ms  %5.2f TB/s (%3.0f %%)  %6.1f TFLOP/s (%3.0f %%)  off by %.3g%s\n",
                c.name.c_str(), kernel.name.c_str(), ms, bytes / 1e12, 100 * bytes / peaks.bytes_per_s,
                flops / 1e12, 100 * flops / peaks.flops_per_s, difference,
                difference < 0.02 ? "" : "  WRONG");
    std::fflush(stdout);
  }
}

// What may attend for few rows of this shape, and for many.
std::vector<Kernel> kernels_for_few(const Case& c, bool variants) {
  const int group = c.heads / c.kv_heads;
  std::vector<Kernel> kernels{{"2 stream", stream_tile_rows(group), nullptr, 0}};
  if (!variants) return kernels;
  for (const int splits : {2, 3, 4, 5, 8, 12, 24}) {
    kernels.push_back({fmt::format("2 stream, {} splits", splits), stream_tile_rows(group), nullptr, splits});
  }
  return kernels;
}

std::vector<Kernel> kernels_for_many(const Case& c, bool variants) {
  const int group = c.heads / c.kv_heads;
  std::vector<Kernel> kernels{{"3 ring", ring_tile_rows(c.head_dim, group),
                               [](const DeviceAttend& call, const TileList& tiles, cudaStream_t stream) {
                                 attend_ring(call, {tiles}, stream);
                               }}};
  kernels.push_back(kernels.front());
  kernels.back().name += ", planned";
  kernels.back().planned = true;
  for (const lab::RingVariant& variant : lab::ring_variants()) {
    if (!variants || variant.head_dim != c.head_dim) continue;
    kernels.push_back({fmt::format("3 ring, {}", variant.name), variant.queries / group, variant.launch});
  }
  return kernels;
}

std::vector<Case> decode_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, int heads, int kv_heads, int d, KvType type, int sequences,
                       int context) {
    cases.push_back({fmt::format("decode {} {} x {}k", name, sequences, context / 1024), heads, kv_heads, d,
                     type, sequences, context});
  };
  add("135m gqa 3 d 64 f16", 9, 3, 64, KvType::kF16, 32, 16384);
  add("0.5b gqa 7 d 64 f16", 14, 2, 64, KvType::kF16, 32, 16384);
  add("1.5b gqa 6 d 128 f16", 12, 2, 128, KvType::kF16, 32, 16384);
  add("1.5b gqa 6 d 128 int8", 12, 2, 128, KvType::kI8, 32, 16384);
  add("0.5b gqa 7 d 64 f16", 14, 2, 64, KvType::kF16, 1, 32768);
  add("1.5b gqa 6 d 128 f16", 12, 2, 128, KvType::kF16, 1, 32768);
  return cases;
}

std::vector<Case> prefill_cases(bool quick) {
  std::vector<Case> cases;
  for (const int context : {8192, 16384, 32768}) {
    if (quick && context > 8192) break;
    for (const bool shifts : {false, true}) {
      const char* how = shifts ? " shifts" : "";
      cases.push_back({fmt::format("prefill 1.5b d 128 {}k{}", context / 1024, how), 12, 2, 128, KvType::kF16,
                       1, context, context, 0.0, shifts});
      cases.push_back({fmt::format("prefill 0.5b d 64 {}k{}", context / 1024, how), 14, 2, 64, KvType::kF16,
                       1, context, context, 0.0, shifts});
    }
  }
  return cases;
}

std::vector<Case> scattered_cases() {
  std::vector<Case> cases;
  for (const double share : {1.0, 0.15}) {
    cases.push_back({fmt::format("rows {:.0f} % of 27k 1.5b", share * 100), 12, 2, 128, KvType::kF16, 1,
                     27648, 0, share});
    cases.push_back(
        {fmt::format("rows {:.0f} % of 27k 0.5b", share * 100), 14, 2, 64, KvType::kF16, 1, 27648, 0, share});
  }
  return cases;
}

int main(int argc, char** argv) {
  if (!why_no_device().empty()) stop(why_no_device());
  std::vector<std::string> parts(argv + 1, argv + argc);
  const auto given = [&](const char* name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  const bool quick = given("--quick");
  const bool variants = given("--variants");
  const bool all = static_cast<int>(parts.size()) == int{quick} + int{variants};
  std::printf("%s\n", device_name().c_str());
  const Peaks peaks = measure_peaks();
  const int count = quick ? 5 : 20;
  if (all || given("decode")) {
    for (const Case& c : decode_cases()) {
      measure(c, kernels_for_few(c, variants), peaks, {count, 1});
      std::printf("eight in a row:\n");
      measure(c, kernels_for_few(c, variants), peaks, {count, 8});
    }
  }
  if (all || given("prefill")) {
    for (const Case& c : prefill_cases(quick)) measure(c, kernels_for_many(c, variants), peaks, {count, 1});
  }
  if (all || given("scattered")) {
    for (const Case& c : scattered_cases()) measure(c, kernels_for_many(c, variants), peaks, {count, 1});
  }
  return 0;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda

int main(int argc, char** argv) {
  return rhapsode::kernels::cuda::main(argc, argv);
}
