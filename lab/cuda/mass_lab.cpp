// The laboratory of attend_mass: a question over cached passages, every kernel checked against the exact one,
// then timed.
//
//   mass_lab [--variants]      exits 1 when a kernel is wrong
//
// Passages of 481 tokens each in a frame of its own, as blend's selector reads them; 24 layers take turns, so
// that their keys together exceed the L2. Without --variants the kernel as the library launches it, and with
// other parts of the queries; with it also other settings. Bytes are keys read once; floating point
// operations and powers of two count every query and slot once. Times are medians of CUDA events over all
// layers in a row. Nothing else may use the GPU meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/lab_timing.h"
#include "cuda/mass_variants.h"
#include "kernels/cuda/attend_mass.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/plan_upload.h"
#include "kernels/cuda/rope_tables.h"
#include "kernels/element.h"

namespace rhapsode::kernels::cuda::lab {
namespace {

constexpr int kLayers = 24;
constexpr int kPassageTokens = 481;
constexpr int kRuns = 20;
constexpr double kTolerance = 0.02;  // of a slot's sum

struct Case {
  const char* name;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::kF16;
  int rows = 0;
  int passages = 55;
};

using Launch = std::function<void(const DeviceAttend&, const MassTarget&)>;

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

DeviceBuffer on_device(const std::vector<float>& values) {
  DeviceBuffer buffer;
  must(buffer.allocate(values.size() * sizeof(float), "a tensor"));
  must(buffer.upload(std::as_bytes(std::span(values))));
  return buffer;
}

// Pages, plan, queries and their sums of one case.
class Bed {
 public:
  explicit Bed(const Case& c)
      : case_(c),
        shape_{kLayers, c.kv_heads, c.head_dim, c.type},
        layers_(kLayers, layer_of(c)),
        ropes_(layers_) {
    make_plan();
    upload();
    attend_rows(call(0), {plan_.at<const DeviceTile>(packer_.offsets().tiles), packer_.sizes().wide_tiles, 1},
                nullptr);
    must(cudaDeviceSynchronize());
  }

  int library_parts() const { return mass_query_parts(shape_, case_.heads, packer_.sizes()); }
  int runs() const { return packer_.sizes().runs; }
  double pairs() const { return 1.0 * case_.rows * case_.heads * slots_; }

  // Sums of one layer.
  std::vector<double> sums(const Launch& launch, int parts) {
    clear(parts);
    launch(call(0), target(parts));
    finish_mass(shape_, target(parts), nullptr);
    std::vector<double> sums(static_cast<size_t>(packer_.reference_count()) * kPageTokens);
    must(cudaMemcpy(sums.data(), mass_.as<void>(), sums.size() * sizeof(double), cudaMemcpyDeviceToHost));
    return sums;
  }

  double ms_of_all_layers(const Launch& launch, int parts) {
    clear(parts);
    return median_ms(kRuns, nullptr, [&] {
      for (int layer = 0; layer < kLayers; ++layer) launch(call(layer), target(parts));
      finish_mass(shape_, target(parts), nullptr);
    });
  }

 private:
  static AttendLayer layer_of(const Case& c) {
    AttendLayer layer;
    layer.heads = c.heads;
    layer.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    layer.rope.dimensions = c.head_dim;
    return layer;
  }

  void make_plan() {
    const int pages_of_passage = (kPassageTokens + kPageTokens - 1) / kPageTokens;
    pages_.resize(static_cast<size_t>(case_.passages * pages_of_passage));
    must(memory_.allocate(pages_.size() * shape_.block_bytes(), "pages"));
    fill_pages();
    SequencePlan sequence;
    for (int i = 0; i < case_.passages; ++i) {
      for (int p = 0; p < pages_of_passage; ++p) {
        const int number = i * pages_of_passage + p;
        Page& page = pages_[static_cast<size_t>(number)];
        page.data = memory_.at<std::byte>(static_cast<size_t>(number) * shape_.block_bytes());
        page.count = std::min(kPageTokens, kPassageTokens - p * kPageTokens);
        std::iota(page.positions.begin(), page.positions.end(), p * kPageTokens);
        sequence.references.push_back({&page, i * kPassageTokens});
        slots_ += page.count;
      }
    }
    sequence.row_count = case_.rows;
    batch_.sequences.push_back(std::move(sequence));
    for (int row = 0; row < case_.rows; ++row) batch_.positions.push_back(slots_ + row);
    batch_.writes.resize(batch_.positions.size());
    must(validate(batch_, shape_));
  }

