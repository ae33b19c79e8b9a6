// Codes on a device follow the passages, and answer as the exact scan does.
#include "recall/device_codes.h"

#include <gtest/gtest.h>

#include "index/index_test_support.h"
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

TEST_F(DeviceCodesTest, FindsNothingForNothing) {
  const auto none = device_.best(topics_.question(0), codes_.store.ids(), true, codes_, 5);
  EXPECT_TRUE(none.ok() && none->empty());
  const auto no_count = device_.best(topics_.question(3), codes_.store.ids(), true, codes_, 0);
  EXPECT_TRUE(no_count.ok() && no_count->empty());
}

}  // namespace
}  // namespace rhapsode::recall
