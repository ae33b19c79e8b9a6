// A test fixture with a folder of its own, removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace rhapsode::test {

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() {
    // Never one that a killed test left behind: process ids come again.
    std::string name = (std::filesystem::temp_directory_path() / "rhapsode-test-XXXXXX").string();
    const char* made = ::mkdtemp(name.data());
    EXPECT_NE(made, nullptr) << name;
    folder_ = made ? made : name;
  }
  ~TemporaryFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_;
};

}  // namespace rhapsode::test
