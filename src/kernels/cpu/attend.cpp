#include "kernels/cpu/attend.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <utility>

#include "kernels/cpu/attend_kernels.h"
#include "kernels/cpu/attend_schedule.h"
#include "kernels/cpu/page_selection.h"

namespace rhapsode::kernels::cpu {
namespace {

constexpr int kMassPages = 8;  // references of one mass() item

// Floats on a 64-byte boundary; keeps its storage when it is asked for less.
class AlignedFloats {
 public:
  void reserve(size_t count) {
    if (count <= size_) return;
    data_ = hwy::AllocateAligned<float>(count);
    size_ = count;
  }
  float* data() const { return data_.get(); }

 private:
  hwy::AlignedFreeUniquePtr<float[]> data_;
  size_t size_ = 0;
};

// One thread's working memory and the two states it folds.
struct ThreadMemory {
  AlignedFloats floats;
  std::array<uint64_t, kBlockRows> visible;
  Scratch scratch;
  BlockState part;
  BlockState folded;
  BlockRows rows;

  void reserve(int head_dim) {
    const auto d = static_cast<size_t>(head_dim);
    const size_t row = kBlockRows * d;
    const size_t page = kPageTokens * d;
    floats.reserve(3 * row + page + kBlockRows * (kPageTokens + kKeyGroup + 5) + 256);
    float* next = floats.data();
    const auto take = [&next](size_t count) { return std::exchange(next, next + count); };
    scratch.q = take(row);
    part.out = take(row);
    folded.out = take(row);
    scratch.tile = take(page);
    scratch.weights = take(kBlockRows * kPageTokens);
    scratch.lanes = take(kBlockRows * kKeyGroup);
    scratch.row = take(256);
    scratch.visible = visible.data();
    scratch.rescale = take(kBlockRows);
    for (float** array : {&part.max, &part.sum, &folded.max, &folded.sum}) *array = take(kBlockRows);
  }
};

struct MassItem {
  int sequence = 0;
  int begin = 0;
  int end = 0;
};

struct SequenceMass {
  std::vector<double> per_reference;
  std::vector<double> per_token;
};

}  // namespace

struct CpuAttention::Impl {
  Impl(const KvShape& shape_in, const SparseOptions& sparse) : shape(shape_in), selector(shape_in, sparse) {}

  KvShape shape;
  std::vector<std::unique_ptr<RopeTable>> ropes;
  std::vector<AttendSite> sites;

  // Of the current batch.
  const BatchPlan* plan = nullptr;
  AttendOptions options;
  ResolvedLists lists;
  PageSelector selector;
  std::vector<Schedule> schedules;
  size_t schedules_used = 0;
  std::vector<int> schedule_of_layer;
  std::vector<MassItem> mass_items;
  std::vector<SequenceMass> masses;
  std::vector<float> lse;
  int lse_heads = 0;

  std::vector<std::unique_ptr<ThreadMemory>> threads;
  AlignedFloats state_out;
  std::vector<float> state_max;
  std::vector<float> state_sum;
  alignas(64) std::atomic<int64_t> next_item{0};
  alignas(64) std::atomic<int64_t> next_mass{0};