  // Numbers of order 1, whatever the type; a scale of int8 is float32.
  void fill_pages() {
    std::vector<std::byte> bytes(shape_.block_bytes());
    const std::vector<float> values = random_floats(bytes.size(), 7);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (size_t i = 0; i < shape_.k_bytes() + shape_.v_bytes(); ++i) {
        std::byte* const at = bytes.data() + static_cast<size_t>(layer) * shape_.page_bytes();
        if (shape_.type == KvType::kI8) at[i] = static_cast<std::byte>(static_cast<int>(values[i] * 30));
        if (shape_.type == KvType::kI8 || i % 2 == 1) continue;
        const uint16_t narrow = shape_.type == KvType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
        std::memcpy(at + i, &narrow, sizeof narrow);
      }
      const std::vector<float> scales(shape_.scale_bytes() / sizeof(float), 1.0f / 30);
      if (!scales.empty()) {
        std::memcpy(bytes.data() + static_cast<size_t>(layer) * shape_.page_bytes() + shape_.k_bytes() +
                        shape_.v_bytes(),
                    scales.data(), shape_.scale_bytes());
      }
    }
    for (size_t page = 0; page < pages_.size(); ++page) {
      must(cudaMemcpy(memory_.at<std::byte>(page * bytes.size()), bytes.data(), bytes.size(),
                      cudaMemcpyHostToDevice));
    }
  }

  void upload() {
    const std::vector<int32_t> tokens(batch_.positions.size());
    packer_.pack({tokens, &batch_, {}, true});
    must(plan_.allocate(packer_.bytes().size(), "a plan"));
    must(plan_.upload(packer_.bytes()));
    must(ropes_.start());
    must(ropes_.fill(plan_.at<const int32_t>(packer_.offsets().angles), case_.rows, packer_.sizes().shifts,
                     nullptr));
    const size_t queries = static_cast<size_t>(case_.rows) * static_cast<size_t>(case_.heads);
    turned_ = on_device(random_floats(queries * static_cast<size_t>(case_.head_dim), 11));
    lse_ = on_device(std::vector<float>(queries));
    must(out_.allocate(queries * static_cast<size_t>(case_.head_dim) * sizeof(float), "results"));
  }

  DeviceAttend call(int layer) const {
    DeviceAttend call;
    const PlanOffsets& offsets = packer_.offsets();
    call.shape = shape_;
    call.plan.rows = case_.rows;
    call.plan.positions = plan_.at<const int32_t>(offsets.angles);
    call.plan.row_sequence = plan_.at<const int32_t>(offsets.row_sequence);
    call.plan.lists = plan_.at<const DeviceList>(offsets.lists);
    call.plan.references = plan_.at<const DeviceReference>(offsets.references);
    call.plan.gathered = plan_.at<const int32_t>(offsets.gathered);
    call.layer = layer;
    call.heads = case_.heads;
    call.scale = layers_[0].scale;
    const RopeRows rope = ropes_.of_layer(layer);
    call.pairs = rope.pairs;
    call.adjacent = rope.adjacent;
    call.shift_angles = rope.shifts;
    call.turned = turned_.as<float>();
    call.out = {out_.as<void>(), Element::kF32};
    call.lse = lse_.as<float>();
    return call;
  }

  MassTarget target(int parts) const {
    MassTarget target;
    target.sequences = plan_.at<const DeviceSequence>(packer_.offsets().sequences);
    target.shared = plan_.at<const DeviceList>(packer_.offsets().lists);
    target.runs = plan_.at<const DevicePageRun>(packer_.offsets().runs);
    target.run_count = packer_.sizes().runs;
    target.references = packer_.reference_count();
    target.query_parts = parts;
    target.sums = mass_.as<double>();
    return target;
  }

  void clear(int parts) {
    const size_t bytes = static_cast<size_t>(mass_parts(shape_, parts) * packer_.reference_count()) *
                         kPageTokens * sizeof(double);
    must(mass_.reserve(bytes, "sums"));
    must(cudaMemset(mass_.as<void>(), 0, bytes));
  }

