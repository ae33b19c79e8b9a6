#include "kernels/attend_test_support.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

namespace rhapsode::kernels::testing {
namespace {

// Random K and V rows stored through the reference, in every layer.
void fill_slot(const World& world, Random& random, Page* page, int slot) {
  RopeTable rope(world.layer.rope);
  const auto row = static_cast<size_t>(world.shape.kv_heads) * static_cast<size_t>(world.shape.head_dim);
  for (int layer = 0; layer < world.shape.layers; ++layer) {
    const AttendSite site{layer, world.layer.heads, world.layer.scale, 0, 0.0f, &rope};
    const std::vector<float> k = normals(random, row);
    const std::vector<float> v = normals(random, row);
    reference::write_row(world.shape, site, {page, slot}, k.data(), v.data());
  }
}

RopeSpec plain_rope(int dimensions, RopePairing pairing) {
  RopeSpec spec;
  spec.dimensions = dimensions;
  spec.pairing = pairing;
  return spec;
}

// Appends `rows` new rows of a sequence at `position`, written to fresh pages that the sequence also reads.
void append_rows(World& world, Random& random, SequencePlan& sequence, int rows, int position) {
  const bool gathered = uniform(random, 0, 3) == 0;
  int written = 0;
  while (written < rows) {
    const int shift = uniform(random, 0, 2) ? 0 : uniform(random, -300, 300);
    const int already = uniform(random, 0, 3) ? 0 : uniform(random, 1, 40);
    const int fresh = std::min(rows - written, kPageTokens - already);
    Page* page = world.add_page(random, position - already - shift, already, gathered);
    for (int i = 0; i < fresh; ++i) {
      const int at = position + i * (gathered ? 2 : 1);
      const int slot = already + i;
      page->positions[static_cast<size_t>(slot)] = at - shift;
      world.plan.positions.push_back(at);
      world.plan.writes.push_back(RowWrite{page, slot});
    }
    position += fresh * (gathered ? 2 : 1);
    written += fresh;
    sequence.references.push_back({page, shift, uniform(random, 0, 4) == 0, ~0ull});
  }
}

// Rows without K and V of their own, at scattered positions.
void scatter_rows(World& world, Random& random, int rows, int lowest) {
  for (int i = 0; i < rows; ++i) {
    world.plan.positions.push_back(lowest + uniform(random, 0, 500));
    world.plan.writes.push_back({});
  }
}

// A mask over a page with `count` filled slots; never one of which no slot is filled, unless it is 0.
uint64_t random_mask(Random& random, int count) {
  const uint64_t filled = count >= kPageTokens ? ~0ull : (1ull << count) - 1;
  switch (uniform(random, 0, 4)) {
    case 0:
      return (uint64_t{random()} << 32 | random()) & filled;
    case 1:
      return count > 1 ? ~(1ull << uniform(random, 0, 63)) : 1;
    case 2:
      return 0;
    default:
      return ~0ull;
  }
}

void add_sequence(World& world, Random& random) {
  SequencePlan sequence;
  sequence.row_begin = world.rows();
  const int context_pages = uniform(random, 0, 12);
  int position = uniform(random, 0, 200);
  const int start = position;
  for (int i = 0; i < context_pages; ++i) {
    const int count = uniform(random, 0, 2) ? kPageTokens : uniform(random, 1, kPageTokens);
    const int shift = uniform(random, -400, 400);
    Page* page = world.add_page(random, position - shift, count, uniform(random, 0, 4) == 0);
    const uint64_t mask = random_mask(random, count) | (i == 0 ? 1 : 0);  // nobody sees nothing at all
    sequence.references.push_back({page, shift, uniform(random, 0, 4) == 0, mask});
    position += uniform(random, 0, 2) ? kPageTokens : 0;
  }
  const int rows = uniform(random, 0, 2) ? uniform(random, 1, 4) : uniform(random, 1, 70);
  if (context_pages > 0 && uniform(random, 0, 3) == 0) {
    scatter_rows(world, random, rows, start + 2 * kPageTokens);
  } else {
    append_rows(world, random, sequence, rows, position + kPageTokens);
  }
  sequence.row_count = world.rows() - sequence.row_begin;
  world.plan.sequences.push_back(std::move(sequence));
}

}  // namespace

int uniform(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

std::vector<float> normals(Random& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Page* World::add_page(Random& random, int first_position, int count, bool gathered) {
  storage_.emplace_back(shape.block_bytes(), std::byte{0xff});
  Page& page = pages_.emplace_back();
  page.data = storage_.back().data();
  page.count = count;
  page.consecutive = !gathered;
  for (int slot = 0; slot < kPageTokens; ++slot) {
    page.positions[static_cast<size_t>(slot)] = first_position + slot;
  }
  if (gathered) std::shuffle(page.positions.begin(), page.positions.begin() + count, random);
  for (int slot = 0; slot < count; ++slot) fill_slot(*this, random, &page, slot);
  return &page;
}

void World::add_bounds(const BoundsShape& bounds) {
  for (Page& page : pages_) {
    // NaN wherever nobody has computed anything.
    storage_.emplace_back(bounds.block_bytes(shape), std::byte{0xff});
    page.bounds = &bounds_.emplace_back();
    page.bounds->data = storage_.back().data();
  }
}

Page* World::copy_page(const Page& page) {
  storage_.emplace_back(page.data, page.data + shape.block_bytes());
  pages_.push_back(page);
  pages_.back().data = storage_.back().data();
  return &pages_.back();
}

void World::spread(Random& random, int devices) {
  for (Page& page : pages_) page.device = uniform(random, 0, devices - 1);
}

void World::fill_tensors(Random& random) {
  const auto elements = static_cast<size_t>(rows()) * static_cast<size_t>(shape.head_dim);
  q = normals(random, elements * static_cast<size_t>(layer.heads));
  k = normals(random, elements * static_cast<size_t>(shape.kv_heads));
  v = normals(random, elements * static_cast<size_t>(shape.kv_heads));
}

RunResult run_reference(World& world) {
  RopeTable rope(world.layer.rope);
  const AttendSite site{0,    world.layer.heads, world.layer.scale, world.layer.window, world.layer.soft_cap,
                        &rope};
  const int64_t q_stride = int64_t{world.layer.heads} * world.shape.head_dim;
  const int64_t kv_stride = int64_t{world.shape.kv_heads} * world.shape.head_dim;
  std::vector<std::pair<Page*, int32_t>> counts;
  for (int row = 0; row < world.rows(); ++row) {
    const RowWrite& write = world.plan.writes[static_cast<size_t>(row)];
    if (write.page == nullptr) continue;
    counts.emplace_back(write.page, write.page->count);
    reference::write_row(world.shape, site, write, &world.k[static_cast<size_t>(row * kv_stride)],
                         &world.v[static_cast<size_t>(row * kv_stride)]);
    write.page->count = std::max(write.page->count, write.slot + 1);
  }
  RunResult result;
  result.out.resize(world.q.size());
  result.lse.resize(static_cast<size_t>(world.rows()) * static_cast<size_t>(world.layer.heads));
  for (const SequencePlan& sequence : world.plan.sequences) {
    std::vector<double> per_reference(sequence.references.size());
    std::vector<double> per_token(sequence.references.size() * kPageTokens);
    const auto begin = static_cast<size_t>(sequence.row_begin);
    const auto count = static_cast<size_t>(sequence.row_count);
    AttendRows rows;
    rows.q = world.q.data() + sequence.row_begin * q_stride;
    rows.out = result.out.data() + sequence.row_begin * q_stride;
    rows.q_stride = rows.out_stride = q_stride;
    rows.positions = std::span(world.plan.positions).subspan(begin, count);
    rows.references = sequence.of_layer(0);
    rows.lse = result.lse.data() + begin * static_cast<size_t>(world.layer.heads);
    rows.mass_per_reference = per_reference.data();
    rows.mass_per_token = per_token.data();
    reference::attend(world.shape, site, rows);
    result.mass_per_reference.push_back(std::move(per_reference));
    result.mass_per_token.push_back(std::move(per_token));
  }
  std::for_each(counts.rbegin(), counts.rend(), [](auto& old) { old.first->count = old.second; });
  return result;
}

RunResult run_cpu(World& world, const CpuRun& run) {
  cpu::CpuAttention attention(world.shape,
                              std::vector<AttendLayer>(static_cast<size_t>(world.shape.layers), world.layer),
                              run.sparse);
  attention.begin(world.plan, {run.threads, run.deterministic, true, run.mass});
  RunResult result;
  result.out.assign(world.q.size(), std::numeric_limits<float>::quiet_NaN());
  cpu::AttendTensors tensors;
  tensors.q = world.q.data();
  tensors.k = world.k.data();
  tensors.v = world.v.data();
  tensors.out = result.out.data();
  tensors.q_stride = tensors.out_stride = int64_t{world.layer.heads} * world.shape.head_dim;
  tensors.k_stride = tensors.v_stride = int64_t{world.shape.kv_heads} * world.shape.head_dim;
  std::barrier barrier(run.threads);
  const auto phases = [&](int ith) {
    attention.write(run.layer, tensors, ith, run.threads);
    barrier.arrive_and_wait();
    if (attention.selects()) attention.select(run.layer, tensors, ith, run.threads);
    barrier.arrive_and_wait();
    attention.attend(run.layer, tensors, ith, run.threads);
    barrier.arrive_and_wait();
    attention.combine(run.layer, tensors, ith, run.threads);
    barrier.arrive_and_wait();
    if (run.mass) attention.mass(run.layer, tensors, ith, run.threads);
  };
  std::vector<std::thread> threads;
  for (int ith = 1; ith < run.threads; ++ith) threads.emplace_back(phases, ith);
  phases(0);
  for (std::thread& thread : threads) thread.join();
  result.lse.assign(attention.lse().begin(), attention.lse().end());
  for (int s = 0; s < static_cast<int>(world.plan.sequences.size()); ++s) {
    auto& selected = result.selected.emplace_back();
    for (int head = 0; head < world.shape.kv_heads; ++head) {
      selected.push_back(attention.selected(run.layer, s, head));
    }
  }
  for (int s = 0; run.mass && s < static_cast<int>(world.plan.sequences.size()); ++s) {
    const auto per_reference = attention.mass_per_reference(s);
    const auto per_token = attention.mass_per_token(s);
    result.mass_per_reference.emplace_back(per_reference.begin(), per_reference.end());
    result.mass_per_token.emplace_back(per_token.begin(), per_token.end());
  }
  return result;
}

float tolerance(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 2e-5f;
    case KvType::kF16:
      return 1e-3f;
    case KvType::kBF16:
      return 1e-2f;
    case KvType::kI8:
      return 2e-2f;
  }
  return 0.0f;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (a.size() != b.size()) return kInfinity;
  float largest = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const float difference = std::abs(a[i] - b[i]);
    largest = std::isnan(difference) ? kInfinity : std::max(largest, difference);
  }
  return largest;
}

RopeSpec random_rope(Random& random, int head_dim) {
  const auto pairing = uniform(random, 0, 1) ? RopePairing::kHalves : RopePairing::kAdjacent;
  RopeSpec spec = plain_rope(head_dim, pairing);
  if (uniform(random, 0, 3) == 0) spec.dimensions = 2 * uniform(random, 0, head_dim / 2);  // partial, or none
  if (uniform(random, 0, 2) == 0) spec.theta = 1e6;
  switch (uniform(random, 0, 3)) {
    case 0:
      break;
    case 1:
      spec.frequency_scale = 0.25;
      break;
    case 2:
      spec.frequency_scale = 0.25;
      spec.yarn_extrapolation = 1.0;
      spec.yarn_original_context = 4096;
      break;
    default:
      for (int pair = 0; pair < spec.dimensions / 2; ++pair) spec.factors.push_back(pair < 4 ? 1.0 : 8.0);
  }
  return spec;
}

namespace {

// Heads, dimensions and what else belongs to a model.
World random_model(Random& random, KvType type) {
  World world;
  const int kv_heads[] = {1, 1, 2, 3, 8};
  const int groups[] = {1, 2, 3, 6, 7, 8, 64};
  world.shape.kv_heads = kv_heads[uniform(random, 0, 4)];
  const int group = groups[uniform(random, 0, world.shape.kv_heads == 1 ? 6 : 5)];
  world.shape.head_dim = 16 * (uniform(random, 0, 1) ? uniform(random, 1, 4) : uniform(random, 1, 16));
  world.shape.layers = 1;
  world.shape.type = type;
  world.layer.heads = group * world.shape.kv_heads;
  world.layer.scale = 1.0f / std::sqrt(static_cast<float>(world.shape.head_dim));
  if (uniform(random, 0, 2) == 0) world.layer.window = uniform(random, 1, 300);
  if (uniform(random, 0, 3) == 0) world.layer.soft_cap = static_cast<float>(uniform(random, 1, 30));
  world.layer.rope = random_rope(random, world.shape.head_dim);
  return world;
}

// One decode row behind a context of `pages` pages.
void add_decode_row(World& world, Random& random, int pages) {
  SequencePlan sequence;
  sequence.row_begin = world.rows();
  sequence.row_count = 1;
  int position = uniform(random, 0, 100);
  for (int i = 0; i < pages; ++i) {
    const int count = uniform(random, 0, 4) ? kPageTokens : uniform(random, 1, kPageTokens);
    const int shift = uniform(random, 0, 2) ? 0 : uniform(random, -400, 400);
    Page* page = world.add_page(random, position - shift, count, uniform(random, 0, 5) == 0);
    const uint64_t mask = uniform(random, 0, 3) || i == 0
                              ? ~0ull
                              : random_mask(random, count) | (1ull << uniform(random, 0, count - 1));
    sequence.references.push_back({page, shift, uniform(random, 0, 20) == 0, mask});
    position += count;
  }
  append_rows(world, random, sequence, 1, position + uniform(random, 0, 5));
  sequence.read_budget = uniform(random, 1, 40 + pages * kPageTokens);
  world.plan.sequences.push_back(std::move(sequence));
}

}  // namespace

World random_sparse_world(Random& random, KvType type, const BoundsShape& bounds) {
  World world = random_model(random, type);
  // Many pages of a small model.
  while (world.shape.kv_heads * world.shape.head_dim > 256 || world.layer.heads > 16) {
    world = random_model(random, type);
  }
  if (world.layer.window > 0) world.layer.window *= 4;
  const int sequences = uniform(random, 1, 3);
  for (int s = 0; s < sequences; ++s) add_decode_row(world, random, uniform(random, 1, 50));
  // Forks: they read the same pages, and write their own.
  SequencePlan fork = world.plan.sequences.front();
  fork.row_begin = world.rows();
  const Page& written = *world.plan.writes.front().page;
  Page* copy = world.copy_page(written);
  fork.references.back().page = copy;
  world.plan.positions.push_back(world.plan.positions.front());
  world.plan.writes.push_back({copy, world.plan.writes.front().slot});
  world.plan.sequences.push_back(std::move(fork));
  world.fill_tensors(random);
  world.add_bounds(bounds);
  return world;
}

World random_world(Random& random, KvType type) {
  World world = random_model(random, type);
  const int sequences = uniform(random, 0, 2) ? 1 : uniform(random, 2, 4);
  for (int s = 0; s < sequences; ++s) add_sequence(world, random);
  world.fill_tensors(random);
  return world;
}

}  // namespace rhapsode::kernels::testing