  void prepare_ropes();
  void prepare_range(int32_t shift, const SequencePlan& sequence);
  int schedule_for(int layer);
  void reserve();
  void prepare_mass();
  const Schedule& schedule(int layer) const {
    return schedules[static_cast<size_t>(schedule_of_layer[static_cast<size_t>(layer)])];
  }
  void load_rows(int layer, const AttendTensors& tensors, const RowBlock& block, int kv_head,
                 BlockRows& rows);
  BlockState workspace(const RowBlock& block, int kv_head, int part);
  void run_item(int layer, const AttendTensors& tensors, int64_t index, ThreadMemory& memory);
};

CpuAttention::CpuAttention(const KvShape& shape, std::vector<AttendLayer> layers, const SparseOptions& sparse)
    : impl_(std::make_unique<Impl>(shape, sparse)) {
  for (int l = 0; l < static_cast<int>(layers.size()); ++l) {
    const AttendLayer& layer = layers[static_cast<size_t>(l)];
    auto& ropes = impl_->ropes;
    auto rope =
        std::find_if(ropes.begin(), ropes.end(), [&](auto& table) { return table->spec() == layer.rope; });
    if (rope == ropes.end()) rope = ropes.insert(ropes.end(), std::make_unique<RopeTable>(layer.rope));
    impl_->sites.push_back({l, layer.heads, layer.scale, layer.window, layer.soft_cap, rope->get()});
  }
}

CpuAttention::~CpuAttention() = default;

// Rope rows that queries of `sequence` need in a frame at `shift`: runs of rows with neighbouring positions
// at once.
void CpuAttention::Impl::prepare_range(int32_t shift, const SequencePlan& sequence) {
  const auto begin = plan->positions.begin() + sequence.row_begin;
  const auto end = begin + sequence.row_count;
  for (auto row = begin; row != end;) {
    auto last = row + 1;
    while (last != end && *last == *(last - 1) + 1) ++last;
    for (const auto& rope : ropes) rope->prepare(*row - shift, *(last - 1) - shift);
    row = last;
  }
}

void CpuAttention::Impl::prepare_ropes() {
  for (const SequencePlan& sequence : plan->sequences) {
    if (sequence.row_count == 0) continue;
    const auto prepare_list = [&](std::span<const PageReference> references) {
      const PageReference* previous = nullptr;
      for (const PageReference& reference : references) {
        if (previous == nullptr || previous->shift != reference.shift)
          prepare_range(reference.shift, sequence);
        previous = &reference;
      }
    };
    prepare_list(sequence.references);
    for (const auto& list : sequence.own_lists) prepare_list(list);
  }
  for (const RowWrite& write : plan->writes) {
    if (write.page == nullptr) continue;
    const int32_t position = write.page->positions[static_cast<size_t>(write.slot)];
    for (const auto& rope : ropes) rope->prepare(position, position);
  }
}

// Finds or builds the schedule of a layer: most layers of a model share one.
int CpuAttention::Impl::schedule_for(int layer) {
  const AttendSite& site = sites[static_cast<size_t>(layer)];
  std::vector<int> wanted;
  for (int s = 0; s < static_cast<int>(plan->sequences.size()); ++s)
    wanted.push_back(lists.list_of(*plan, s, layer));
  for (size_t i = 0; i < schedules_used; ++i) {
    const Schedule& known = schedules[i];
    if (known.heads == site.heads && known.window == site.window && known.lists == wanted)
      return static_cast<int>(i);
  }
  if (schedules.size() == schedules_used) schedules.emplace_back();
  Schedule& schedule = schedules[schedules_used];
  schedule.heads = site.heads;
  schedule.window = site.window;
  schedule.lists = std::move(wanted);
  schedule.limits.assign(plan->sequences.size(), {});
  schedule.selections.clear();
  for (size_t s = 0; s < plan->sequences.size() && !options.mass; ++s) {
    const SequencePlan& sequence = plan->sequences[s];
    if (sequence.read_budget == 0 || sequence.row_count == 0) continue;
    const int selection =
        selector.add(static_cast<int>(s), lists[schedule.lists[s]], schedule.heads, schedule.window);
    if (selection < 0) continue;
    schedule.limits[s] = {selection, selector.most_references(selection)};
    schedule.selections.push_back(selection);
  }
  build_schedule(*plan, lists, {shape.kv_heads, options.threads, options.deterministic}, schedule);
  return static_cast<int>(schedules_used++);
}

void CpuAttention::Impl::reserve() {
  while (threads.size() < static_cast<size_t>(options.threads)) {
    threads.push_back(std::make_unique<ThreadMemory>());
    threads.back()->reserve(shape.head_dim);
  }
  int64_t state_rows = 0;
  int heads = 0;
  for (size_t i = 0; i < schedules_used; ++i) {
    state_rows = std::max(state_rows, schedules[i].state_rows);
    heads = std::max(heads, schedules[i].heads);
  }
  const auto states = static_cast<size_t>(state_rows);
  state_out.reserve(states * static_cast<size_t>(shape.head_dim));
  if (state_max.size() < states) state_max.resize(states);
  if (state_sum.size() < states) state_sum.resize(states);
  lse.clear();
  if (options.keep_lse || options.mass)
    lse.resize(static_cast<size_t>(plan->rows()) * static_cast<size_t>(heads));
}

void CpuAttention::Impl::prepare_mass() {
  mass_items.clear();
  masses.clear();
  if (!options.mass) return;
  masses.resize(plan->sequences.size());
  for (int s = 0; s < static_cast<int>(plan->sequences.size()); ++s) {
    const int references = static_cast<int>(plan->sequences[static_cast<size_t>(s)].references.size());
    masses[static_cast<size_t>(s)].per_reference.assign(static_cast<size_t>(references), 0.0);
    masses[static_cast<size_t>(s)].per_token.assign(static_cast<size_t>(references) * kPageTokens, 0.0);
    for (int begin = 0; begin < references; begin += kMassPages) {
      mass_items.push_back({s, begin, std::min(references, begin + kMassPages)});
    }
  }
}

void CpuAttention::begin(const BatchPlan& plan, const AttendOptions& options) {
  Impl& impl = *impl_;
  impl.plan = &plan;
  impl.options = options;
  impl.prepare_ropes();
  impl.lists.begin(plan);
  impl.selector.begin(plan);
  impl.schedules_used = 0;
  impl.schedule_of_layer.clear();
  for (size_t layer = 0; layer < impl.sites.size(); ++layer) {
    impl.schedule_of_layer.push_back(impl.schedule_for(static_cast<int>(layer)));
  }
  impl.selector.ready(options.threads);
  impl.reserve();
  impl.prepare_mass();
  impl.next_item = 0;
  impl.next_mass = 0;
}

void CpuAttention::write(int layer, const AttendTensors& tensors, int ith, int nth) {
  Impl& impl = *impl_;
  if (ith == 0) {
    impl.next_item.store(0, std::memory_order_relaxed);
    impl.next_mass.store(0, std::memory_order_relaxed);
    impl.lse_heads = impl.sites[static_cast<size_t>(layer)].heads;
    impl.selector.restart();
  }
  impl.selector.bound(layer, ith, nth);
  const AttendKernels& kernels = attend_kernels();
  const int heads = impl.shape.kv_heads;
  const int64_t total = int64_t{impl.plan->rows()} * heads;
  float* scratch = impl.threads[static_cast<size_t>(ith)]->scratch.row;
  // Neighbouring rows share cache lines of K, so each thread takes a run of them.
  for (int64_t i = total * ith / nth; i < total * (ith + 1) / nth; ++i) {
    const int64_t row = i / heads;
    const int head = static_cast<int>(i % heads);
    const RowWrite& target = impl.plan->writes[static_cast<size_t>(row)];
    if (target.page == nullptr) continue;
    const int64_t offset = int64_t{head} * impl.shape.head_dim;
    kernels.write({&impl.shape, &impl.sites[static_cast<size_t>(layer)], target, head,
                   tensors.k + row * tensors.k_stride + offset, tensors.v + row * tensors.v_stride + offset},
                  scratch);
  }
}

bool CpuAttention::selects() const {
  return impl_->selector.any();
}

void CpuAttention::select(int layer, const AttendTensors& tensors, int ith, [[maybe_unused]] int nth) {
  Impl& impl = *impl_;
  assert(nth <= impl.options.threads);
  impl.selector.select(impl.sites[static_cast<size_t>(layer)], tensors.q, tensors.q_stride,
                       impl.schedule(layer).selections, ith);
}

void CpuAttention::Impl::load_rows(int layer, const AttendTensors& tensors, const RowBlock& block,
                                   int kv_head, BlockRows& rows) {
  const int heads = sites[static_cast<size_t>(layer)].heads;
  const int group = heads / shape.kv_heads;
  const SequencePlan& sequence = plan->sequences[static_cast<size_t>(block.sequence)];
  rows.count = block.row_count;
  rows.lowest = block.lowest;
  rows.highest = block.highest;
  for (int r = 0; r < block.row_count; ++r) {
    const int64_t row = sequence.row_begin + (block.row_begin + r) / group;
    const int head = kv_head * group + (block.row_begin + r) % group;
    const int64_t offset = int64_t{head} * shape.head_dim;
    rows.positions[r] = plan->positions[static_cast<size_t>(row)];
    rows.q[r] = tensors.q + row * tensors.q_stride + offset;
    rows.out[r] = tensors.out + row * tensors.out_stride + offset;
    rows.lse[r] = lse.empty() ? nullptr : lse.data() + row * heads + head;
  }
}

BlockState CpuAttention::Impl::workspace(const RowBlock& block, int kv_head, int part) {
  const int64_t row = block.state + (int64_t{kv_head} * block.parts + part) * block.row_count;
  return {state_max.data() + row, state_sum.data() + row, state_out.data() + row * shape.head_dim};
}

void CpuAttention::Impl::run_item(int layer, const AttendTensors& tensors, int64_t index,
                                  ThreadMemory& memory) {
  const AttendKernels& kernels = attend_kernels();
  const Schedule& work = schedule(layer);
  const WorkItem& item = work.items[static_cast<size_t>(index / shape.kv_heads)];
  const RowBlock& block = work.blocks[static_cast<size_t>(item.block)];
  const int kv_head = static_cast<int>(index % shape.kv_heads);
  load_rows(layer, tensors, block, kv_head, memory.rows);
  BlockTask task{&shape, &sites[static_cast<size_t>(layer)], kv_head, &memory.rows, {}};
  const auto references =
      block.selection >= 0 ? selector.selected(block.selection, kv_head) : lists[block.list];
  if (block.state >= 0) {
    for (int part = item.part_begin; part < item.part_end; ++part) {
      task.references = block.part(references, part);
      kernels.attend(task, memory.scratch, workspace(block, kv_head, part));
    }
    return;
  }
  task.references = block.part(references, 0);
  kernels.attend(task, memory.scratch, memory.folded);
  for (int part = 1; part < block.parts; ++part) {
    task.references = block.part(references, part);
    kernels.attend(task, memory.scratch, memory.part);
    kernels.fold(memory.folded, memory.part, block.row_count, shape.head_dim);
  }
  kernels.finish(memory.folded, memory.rows, shape.head_dim);
}

void CpuAttention::attend(int layer, const AttendTensors& tensors, int ith, [[maybe_unused]] int nth) {
  Impl& impl = *impl_;
  assert(nth <= impl.options.threads);
  ThreadMemory& memory = *impl.threads[static_cast<size_t>(ith)];
  const auto total = static_cast<int64_t>(impl.schedule(layer).items.size()) * impl.shape.kv_heads;
  for (int64_t i; (i = impl.next_item.fetch_add(1, std::memory_order_relaxed)) < total;) {
    impl.run_item(layer, tensors, i, memory);
  }
}

void CpuAttention::combine(int layer, const AttendTensors& tensors, int ith, int nth) {
  Impl& impl = *impl_;
  const AttendKernels& kernels = attend_kernels();
  const Schedule& work = impl.schedule(layer);
  BlockRows& rows = impl.threads[static_cast<size_t>(ith)]->rows;
  const int heads = impl.shape.kv_heads;
  const auto total = static_cast<int64_t>(work.split_blocks.size()) * heads;
  for (int64_t i = ith; i < total; i += nth) {
    const RowBlock& block =
        work.blocks[static_cast<size_t>(work.split_blocks[static_cast<size_t>(i / heads)])];
    const int kv_head = static_cast<int>(i % heads);
    const BlockState folded = impl.workspace(block, kv_head, 0);
    for (int part = 1; part < block.parts; ++part) {
      kernels.fold(folded, impl.workspace(block, kv_head, part), block.row_count, impl.shape.head_dim);
    }
    impl.load_rows(layer, tensors, block, kv_head, rows);
    kernels.finish(folded, rows, impl.shape.head_dim);
  }
}

void CpuAttention::mass(int layer, const AttendTensors& tensors, int ith, [[maybe_unused]] int nth) {
  Impl& impl = *impl_;
  const AttendKernels& kernels = attend_kernels();
  const Schedule& work = impl.schedule(layer);
  ThreadMemory& memory = *impl.threads[static_cast<size_t>(ith)];
  const auto total = static_cast<int64_t>(impl.mass_items.size());
  for (int64_t i; (i = impl.next_mass.fetch_add(1, std::memory_order_relaxed)) < total;) {
    const MassItem& item = impl.mass_items[static_cast<size_t>(i)];
    const SequencePlan& sequence = impl.plan->sequences[static_cast<size_t>(item.sequence)];
    if (!sequence.own_index.empty() && sequence.own_index[static_cast<size_t>(layer)] >= 0) continue;
    const auto begin = static_cast<size_t>(item.begin);
    const auto count = static_cast<size_t>(item.end - item.begin);
    SequenceMass& sums = impl.masses[static_cast<size_t>(item.sequence)];
    double added[kMassPages * kPageTokens] = {};
    for (const RowBlock& block : work.blocks) {
      if (block.sequence != item.sequence) continue;
      for (int kv_head = 0; kv_head < impl.shape.kv_heads; ++kv_head) {
        impl.load_rows(layer, tensors, block, kv_head, memory.rows);
        kernels.mass({&impl.shape, &impl.sites[static_cast<size_t>(layer)], kv_head, &memory.rows,
                      impl.lists[block.list].subspan(begin, count)},
                     memory.scratch, added);
      }
    }
    for (size_t slot = 0; slot < count * kPageTokens; ++slot) {
      sums.per_token[begin * kPageTokens + slot] += added[slot];
      sums.per_reference[begin + slot / kPageTokens] += added[slot];
    }
  }
}

std::vector<PageReference> CpuAttention::selected(int layer, int sequence, int kv_head) const {
  const ReadLimit& limit = impl_->schedule(layer).limits[static_cast<size_t>(sequence)];
  std::vector<PageReference> references;
  if (limit.selection < 0) return references;
  for (const ResolvedReference& chosen : impl_->selector.selected(limit.selection, kv_head)) {
    references.push_back(chosen.reference);
  }
  return references;
}

std::span<float> CpuAttention::lse() {
  const auto heads = static_cast<size_t>(impl_->lse_heads);
  return {impl_->lse.data(), std::min(impl_->lse.size(), static_cast<size_t>(impl_->plan->rows()) * heads)};
}

std::span<const float> CpuAttention::lse() const {
  const auto heads = static_cast<size_t>(impl_->lse_heads);
  return {impl_->lse.data(), std::min(impl_->lse.size(), static_cast<size_t>(impl_->plan->rows()) * heads)};
}

std::span<const double> CpuAttention::mass_per_reference(int sequence) const {
  return impl_->masses[static_cast<size_t>(sequence)].per_reference;
}

std::span<const double> CpuAttention::mass_per_token(int sequence) const {
  return impl_->masses[static_cast<size_t>(sequence)].per_token;
}

}  // namespace rhapsode::kernels::cpu