  Case case_;
  KvShape shape_;
  std::vector<AttendLayer> layers_;
  RopeTables ropes_;
  PlanPacker packer_{kLayers, TileRule{1, 1, 0}};
  std::vector<Page> pages_;
  BatchPlan batch_;
  int slots_ = 0;
  DeviceBuffer memory_, plan_, turned_, lse_, out_, mass_;
};

// The largest difference of a slot's sum from the exact one, relative to that.
double difference(const std::vector<double>& exact, const std::vector<double>& sums) {
  double largest = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double off = std::abs(sums[i] - exact[i]) / std::max(exact[i], 1e-6);
    largest = std::isnan(off) ? INFINITY : std::max(largest, off);
  }
  return largest;
}

// False when some kernel is wrong.
bool measure(const Case& c, bool variants) {
  Bed bed(c);
  bool sound = true;
  const std::vector<double> exact =
      bed.sums([](const auto& call, const auto& target) { exact_mass(call, target, nullptr); }, 1);
  fmt::print("{}, {} rows, {} runs: sums add up to {:.3f} of {}\n", c.name, c.rows, bed.runs(),
             std::accumulate(exact.begin(), exact.end(), 0.0), c.rows * c.heads);
  const auto show = [&](const std::string& name, const Launch& launch, int parts) {
    const std::vector<double> sums = bed.sums(launch, parts);
    const double off = difference(exact, sums);
    const bool wrong = off >= kTolerance;
    const bool differs = bed.sums(launch, parts) != sums;
    sound = sound && !wrong && !differs;
    const double ms = bed.ms_of_all_layers(launch, parts);
    const double pairs = kLayers * bed.pairs();
    const double key_bytes = pairs / c.rows / c.heads * c.kv_heads * c.head_dim * element_bytes(c.type);
    fmt::print(
        "  {:24} {:2} parts: {:7.4f} ms for {} layers, keys {:5.2f} TB/s, {:5.1f} TFLOP/s, {:4.2f} T "
        "powers/s, off by {:.3g}{}{}\n",
        name, parts, ms, kLayers, key_bytes / ms / 1e9, 2 * pairs * c.head_dim / ms / 1e9, pairs / ms / 1e9,
        off, wrong ? "  WRONG" : "", differs ? "  NOT THE SAME TWICE" : "");
    std::fflush(stdout);
  };
  const Launch library = [](const auto& call, const auto& target) { attend_mass(call, target, nullptr); };
  show("library", library, bed.library_parts());
  for (const int parts : {1, 2, 3, 4, 5, 8}) show("library's kernel", library, parts);
  for (const MassVariant& variant : mass_variants()) {
    if (!variants || variant.type != c.type || variant.head_dim != c.head_dim) continue;
    for (const int parts : {2, 4}) {
      show(
          variant.name, [&](const auto& call, const auto& target) { variant.launch(call, target, nullptr); },
          parts);
    }
  }
  return sound;
}

int main(int argc, char** argv) {
  if (!why_no_device().empty()) stop(why_no_device());
  const bool variants = argc > 1 && std::string(argv[1]) == "--variants";
  fmt::print("{}\n", device_name());
  const Case cases[] = {
      {"0.5b, 14/2 heads, d 64, f16", 14, 2, 64, KvType::kF16, 1},
      {"0.5b, 14/2 heads, d 64, f16", 14, 2, 64, KvType::kF16, 12},
      {"0.5b, 14/2 heads, d 64, f16", 14, 2, 64, KvType::kF16, 80},
      {"0.5b, 14/2 heads, d 64, bf16", 14, 2, 64, KvType::kBF16, 80},
      {"0.5b, 14/2 heads, d 64, int8", 14, 2, 64, KvType::kI8, 80},
      {"1.5b, 12/2 heads, d 128, f16", 12, 2, 128, KvType::kF16, 80},
  };
  bool sound = true;
  for (const Case& c : cases) sound = measure(c, variants) && sound;
  return sound ? 0 : 1;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda::lab

int main(int argc, char** argv) {
  return rhapsode::kernels::cuda::lab::main(argc, argv);
}
