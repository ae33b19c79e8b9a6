#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace rhapsode {
namespace {

TEST(WorkerPool, ReturnsWhatTheWorkGives) {
  for (const int threads : {1, 4}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<std::future<int>> results;
    for (int i = 0; i < 100; ++i) results.push_back(pool.run([i] { return i * i; }));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(results[static_cast<size_t>(i)].get(), i * i);
  }
}

TEST(WorkerPool, OneThreadWorksAtOnce) {
  WorkerPool pool(1);
  bool done = false;
  pool.add([&] { done = true; });
  EXPECT_TRUE(done);
}

TEST(WorkerPool, TakesUrgentWorkFirst) {
  std::vector<int> order;
  std::mutex mutex;
  {
    WorkerPool pool(2);
    std::promise<void> open;
    const std::shared_future<void> gate(open.get_future());
    std::atomic<int> held{0}, done{0};
    for (int i = 0; i < 2; ++i) {
      pool.add([&] {
        ++held;
        gate.wait();
      });
    }
    while (held < 2) std::this_thread::yield();
    const auto note = [&](int value) {
      return [&, value] {
        const std::lock_guard lock(mutex);
        order.push_back(value);
        ++done;
      };
    };
    pool.add(note(0));
    pool.add(note(1), /*urgent=*/true);
    // One thread goes on, so that the order is the queue's.
    pool.add(
        [&] {
          while (done < 2) std::this_thread::yield();
        },
        /*urgent=*/true);
    open.set_value();
    while (done < 2) std::this_thread::yield();
  }
  EXPECT_EQ(order, (std::vector<int>{1, 0}));
}

TEST(WorkerPool, DropsWhatNobodyHasBegun) {
  std::atomic<int> done{0};
  std::future<int> dropped;
  {
    WorkerPool pool(2);
    for (int i = 0; i < 2; ++i) {
      pool.add([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++done;
      });
    }
    while (done == 0) std::this_thread::yield();
    dropped = pool.run([] { return 1; });
  }
  EXPECT_GE(done, 1);
  // Either one of the threads had begun it, or nobody ever does.
  EXPECT_TRUE(dropped.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
}

}  // namespace
}  // namespace rhapsode
