#include "kernels/context_plan.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>

namespace rhapsode::kernels {
namespace {

// A valid plan of two sequences: one appends three rows to a page after a full one, one reads with four
// scattered rows.
struct PlanWorld {
  KvShape shape{2, 1, 16, KvType::kF16};
  std::vector<std::byte> storage = std::vector<std::byte>(shape.block_bytes());
  std::deque<Page> pages;
  BatchPlan plan;

  Page* add_page(int first, int count) {
    Page& page = pages.emplace_back();
    page.data = storage.data();
    page.count = count;
    for (int slot = 0; slot < kPageTokens; ++slot) page.positions[static_cast<size_t>(slot)] = first + slot;
    return &page;
  }

  PlanWorld() {
    Page* full = add_page(0, 64);
    Page* open = add_page(64, 10);
    SequencePlan appending{0, 3, {{full, 0, false, ~0ull}, {open, 0, false, ~0ull}}, {}, {}};
    SequencePlan reading{3, 4, {{full, 100, true, 0xff0ull}}, {}, {}};
    plan.sequences = {appending, reading};
    plan.positions = {74, 75, 76, 110, 104, 500, 104};
    plan.writes.resize(7);
    for (int row = 0; row < 3; ++row) plan.writes[static_cast<size_t>(row)] = {open, 10 + row};
  }
};

struct Refusal {
  const char* name;
  ErrorKind kind;
  const char* words;  // part of the message
  std::function<void(PlanWorld&)> damage;
};

std::ostream& operator<<(std::ostream& stream, const Refusal& refusal) {
  return stream << refusal.name;
}

const Refusal kRefusals[] = {
    {"head_dim", ErrorKind::kUnsupported, "head", [](PlanWorld& w) { w.shape.head_dim = 24; }},
    {"head_dim_too_large", ErrorKind::kUnsupported, "256", [](PlanWorld& w) { w.shape.head_dim = 272; }},
    {"no_layers", ErrorKind::kUnsupported, "layers", [](PlanWorld& w) { w.shape.layers = 0; }},
    {"writes_missing", ErrorKind::kInvalidArgument, "writes", [](PlanWorld& w) { w.plan.writes.pop_back(); }},
    {"position_too_large", ErrorKind::kTooLarge, "position",
     [](PlanWorld& w) { w.plan.positions[1] = kMaxPosition + 1; }},
    {"position_too_small", ErrorKind::kTooLarge, "position",
     [](PlanWorld& w) { w.plan.positions[1] = INT32_MIN; }},
    {"row_unowned", ErrorKind::kInvalidArgument, "row 3 belongs to no",
     [](PlanWorld& w) {
       w.plan.sequences[1] = {4, 3, w.plan.sequences[1].references, {}, {}};
     }},
    {"last_row_unowned", ErrorKind::kInvalidArgument, "row 6 belongs to no",
     [](PlanWorld& w) { w.plan.sequences[1].row_count = 3; }},
    {"row_owned_twice", ErrorKind::kInvalidArgument, "more than one",
     [](PlanWorld& w) { w.plan.sequences[0].row_count = 4; }},
    {"rows_outside", ErrorKind::kInvalidArgument, "batch of 7",
     [](PlanWorld& w) { w.plan.sequences[1].row_count = INT32_MAX; }},
    {"rows_negative", ErrorKind::kInvalidArgument, "batch of 7",
     [](PlanWorld& w) { w.plan.sequences[1].row_count = -1; }},
    {"page_null", ErrorKind::kInvalidArgument, "without storage",
     [](PlanWorld& w) { w.plan.sequences[0].references[0].page = nullptr; }},
    {"page_without_data", ErrorKind::kInvalidArgument, "without storage",
     [](PlanWorld& w) { w.pages[0].data = nullptr; }},
    {"page_count_wrong", ErrorKind::kInvalidArgument, "without storage",
     [](PlanWorld& w) { w.pages[0].count = 65; }},
    {"write_without_data", ErrorKind::kInvalidArgument, "without storage",
     [](PlanWorld& w) { w.pages[1].data = nullptr; }},
    {"write_beyond_page", ErrorKind::kInvalidArgument, "writes slot 64",
     [](PlanWorld& w) { w.plan.writes[2].slot = 64; }},
    {"write_sealed_slot", ErrorKind::kInvalidArgument, "writes slot 9",
     [](PlanWorld& w) { w.plan.writes[0].slot = 9; }},
    {"write_negative_slot", ErrorKind::kInvalidArgument, "replaces slot -1",
     [](PlanWorld& w) {
       w.plan.writes[0] = {w.plan.writes[0].page, -1, true};
     }},
    {"replace_empty_slot", ErrorKind::kInvalidArgument, "replaces slot 10",
     [](PlanWorld& w) { w.plan.writes[0].replaces = true; }},
    {"write_twice", ErrorKind::kInvalidArgument, "second time",
     [](PlanWorld& w) { w.plan.writes[1].slot = 10; }},
    {"write_leaves_gap", ErrorKind::kInvalidArgument, "slot 12",
     [](PlanWorld& w) { w.plan.writes[2].slot = 13; }},
    {"write_out_of_frame", ErrorKind::kTooLarge, "frame position",
     [](PlanWorld& w) { w.pages[1].positions[11] = INT32_MAX; }},
    {"write_not_consecutive", ErrorKind::kInvalidArgument, "consecutive",
     [](PlanWorld& w) { w.pages[1].positions[11] = 90; }},
    {"two_writers", ErrorKind::kInvalidArgument, "same page",
     [](PlanWorld& w) {
       w.plan.writes[3] = {&w.pages[1], 13};
     }},
    {"reads_what_another_writes", ErrorKind::kInvalidArgument, "is writing",
     [](PlanWorld& w) {
       w.plan.sequences[1].references.push_back({&w.pages[1], 0, false, ~0ull});
     }},
    {"mask_of_empty_slots", ErrorKind::kInvalidArgument, "filled",
     [](PlanWorld& w) { w.plan.sequences[0].references[1].mask = 1ull << 13; }},
    {"page_lies_about_positions", ErrorKind::kInvalidArgument, "consecutive",
     [](PlanWorld& w) { w.pages[0].positions[5] = 7; }},
    {"shift_out_of_range", ErrorKind::kTooLarge, "shift",
     [](PlanWorld& w) { w.plan.sequences[0].references[0].shift = kMaxPosition; }},
    {"shift_overflows", ErrorKind::kTooLarge, "shift",
     [](PlanWorld& w) { w.plan.sequences[0].references[0].shift = INT32_MIN; }},
    {"row_sees_nothing", ErrorKind::kInvalidArgument, "see nothing",
     [](PlanWorld& w) { w.plan.positions[4] = 103; }},
    {"empty_list", ErrorKind::kInvalidArgument, "see nothing",
     [](PlanWorld& w) { w.plan.sequences[1].references.clear(); }},
    {"layer_lists_short", ErrorKind::kInvalidArgument, "layers",
     [](PlanWorld& w) { w.plan.sequences[0].own_index = {-1}; }},
    {"layer_list_missing", ErrorKind::kInvalidArgument, "page list 0",
     [](PlanWorld& w) {
       w.plan.sequences[0].own_index = {-1, 0};
     }},
    {"own_list_checked", ErrorKind::kInvalidArgument, "see nothing",
     [](PlanWorld& w) {
       w.plan.sequences[0].own_index = {-1, 0};
       w.plan.sequences[0].own_lists = {{}};
     }},
};

class ValidateRefuses : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(Plans, ValidateRefuses, ::testing::ValuesIn(kRefusals),
                         [](const auto& refusal) { return std::string(refusal.param.name); });

TEST_P(ValidateRefuses, WithOneSentence) {
  PlanWorld world;
  ASSERT_TRUE(validate(world.plan, world.shape).ok());
  GetParam().damage(world);
  const Status status = validate(world.plan, world.shape);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, GetParam().kind) << status.error().message;
  EXPECT_NE(status.error().message.find(GetParam().words), std::string::npos) << status.error().message;
}

TEST(Validate, AcceptsWhatIsSafe) {
  PlanWorld world;
  world.plan.sequences[0].references[1].mask =
      ~(1ull << 3);  // beyond the filled slots too: they are just unseen
  world.plan.sequences[1].references.push_back({&world.pages[1], 0, false, 0x3ff});  // without the new slots
  world.plan.sequences[1].references.push_back({&world.pages[1], 0, false, 0});      // hidden
  world.plan.sequences[0].own_index = {0, -1};
  world.plan.sequences[0].own_lists = {{{&world.pages[0], -5, false, ~0ull}}};
  world.plan.sequences.push_back({7, 0, {}, {}, {}});  // a sequence without rows
  const Status status = validate(world.plan, world.shape);
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_TRUE(validate(BatchPlan{}, world.shape).ok());
}

TEST(Validate, AListThatNoLayerReadsMayBeEmpty) {
  PlanWorld world;
  SequencePlan& sequence = world.plan.sequences[1];
  sequence.own_lists = {sequence.references};
  sequence.own_index = {0, 0};
  sequence.references.clear();
  EXPECT_TRUE(validate(world.plan, world.shape).ok());
}

TEST(VisibleSlots, FollowsTheDefinition) {
  std::mt19937 random(1);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int repeat = 0; repeat < 3000; ++repeat) {
    Page page;
    page.consecutive = uniform(0, 1) == 1;
    const int first = uniform(-100, 100);
    for (int slot = 0; slot < kPageTokens; ++slot) {
      page.positions[static_cast<size_t>(slot)] = page.consecutive ? first + slot : uniform(-100, 200);
    }
    const uint64_t mask = uniform(0, 1) ? ~0ull : (uint64_t{random()} << 32 | random());
    const PageReference reference{&page, uniform(-200, 200), uniform(0, 1) == 1, mask};
    const int filled = uniform(0, kPageTokens);
    const int32_t position = uniform(-300, 300);
    const int32_t window = uniform(0, 2) ? uniform(1, 100) : 0;
    uint64_t expected = 0;
    for (int slot = 0; slot < filled; ++slot) {
      const int at = reference.shift + page.positions[static_cast<size_t>(slot)];
      const bool near = window == 0 || position - at < window || reference.sink;
      if ((mask >> slot & 1) && at <= position && near) expected |= 1ull << slot;
    }
    ASSERT_EQ(visible_slots(reference, filled, position, window), expected);
  }
}

}  // namespace
}  // namespace rhapsode::kernels
