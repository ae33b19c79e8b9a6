// Kills, several processes on one folder, and full disks: nothing acknowledged is lost.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "io/file.h"
#include "store/catalog_fixture.h"

namespace rhapsode::store {
namespace {

using testing::HasSubstr;

class CatalogCrashTest : public CatalogTest {
 protected:
  // Runs `work` in a child process; returns its id.
  template <typename Work>
  static pid_t start(Work work) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::_exit(work());
  }
  static int wait_for(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
};

Document numbered(int64_t n) {
  return {fmt::format("s{:05}", n), fmt::format("item{0} one\nitem{0} two\n", n)};
}

// Case X9: killed at ten moments of adding; every source whose add() returned is there and whole.
TEST_F(CatalogCrashTest, KillsLoseNothingThatWasAcknowledged) {
  const auto acknowledged = folder_ / "acknowledged";
  ASSERT_TRUE(replace_file(acknowledged, "").ok());
  std::mt19937 random(7);
  for (int round = 0; round < 10; ++round) {
    const pid_t child = start([&] {
      auto catalog = Catalog::open(options());
      auto log = File::open_write(acknowledged);
      if (!catalog.ok() || !log.ok()) return 1;
      const uint64_t done = *log->size();
      for (int64_t n = static_cast<int64_t>(done);; ++n) {
        // Every fifth round replaces and erases as well, so that those are killed too.
        Document document = numbered(n);
        if (!add(**catalog, document).ok()) return 2;
        if (n % 7 == 3 && !(*catalog)->erase(std::vector<std::string>{numbered(n).name}).ok()) return 3;
        if (!log->write_at(std::as_bytes(std::span("x", 1)), static_cast<uint64_t>(n)).ok()) return 4;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 150));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    const int status = wait_for(child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
    const auto count = static_cast<int64_t>(read_text_file(acknowledged)->size());
    const auto reader = Catalog::open([&] {
      CatalogOptions reading = options();
      reading.read_only = true;
      return reading;
    }());
    if (!reader.ok()) {
      EXPECT_EQ(count, 0) << reader.error().message;  // killed before there was a catalog
      continue;
    }
    const auto catalog = open();
    ASSERT_NE(catalog, nullptr);
    expect_sound(*catalog);
    for (int64_t n = 0; n < count; ++n) {
      const bool erased = n % 7 == 3;
      EXPECT_EQ(hits(*catalog, fmt::format("item{}", n)), erased ? 0u : 2u) << n;
      EXPECT_EQ(catalog->passages_of(numbered(n).name)->size(), erased ? 0u : 2u) << n;
    }
    EXPECT_LE(static_cast<int64_t>(names(*catalog).size()), count + 1);
  }
  EXPECT_GT(read_text_file(acknowledged)->size(), 0u);
  const auto catalog = open();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options().folder)) {
    EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr(".new-")));
  }
}

// Case X10: five processes add fifty sources each to one folder.
TEST_F(CatalogCrashTest, ProcessesTakeTurnsAndNoneLosesASource) {
  constexpr int kProcesses = 5;
  constexpr int kEach = 50;
  { open(); }
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(start([&, p] {
      for (int i = 0; i < kEach;) {
        auto catalog = Catalog::open(options());
        if (!catalog.ok()) {
          if (catalog.error().kind != ErrorKind::kCancelled) return 1;
          ::usleep(2000);
          continue;
        }
        for (int batch = 0; batch < 10; ++batch, ++i) {
          Document document = numbered(p * kEach + i);
          document.kv_bytes = 100;
          if (!add(**catalog, document).ok()) return 2;
        }
      }
      return 0;
    }));
  }
  for (const pid_t child : children) {
    const int status = wait_for(child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  const auto catalog = open();
  EXPECT_EQ(names(*catalog).size(), size_t{kProcesses * kEach});
  EXPECT_EQ(catalog->visible_passages({})->size(), size_t{2 * kProcesses * kEach});
  EXPECT_EQ(hits(*catalog, "one"), size_t{kProcesses * kEach});
  expect_sound(*catalog);
}

// No file may grow any more: the same to the program as a full disk.
TEST_F(CatalogCrashTest, AFullDiskIsNoSpaceAndLosesNothing) {
  must_add(*open(), numbered(0));
  uint64_t largest = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options().folder)) {
    if (entry.is_regular_file()) largest = std::max<uint64_t>(largest, entry.file_size());
  }
  const pid_t child = start([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{largest + (256 << 10), largest + (256 << 10)};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    auto catalog = Catalog::open(options());
    if (!catalog.ok()) return 2;
    for (int n = 1; n < 200; ++n) {
      const auto added = add(**catalog, numbered(n));
      if (added.ok()) continue;
      if (added.error().kind != ErrorKind::kNoSpace) return 3;
      // The catalog goes on reading what it has.
      const auto rows = (*catalog)->sources({});
      if (!rows.ok() || static_cast<int>(rows->size()) != n) return 4;
      const auto check = (*catalog)->check();
      return check.ok() && check->problems.empty() ? 10 + n : 5;
    }
    return 6;
  });
  const int status = wait_for(child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_GT(WEXITSTATUS(status), 10) << "the child's own error";
  const int failed_at = WEXITSTATUS(status) - 10;
  const auto catalog = open();
  EXPECT_EQ(names(*catalog).size(), static_cast<size_t>(failed_at));
  must_add(*catalog, numbered(failed_at));
  EXPECT_EQ(names(*catalog).size(), static_cast<size_t>(failed_at) + 1);
  expect_sound(*catalog);
}

// Case I4 again: a kill inside a replacement leaves the old version or the new one.
TEST_F(CatalogCrashTest, AKillInsideAReplacementLeavesOneWholeVersion) {
  const auto text_of = [](int version) {
    std::string text;
    for (int i = 0; i < (version % 2 == 0 ? 10 : 3); ++i)
      text += fmt::format("version{} line{}\n", version, i);
    return text;
  };
  must_add(*open(), {"a", text_of(0)});
  std::mt19937 random(11);
  for (int round = 0; round < 5; ++round) {
    const pid_t child = start([&] {
      auto catalog = Catalog::open(options());
      if (!catalog.ok()) return 1;
      for (int version = 1000 * (round + 1);; ++version) {
        if (!add(**catalog, {"a", text_of(version)}).ok()) return 2;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 60));
    ::kill(child, SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(wait_for(child)));
    const auto catalog = open();
    const auto rows = *catalog->passages_of("a");
    EXPECT_EQ(rows.size(), catalog->visible_passages({})->size());
    const std::string whole = *catalog->text(rows.front().content);
    const int version = std::stoi(whole.substr(7));
    EXPECT_EQ(whole, text_of(version));
    EXPECT_EQ(rows.size(), version % 2 == 0 ? 10u : 3u);
    expect_sound(*catalog);
  }
}

}  // namespace
}  // namespace rhapsode::store
