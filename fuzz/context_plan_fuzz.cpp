// Context plans that are wrong in every way: the validator refuses them, or both versions of attend run them
// safely and agree. An input chooses a sound plan, then lists changes to it.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "kernels/attend_test_support.h"

namespace rhapsode::kernels {
namespace {

// A sound plan over a small model: two sequences that share a page and write one each.
testing::World small_world(FuzzedDataProvider& input, testing::Random& random) {
  testing::World world;
  world.shape = {.layers = 2, .kv_heads = 1, .head_dim = 16, .type = KvType::kF32};
  world.shape.type = input.PickValueInArray({KvType::kF32, KvType::kF16, KvType::kI8});
  world.layer.heads = 2;
  world.layer.window = input.PickValueInArray({0, 3, 70});
  world.layer.rope.dimensions = 2;
  const int shared_count = input.PickValueInArray({1, 17, kPageTokens});
  Page* shared = world.add_page(random, 0, shared_count);
  for (int s = 0; s < 2; ++s) {
    const int shift = input.ConsumeIntegralInRange(-80, 80);
    const int already = input.PickValueInArray({0, 5, 60});
    Page* own = world.add_page(random, 0, already);
    SequencePlan& sequence = world.plan.sequences.emplace_back();
    sequence.row_begin = world.rows();
    sequence.row_count = input.ConsumeIntegralInRange(1, 4);
    sequence.references = {{shared, shift, s == 1, ~0ull}, {own, shift + shared_count, false, ~0ull}};
    for (int i = 0; i < sequence.row_count; ++i) {
      world.plan.positions.push_back(shift + shared_count + already + i);
      world.plan.writes.push_back({own, already + i});
    }
  }
  return world;
}

constexpr int kFarthest = 1 << 13;  // positions that are run; beyond them rope tables only take time

int32_t any_position(FuzzedDataProvider& input) {
  return input.ConsumeBool() ? input.ConsumeIntegralInRange(-700, 1500) : input.ConsumeIntegral<int32_t>();
}

std::vector<Page*> pages_of(const BatchPlan& plan) {
  std::vector<Page*> pages;
  for (const SequencePlan& sequence : plan.sequences) {
    for (const PageReference& reference : sequence.references) {
      pages.push_back(const_cast<Page*>(reference.page));  // the world owns them and they are not shared
    }
  }
  return pages;
}

Page* any_page(FuzzedDataProvider& input, const std::vector<Page*>& pages) {
  const auto index = input.ConsumeIntegralInRange<size_t>(0, pages.size());
  return index == pages.size() ? nullptr : pages[index];
}

PageReference any_reference(FuzzedDataProvider& input, const std::vector<Page*>& pages) {
  const uint64_t mask = input.ConsumeBool() ? ~0ull : input.ConsumeIntegral<uint64_t>();
  return {any_page(input, pages), any_position(input), input.ConsumeBool(), mask};
}

void change_page(FuzzedDataProvider& input, Page* page) {
  if (page == nullptr) return;
  switch (input.ConsumeIntegralInRange(0, 3)) {
    case 0:
      page->count = input.ConsumeIntegralInRange(-1, kPageTokens + 1);
      break;
    case 1:
      page->consecutive = input.ConsumeBool();
      break;
    case 2:
      page->data = nullptr;
      break;
    default:
      page->positions[input.ConsumeIntegralInRange<size_t>(0, kPageTokens - 1)] = any_position(input);
  }
}

void change_sequence(FuzzedDataProvider& input, SequencePlan& sequence, const std::vector<Page*>& pages,
                     const KvShape& shape) {
  switch (input.ConsumeIntegralInRange(0, 4)) {
    case 0:
      sequence.row_begin = input.ConsumeIntegralInRange(-2, 300);
      break;
    case 1:
      sequence.row_count = input.ConsumeIntegralInRange(-2, 300);
      break;
    case 2:
      sequence.references.push_back(any_reference(input, pages));
      break;
    case 3:
      if (!sequence.references.empty()) sequence.references.pop_back();
      break;
    default:
      sequence.own_lists.push_back({any_reference(input, pages)});
      sequence.own_index.assign(static_cast<size_t>(shape.layers) + (input.ConsumeBool() ? 0 : 1),
                                input.ConsumeIntegralInRange<int16_t>(-2, 3));
  }
}

void change_row(FuzzedDataProvider& input, BatchPlan& plan, const std::vector<Page*>& pages) {
  if (plan.positions.empty()) return;
  const auto row = input.ConsumeIntegralInRange<size_t>(0, plan.positions.size() - 1);
  if (input.ConsumeBool()) {
    plan.positions[row] = any_position(input);
  } else {
    plan.writes[row] = {any_page(input, pages), input.ConsumeIntegralInRange(-1, kPageTokens)};
  }
}

void change(FuzzedDataProvider& input, BatchPlan& plan, const KvShape& shape) {
  const std::vector<Page*> pages = pages_of(plan);
  switch (input.ConsumeIntegralInRange(0, 3)) {
    case 0:
      change_row(input, plan, pages);
      break;
    case 1:
      change_page(input, any_page(input, pages));
      break;
    case 2:
      if (plan.sequences.empty()) return;
      change_sequence(input,
                      plan.sequences[input.ConsumeIntegralInRange<size_t>(0, plan.sequences.size() - 1)],
                      pages, shape);
      break;
    default:
      if (input.ConsumeBool() && !plan.sequences.empty())
        plan.sequences.pop_back();
      else
        plan.sequences.push_back(plan.sequences.empty() ? SequencePlan{} : plan.sequences.front());
  }
}

bool near_enough(const BatchPlan& plan) {
  const auto near = [](int64_t position) { return std::abs(position) < kFarthest; };
  bool all = std::all_of(plan.positions.begin(), plan.positions.end(), near);
  for (const SequencePlan& sequence : plan.sequences) {
    auto lists = sequence.own_lists;
    lists.push_back(sequence.references);
    for (const auto& list : lists) {
      for (const PageReference& reference : list) {
        all = all && near(reference.shift);
        for (const int32_t position : reference.page->positions) all = all && near(position);
      }
    }
  }
  return all;
}

void run_both(testing::World& world, testing::Random& random) {
  world.fill_tensors(random);
  const testing::RunResult expected = testing::run_reference(world);
  const testing::RunResult found = testing::run_cpu(world);
  // A page that claims more slots than were filled holds NaN; both may then say what they like.
  for (const float value : expected.out) {
    if (!std::isfinite(value)) return;
  }
  const float tolerance = testing::tolerance(world.shape.type);
  if (testing::largest_difference(expected.out, found.out) > tolerance) std::abort();
}

}  // namespace

void check_plan(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  testing::Random random(input.ConsumeIntegral<uint8_t>());
  testing::World world = small_world(input, random);
  if (!validate(world.plan, world.shape).ok()) std::abort();
  while (input.remaining_bytes() > 0) change(input, world.plan, world.shape);
  const Status status = validate(world.plan, world.shape);
  if (!status.ok()) {
    if (status.error().message.empty()) std::abort();
    return;
  }
  if (near_enough(world.plan)) run_both(world, random);
}

}  // namespace rhapsode::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rhapsode::kernels::check_plan(data, size);
  return 0;
}
