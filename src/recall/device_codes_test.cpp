// Codes on a device follow the passages, and answer as the exact scan does.
#include "recall/device_codes.h"

#include <gtest/gtest.h>

#include "index/index_test_support.h"
#include "kernels/sharded_code_search.h"
#include "recall/loop_search.h"

namespace rhapsode::recall {
namespace {

using index::kTestDimensions;

// Counts what is fetched.
class CountingStore final : public index::CodeSource {
 public:
  Result<std::vector<index::PassageCodes>> codes(std::span<const int64_t> ids) override {
    fetched += ids.size();
    return store.codes(ids);
  }
  index::TestStore store;
  size_t fetched = 0;
};

class DeviceCodesTest : public ::testing::Test {
 protected:
  DeviceCodesTest()
      : topics_(40),
        device_(
            [this](int) -> Result<std::unique_ptr<kernels::CodeSearch>> {
              ++made_;
              return std::unique_ptr<kernels::CodeSearch>(std::make_unique<LoopSearch>(room_));
            },
            kTestDimensions) {
    for (int64_t id = 3; id < 400; id += 3) put(id);
  }
  void put(int64_t id) { codes_.store.put(id, topics_.codes(1 + static_cast<int>(topics_.random()() % 6))); }

  void expect_same(std::span<const int64_t> allowed, bool everything, int count = 12) {
    const index::QuestionVectors question = topics_.question(7);
    const auto found = device_.best(question, allowed, everything, codes_, count);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_TRUE(index::same_hits(*found, codes_.store.best(question, allowed, count)));
  }

  index::TestTopics topics_;
  CountingStore codes_;
  size_t room_ = 1'000'000;
  int made_ = 0;
  DeviceCodes device_;
};

TEST_F(DeviceCodesTest, AnswersAsTheExactScan) {
  std::vector<int64_t> all = codes_.store.ids();
  expect_same(all, true);
  expect_same(all, true, 1000);
  const std::vector<int64_t> few(all.begin() + 10, all.begin() + 15);
  expect_same(few, false);
  expect_same({}, false);
  EXPECT_EQ(codes_.fetched, all.size());  // nothing is brought twice
}

TEST_F(DeviceCodesTest, BringsOnlyWhatAQuestionMaySee) {
  const std::vector<int64_t> all = codes_.store.ids();
  const std::vector<int64_t> some(all.begin(), all.begin() + 20);
  expect_same(some, false);
  EXPECT_EQ(codes_.fetched, 20u);
  expect_same(all, true);
  EXPECT_EQ(codes_.fetched, all.size());
}

TEST_F(DeviceCodesTest, EverythingStaysRightWhenOtherQuestionsBringMore) {
  std::vector<int64_t> all = codes_.store.ids();
  const std::vector<int64_t> visible(all.begin(), all.begin() + 60);
  expect_same(visible, true);
  expect_same(all, false);  // those that are not visible by themselves, say of a conversation
  expect_same(visible, true);
}

TEST_F(DeviceCodesTest, FollowsWhatIsAddedRemovedAndEncodedAnew) {
  expect_same(codes_.store.ids(), true);
  put(4);
  put(1000);
  codes_.store.drop(9);
  put(30);  // another text's codes under the same number
  device_.distrust();
  expect_same(codes_.store.ids(), true);
  expect_same(codes_.store.ids(), true, 1000);
  EXPECT_EQ(made_, 1);
}

TEST_F(DeviceCodesTest, LeavesOutPassagesWithoutCodes) {
  std::vector<int64_t> all = codes_.store.ids();
  all.push_back(5000);
  expect_same(all, true, 1000);
  device_.distrust();
  codes_.store.put(5000, topics_.codes(2));
  expect_same(all, true, 1000);
}

TEST_F(DeviceCodesTest, MakesRoomWhenMostIsGone) {
  for (int round = 0; round < 60; ++round) {
    for (int64_t id = 3; id < 400; id += 3) put(id);
    device_.distrust();
    expect_same(codes_.store.ids(), true, 3);
  }
  EXPECT_GT(made_, 1);
  EXPECT_LT(device_.device_bytes(), 5000u);
}

TEST_F(DeviceCodesTest, SaysWhenTheyDoNotFit) {
  room_ = 50;
  const auto found = device_.best(topics_.question(3), codes_.store.ids(), true, codes_, 5);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::kNoSpace);
}

// On several devices, bit for bit as by the exact scan, whatever is added, replaced or does not fit.
class ShardedCodesTest : public DeviceCodesTest, public ::testing::WithParamInterface<int> {
 protected:
  ShardedCodesTest() {
    sharded_ = std::make_unique<DeviceCodes>(
        [this](int) -> Result<std::unique_ptr<kernels::CodeSearch>> {
          std::vector<std::unique_ptr<kernels::CodeSearch>> shares;
          for (int i = 0; i < GetParam(); ++i) {
            auto share = std::make_unique<LoopSearch>(i == 0 ? first_room_ : room_);
            shares_.push_back(share.get());
            shares.push_back(std::move(share));
          }
          return kernels::sharded_code_search(std::move(shares));
        },
        kTestDimensions);
  }
  void expect_best(std::span<const int64_t> allowed, bool everything, int count) {
    const index::QuestionVectors question = topics_.question(7);
    const auto found = sharded_->best(question, allowed, everything, codes_, count);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_TRUE(index::same_hits(*found, codes_.store.best(question, allowed, count)));
  }

