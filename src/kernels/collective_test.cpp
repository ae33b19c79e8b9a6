#include "kernels/collective.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "kernels/lanes.h"

namespace rhapsode::kernels {
namespace {

Error trouble(const char* what) {
  return make_error(ErrorKind::kNoSpace, "{}", what);
}

class HostCollectiveTest : public ::testing::TestWithParam<int> {
 protected:
  HostCollectiveTest() : ends_(host_collective(GetParam())), lanes_(Lanes::start(GetParam()).value()) {}

  // What a pass of `layers` exchanges gives member: [layer][member] = 100 * member + layer.
  static Status exchange(Collective& end, int layers, unsigned jitter) {
    std::mt19937 random(jitter);
    std::vector<int32_t> all(static_cast<size_t>(end.members()));
    for (int layer = 0; layer < layers; ++layer) {
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      all.assign(all.size(), -1);
      all[static_cast<size_t>(end.member())] = 100 * end.member() + layer;
      RH_TRY_STATUS(end.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(int32_t), nullptr));
      for (int member = 0; member < end.members(); ++member) {
        EXPECT_EQ(all[static_cast<size_t>(member)], 100 * member + layer);
      }
    }
    return {};
  }
  Collective& end(int member) { return *ends_[static_cast<size_t>(member)]; }
  Status pass() {
    return lanes_->run([&](int lane) -> Status {
      RH_TRY_STATUS(end(lane).agree({}));
      return exchange(end(lane), 20, static_cast<unsigned>(lane));
    });
  }

  std::vector<std::unique_ptr<Collective>> ends_;
  std::unique_ptr<Lanes> lanes_;
};

INSTANTIATE_TEST_SUITE_P(Members, HostCollectiveTest, ::testing::Values(1, 2, 3, 5));

TEST_P(HostCollectiveTest, EveryoneGetsEverythingInOrder) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(pass().ok());
}

TEST_P(HostCollectiveTest, AllHearTheFirstMemberThatCannotBegin) {
  const int last = GetParam() - 1;
  for (int round = 0; round < 10; ++round) {
    std::vector<Status> heard(static_cast<size_t>(GetParam()));
    const Status status = lanes_->run([&](int lane) -> Status {
      const Status mine = lane == last       ? Status(trouble("the last one"))
                          : lane == last - 1 ? Status(trouble("the one before"))
                                             : Status();
      return heard[static_cast<size_t>(lane)] = end(lane).agree(mine);
    });
    EXPECT_FALSE(status.ok());
    for (const Status& one : heard) {
      ASSERT_FALSE(one.ok());
      EXPECT_EQ(one.error().message, last > 0 ? "the one before" : "the last one");
    }
    ASSERT_TRUE(pass().ok());
  }
}

TEST_P(HostCollectiveTest, NobodyWaitsForOneThatHasGone) {
  for (int round = 0; round < 20; ++round) {
    const int gone = round % GetParam();
    const Status status = lanes_->run([&](int lane) -> Status {
      RH_TRY_STATUS(end(lane).agree({}));
      RH_TRY_STATUS(exchange(end(lane), round % 4, static_cast<unsigned>(lane + round)));
      if (lane == gone) {
        end(lane).fail(trouble("gone"));
        return trouble("gone");
      }
      return exchange(end(lane), 3, static_cast<unsigned>(lane));
    });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "gone");
    ASSERT_TRUE(pass().ok());
  }
}

TEST(Rendezvous, WhatIsLostStaysLost) {
  Rendezvous meeting(1);
  EXPECT_TRUE(meeting.agree(0, {}).ok());
  meeting.lose(trouble("a cable"));
  EXPECT_FALSE(meeting.wait().ok());
  for (int i = 0; i < 2; ++i) {
    const Status status = meeting.agree(0, {});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "a cable");
  }
}

TEST(Lanes, EachKeepsItsThreadAndTheFirstErrorCounts) {
  const auto lanes = Lanes::start(4).value();
  std::vector<std::thread::id> threads(4);
  for (int round = 0; round < 50; ++round) {
    const Status status = lanes->run([&](int lane) -> Status {
      auto& mine = threads[static_cast<size_t>(lane)];
      if (round > 0) {
        EXPECT_EQ(mine, std::this_thread::get_id());
      }
      mine = std::this_thread::get_id();
      if (round == 7 && lane >= 2) return trouble(lane == 2 ? "two" : "three");
      return {};
    });
    ASSERT_EQ(status.ok(), round != 7);
    if (!status.ok()) {
      EXPECT_EQ(status.error().message, "two");
    }
  }
}

}  // namespace
}  // namespace rhapsode::kernels
