// Any context plan: what validate() accepts, the reference attends to without touching memory it must not,
// and the CPU attends to with the same result.
#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "kernels/attend.h"
#include "kernels/context_plan.h"
#include "kernels/cpu/attend.h"

using namespace rhapsode::kernels;

namespace {

constexpr int kMaxRows = 8;

// Bytes turned into a shape, pages, a plan and the numbers of a layer.
class Case {
 public:
  explicit Case(FuzzedDataProvider& in);
  void run();

 private:
  int32_t position();
  void make_pages();
  PageReference make_reference();
  std::vector<PageReference> make_references();
  void make_sequences();
  void fill(Page& page, int first, int count);
  void attend_layer(int layer);
  void compare_with_cpu(int layer, const std::vector<float>& expected);

  FuzzedDataProvider& in_;
  KvShape shape_;
  AttendLayer layer_;
  std::vector<std::vector<std::byte>> blocks_;
  std::deque<Page> pages_;
  BatchPlan plan_;
  std::vector<float> q_;
};

float number(int i) {
  return static_cast<float>((i * 37 + 11) % 64 - 32) / 32.0f;
}

Case::Case(FuzzedDataProvider& in) : in_(in) {
  shape_.layers = in_.ConsumeIntegralInRange(1, 2);
  shape_.kv_heads = in_.ConsumeIntegralInRange(1, 2);
  shape_.head_dim = 16 * in_.ConsumeIntegralInRange(1, 2);
  shape_.type = static_cast<KvType>(in_.ConsumeIntegralInRange(0, 3));
  layer_.heads = shape_.kv_heads * in_.ConsumeIntegralInRange(1, 3);
  layer_.scale = 0.25f;
  layer_.window = in_.ConsumeBool() ? in_.ConsumeIntegralInRange(0, 200) : 0;
  layer_.soft_cap = in_.ConsumeBool() ? 8.0f : 0.0f;
  layer_.rope.dimensions = in_.ConsumeBool() ? shape_.head_dim : shape_.head_dim / 2;
  layer_.rope.pairing = in_.ConsumeBool() ? RopePairing::kAdjacent : RopePairing::kHalves;
  make_pages();
  make_sequences();
}

// Mostly near; sometimes as far as a number goes, for the validator.
int32_t Case::position() {
  if (in_.ConsumeIntegralInRange(0, 31) == 0) return in_.ConsumeIntegral<int32_t>();
  return in_.ConsumeIntegralInRange(-300, 3000);
}

void Case::make_pages() {
  const int count = in_.ConsumeIntegralInRange(1, 4);
  for (int i = 0; i < count; ++i) {
    // Exactly a block, so that a sanitizer sees the first byte outside.
    blocks_.emplace_back(shape_.block_bytes());
    Page& page = pages_.emplace_back();
    page.data = in_.ConsumeIntegralInRange(0, 31) == 0 ? nullptr : blocks_.back().data();
    page.consecutive = in_.ConsumeBool();
    const int32_t first = position();
    for (int slot = 0; slot < kPageTokens; ++slot) {
      page.positions[static_cast<size_t>(slot)] =
          page.consecutive ? static_cast<int32_t>(static_cast<uint32_t>(first) + static_cast<uint32_t>(slot))
                           : position();
    }
    const int filled = in_.ConsumeIntegralInRange(0, kPageTokens);
    if (page.data != nullptr) fill(page, 0, filled);
    page.count = in_.ConsumeIntegralInRange(0, 31) == 0 ? in_.ConsumeIntegral<int8_t>() : filled;
  }
}

void Case::fill(Page& page, int first, int count) {
  RopeTable rope(layer_.rope);
  std::vector<float> row(static_cast<size_t>(shape_.kv_heads * shape_.head_dim));
  for (int slot = first; slot < first + count; ++slot) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = number(static_cast<int>(i) + slot);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      const AttendSite site{layer, layer_.heads, layer_.scale, layer_.window, layer_.soft_cap, &rope};
      reference::write_row(shape_, site, {&page, slot}, row.data(), row.data());
    }
  }
}

PageReference Case::make_reference() {
  PageReference reference;
  const size_t page = in_.ConsumeIntegralInRange<size_t>(0, pages_.size());
  reference.page = page == pages_.size() ? nullptr : &pages_[page];
  reference.shift = position();
  reference.sink = in_.ConsumeBool();
  if (in_.ConsumeBool()) reference.mask = in_.ConsumeIntegral<uint64_t>();
  return reference;
}

std::vector<PageReference> Case::make_references() {
  std::vector<PageReference> references(in_.ConsumeIntegralInRange<size_t>(0, 5));
  for (PageReference& reference : references) reference = make_reference();
  return references;
}

