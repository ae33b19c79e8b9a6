// A test fixture with a folder of its own, removed at the end.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

namespace rhapsode::test {

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() {
    static std::atomic<int> counter{0};
    folder_ =
        std::filesystem::temp_directory_path() / fmt::format("rhapsode-test-{}-{}", ::getpid(), counter++);
    std::filesystem::create_directories(folder_);
  }
  ~TemporaryFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_;
};

}  // namespace rhapsode::test
