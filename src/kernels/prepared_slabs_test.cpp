#include "kernels/prepared_slabs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace rhapsode::kernels {
namespace {

// Counts what is prepared, and lets it wait.
class Preparer {
 public:
  explicit Preparer(size_t slabs) : times_(slabs, 0) {}

  PreparedSlabs::Prepare function(size_t first_refused = SIZE_MAX) {
    return [this, first_refused](size_t slab) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !held_; });
      ++times_[slab];
      changed_.notify_all();
      return slab < first_refused;
    };
  }
  void hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  size_t done() const {
    std::lock_guard lock(mutex_);
    size_t sum = 0;
    for (const int times : times_) sum += static_cast<size_t>(times);
    return sum;
  }
  bool wait_for(size_t done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] {
      size_t sum = 0;
      for (const int times : times_) sum += static_cast<size_t>(times);
      return sum >= done;
    });
  }
  std::vector<int> times() const {
    std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::vector<int> times_;
};

TEST(PreparedSlabs, AreReadyAheadOfTheirUseAndNoFarther) {
  Preparer preparer(100);
  PreparedSlabs slabs(100, {3, 2}, preparer.function());
  ASSERT_TRUE(preparer.wait_for(3));
  EXPECT_TRUE(slabs.need(0));
  ASSERT_TRUE(preparer.wait_for(4));
  EXPECT_TRUE(slabs.need(0)) << "what was needed before moves nothing";
  EXPECT_TRUE(slabs.need(9));
  ASSERT_TRUE(preparer.wait_for(13));
  EXPECT_TRUE(slabs.need(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::vector<int> wanted(100, 0);
  std::fill(wanted.begin(), wanted.begin() + 13, 1);
  EXPECT_EQ(preparer.times(), wanted);
  EXPECT_TRUE(slabs.ready(12));
  EXPECT_FALSE(slabs.ready(13));
}

TEST(PreparedSlabs, EndWithTheLastOne) {
  Preparer preparer(5);
  PreparedSlabs slabs(5, {1000, 3}, preparer.function());
  ASSERT_TRUE(preparer.wait_for(5));
  for (size_t slab = 0; slab < 5; ++slab) EXPECT_TRUE(slabs.need(slab));
  EXPECT_EQ(preparer.done(), 5u);
}

TEST(PreparedSlabs, WithNothingAheadWhoeverNeedsOnePreparesIt) {
  Preparer preparer(4);
  PreparedSlabs slabs(4, {0, 2}, preparer.function());
  EXPECT_TRUE(slabs.need(2));
  EXPECT_EQ(preparer.times(), (std::vector<int>{0, 0, 1, 0}));
}

TEST(PreparedSlabs, ARefusalStaysAndEndsGoingAhead) {
  Preparer preparer(50);
  PreparedSlabs slabs(50, {1000, 1}, preparer.function(/*first_refused=*/4));
  ASSERT_TRUE(preparer.wait_for(5));
  EXPECT_TRUE(slabs.need(3));
  EXPECT_FALSE(slabs.need(4));
  EXPECT_FALSE(slabs.need(4));
  EXPECT_FALSE(slabs.need(7)) << "asked for all the same";
  EXPECT_EQ(preparer.done(), 6u);
}

TEST(PreparedSlabs, OneThatIsUnderWayIsWaitedForAndOthersArePreparedMeanwhile) {
  Preparer preparer(50);
  preparer.hold(true);
  PreparedSlabs slabs(50, {1, 1}, preparer.function());
  std::vector<uint8_t> ready(6, 0);
  std::thread releaser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    preparer.hold(false);
  });
  for_each_on_threads(ready.size(), 6, [&](size_t i) { ready[i] = slabs.need(i / 2); });
  releaser.join();
  EXPECT_EQ(ready, std::vector<uint8_t>(6, 1));
  for (const int times : preparer.times()) EXPECT_LE(times, 1);
}

TEST(PreparedSlabs, TheEndWaitsForTheOneUnderWayAndNotForAll) {
  constexpr size_t kSlabs = 2000;
  std::atomic<size_t> begun{0}, ended{0};
  {
    PreparedSlabs slabs(kSlabs, {kSlabs, 3}, [&](size_t) {
      ++begun;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++ended;
      return true;
    });
    EXPECT_TRUE(slabs.need(0));
  }
  EXPECT_EQ(begun, ended);
  EXPECT_LT(ended, kSlabs);
}

}  // namespace
}  // namespace rhapsode::kernels