  size_t first_room_ = 1'000'000;
  std::vector<LoopSearch*> shares_;
  std::unique_ptr<DeviceCodes> sharded_;
};
INSTANTIATE_TEST_SUITE_P(Devices, ShardedCodesTest, ::testing::Values(1, 2, 3));

TEST_P(ShardedCodesTest, FindAsOneDoes) {
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 9; ++i) put(static_cast<int64_t>(topics_.random()() % 900));
    codes_.store.drop(codes_.store.ids()[topics_.random()() % 20]);
    sharded_->distrust();
    const std::vector<int64_t> all = codes_.store.ids();
    std::vector<int64_t> some;
    for (const int64_t id : all) {
      if (topics_.random()() % 3 == 0) some.push_back(id);
    }
    expect_best(all, true, 1 + round);
    expect_best(all, true, 10'000);
    expect_best(some, false, 5);
  }
  // Each holds its share, by chunks.
  size_t least = shares_[0]->slots(), most = least;
  for (const LoopSearch* share : shares_) {
    least = std::min(least, share->slots());
    most = std::max(most, share->slots());
  }
  EXPECT_LE(most, least + least / 4 + 1);
}

TEST_P(ShardedCodesTest, WhatOneHasNoRoomForIsRefusedAndTheRestStaysFindable) {
  first_room_ = 60;
  const std::vector<int64_t> all = codes_.store.ids();
  const std::vector<int64_t> few(all.begin(), all.begin() + 40);
  expect_best(few, false, 10);
  const auto refused = sharded_->best(topics_.question(3), all, false, codes_, 5);
  if (GetParam() == 1 || all.size() / static_cast<size_t>(GetParam()) > first_room_) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::kNoSpace);
  }
  for (const LoopSearch* share : shares_) EXPECT_GT(share->slots(), 0u);
}

TEST_F(DeviceCodesTest, FindsNothingForNothing) {
  const auto none = device_.best(topics_.question(0), codes_.store.ids(), true, codes_, 5);
  EXPECT_TRUE(none.ok() && none->empty());
  const auto no_count = device_.best(topics_.question(3), codes_.store.ids(), true, codes_, 0);
  EXPECT_TRUE(no_count.ok() && no_count->empty());
}

}  // namespace
}  // namespace rhapsode::recall