void Case::make_sequences() {
  const int rows = in_.ConsumeIntegralInRange(0, kMaxRows);
  const int sequences = in_.ConsumeIntegralInRange(1, 3);
  int next = 0;
  for (int s = 0; s < sequences; ++s) {
    SequencePlan& sequence = plan_.sequences.emplace_back();
    const bool fits = in_.ConsumeIntegralInRange(0, 15) != 0;
    sequence.row_begin = fits ? next : in_.ConsumeIntegral<int8_t>();
    sequence.row_count = !fits                ? in_.ConsumeIntegral<int8_t>()
                         : s + 1 == sequences ? rows - next
                                              : in_.ConsumeIntegralInRange(0, rows - next);
    if (fits) next += sequence.row_count;
    sequence.references = make_references();
    if (in_.ConsumeIntegralInRange(0, 3) != 0) continue;
    sequence.own_index.resize(in_.ConsumeIntegralInRange<size_t>(0, 3));
    for (int16_t& index : sequence.own_index) index = in_.ConsumeIntegralInRange<int16_t>(-1, 2);
    sequence.own_lists.resize(in_.ConsumeIntegralInRange<size_t>(0, 2));
    for (auto& list : sequence.own_lists) list = make_references();
  }
  for (int row = 0; row < rows; ++row) {
    plan_.positions.push_back(position());
    RowWrite write;
    const size_t page = in_.ConsumeIntegralInRange<size_t>(0, pages_.size());
    write.page = page == pages_.size() ? nullptr : &pages_[page];
    write.slot = in_.ConsumeBool() && write.page ? write.page->count : in_.ConsumeIntegral<int8_t>();
    plan_.writes.push_back(write);
  }
  if (in_.ConsumeIntegralInRange(0, 31) == 0)
    plan_.writes.resize(in_.ConsumeIntegralInRange<size_t>(0, kMaxRows));
}

void Case::run() {
  if (!validate(plan_, shape_).ok()) return;
  q_.resize(static_cast<size_t>(plan_.rows() * layer_.heads * shape_.head_dim));
  for (size_t i = 0; i < q_.size(); ++i) q_[i] = number(static_cast<int>(i * 3));
  for (const RowWrite& write : plan_.writes) {
    if (write.page != nullptr) fill(*write.page, write.slot, 1);
  }
  for (RowWrite& write : plan_.writes) {
    if (write.page != nullptr) write.page->count = std::max(write.page->count, write.slot + 1);
    write = {};
  }
  // With its rows written, the same plan without writes must be as good.
  if (!validate(plan_, shape_).ok()) std::abort();
  for (int layer = 0; layer < shape_.layers; ++layer) attend_layer(layer);
}

void Case::attend_layer(int layer) {
  RopeTable rope(layer_.rope);
  const AttendSite site{layer, layer_.heads, layer_.scale, layer_.window, layer_.soft_cap, &rope};
  const int64_t stride = static_cast<int64_t>(layer_.heads) * shape_.head_dim;
  std::vector<float> out(q_.size());
  for (const SequencePlan& sequence : plan_.sequences) {
    const std::span<const PageReference> references = sequence.of_layer(layer);
    const auto count = static_cast<size_t>(sequence.row_count);
    std::vector<float> lse(count * static_cast<size_t>(layer_.heads));
    std::vector<double> by_reference(references.size()), by_token(references.size() * kPageTokens);
    AttendRows rows;
    rows.q = q_.data() + sequence.row_begin * stride;
    rows.q_stride = rows.out_stride = stride;
    rows.positions = std::span(plan_.positions).subspan(static_cast<size_t>(sequence.row_begin), count);
    rows.references = references;
    rows.out = out.data() + sequence.row_begin * stride;
    rows.lse = lse.data();
    rows.mass_per_reference = by_reference.data();
    rows.mass_per_token = by_token.data();
    reference::attend(shape_, site, rows);
  }
  compare_with_cpu(layer, out);
}

void Case::compare_with_cpu(int layer, const std::vector<float>& expected) {
  cpu::CpuAttention attention(shape_, std::vector<AttendLayer>(static_cast<size_t>(shape_.layers), layer_));
  attention.begin(plan_,
                  {.threads = 1, .deterministic = (layer_.heads & 1) != 0, .keep_lse = true, .mass = true});
  std::vector<float> kv(static_cast<size_t>(plan_.rows() * shape_.kv_heads * shape_.head_dim)),
      out(expected.size());
  const int64_t kv_stride = static_cast<int64_t>(shape_.kv_heads) * shape_.head_dim;
  const int64_t stride = static_cast<int64_t>(layer_.heads) * shape_.head_dim;
  const cpu::AttendTensors tensors{q_.data(), kv.data(), kv.data(),  stride,
                                   kv_stride, kv_stride, out.data(), stride};
  attention.write(layer, tensors, 0, 1);
  attention.attend(layer, tensors, 0, 1);
  attention.combine(layer, tensors, 0, 1);
  attention.mass(layer, tensors, 0, 1);
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::abs(out[i] - expected[i]) <= 0.02f) continue;
    std::fprintf(stderr, "layer %d, element %zu: reference %g, CPU %g\n", layer, i, expected[i], out[i]);
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  Case(in).run();
  return 0;
}
