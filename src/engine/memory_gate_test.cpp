#include "engine/memory_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>
#include <vector>

namespace rhapsode::engine {
namespace {

constexpr auto kSoon = std::chrono::milliseconds(20);
constexpr auto kLong = std::chrono::seconds(20);

TEST(MemoryGate, ReadersAndOtherAnswersGetInWhileOneIsTold) {
  MemoryGate gate;
  const BesideAnswers ask(gate);
  auto reader = std::async(std::launch::async, [&] { const BesideAnswers inside(gate); });
  EXPECT_EQ(reader.wait_for(kSoon), std::future_status::timeout);
  {
    const SteppedOut told(gate);
    EXPECT_EQ(reader.wait_for(kLong), std::future_status::ready);
    std::async(std::launch::async, [&] {
      const BesideAnswers other(gate);
      const SteppedOut also_told(gate);
    }).get();
  }
}

TEST(MemoryGate, WhoChangesTheMemoryWaitsForAnswersAndGoesBeforeLaterCalls) {
  MemoryGate gate;
  std::atomic<bool> written{false};
  std::future<void> writer, reader;
  {
    const BesideAnswers ask(gate);
    {
      const SteppedOut told(gate);
      writer = std::async(std::launch::async, [&] {
        const std::lock_guard alone(gate);
        written = true;
      });
      EXPECT_EQ(writer.wait_for(kSoon), std::future_status::timeout);
      reader = std::async(std::launch::async, [&] {
        const BesideAnswers inside(gate);
        EXPECT_TRUE(written);
      });
      EXPECT_EQ(reader.wait_for(kSoon), std::future_status::timeout);
    }  // the answer comes back although somebody waits
    EXPECT_FALSE(written);
  }
  EXPECT_EQ(writer.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(reader.wait_for(kLong), std::future_status::ready);
}

TEST(MemoryGate, WhoLacksRoomWaitsForAnAnswerThatHoldsSomeAndNotForOneThatWaits) {
  MemoryGate gate;
  {
    const BesideAnswers alone(gate);
    EXPECT_FALSE(gate.wait_for_leave());
  }
  std::promise<void> end_telling;
  std::atomic<bool> told{false};
  auto telling = std::async(std::launch::async, [&] {
    const BesideAnswers ask(gate);
    const SteppedOut out(gate);
    told = true;
    end_telling.get_future().wait();
  });
  while (!told) std::this_thread::yield();
  // Both wait for the one that is told; the one that comes second finds nobody to wait for then.
  std::atomic<int> waited{0};
  const auto waiter = [&] {
    const BesideAnswers ask(gate);
    EXPECT_TRUE(gate.wait_for_leave());
    ++waited;
    EXPECT_EQ(gate.wait_for_leave(), false);
  };
  auto first = std::async(std::launch::async, waiter);
  EXPECT_EQ(first.wait_for(kSoon), std::future_status::timeout);
  EXPECT_EQ(waited, 0);
  end_telling.set_value();
  EXPECT_EQ(first.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(waited, 1);
}

TEST(MemoryGate, NobodyIsInsideBesideAnotherAndNoAnswerIsOutBesideAWriter) {
  MemoryGate gate;
  std::atomic<int> inside{0}, outside{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 300; ++i) {
      if (random() % 4 == 0) {
        const std::lock_guard alone(gate);
        EXPECT_EQ(++inside, 1);
        EXPECT_EQ(outside, 0);
        --inside;
        continue;
      }
      const BesideAnswers beside(gate);
      EXPECT_EQ(++inside, 1);
      --inside;
      if (random() % 2 == 0) continue;
      ++outside;
      {
        const SteppedOut told(gate);
        std::this_thread::yield();
      }
      --outside;
      EXPECT_EQ(++inside, 1);
      --inside;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 6; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rhapsode::engine
