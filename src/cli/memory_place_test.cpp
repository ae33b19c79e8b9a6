// Where a memory lies when nobody says it, and which source was meant.
#include "cli/memory_place.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/memory_session.h"

namespace rhapsode::cli {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

class MemoryPlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rhapsode-place-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    fs::create_directories(root_ / "work" / "deep" / "er");
    fs::create_directories(root_ / "home");
  }
  void TearDown() override { fs::remove_all(root_); }

  PlaceSearch from(const char* folder) const { return {root_ / folder, root_ / "home"}; }

  fs::path root_;
};

TEST_F(MemoryPlaceTest, AGivenFolderIsTaken) {
  fs::create_directories(root_ / "work" / ".rhapsode");
  EXPECT_EQ(find_memory("/elsewhere", from("work")).folder, "/elsewhere");
  EXPECT_EQ(find_memory("/elsewhere", from("work")).why, "");
}

TEST_F(MemoryPlaceTest, TheNearestFolderUpwardsWins) {
  fs::create_directories(root_ / "work" / ".rhapsode");
  EXPECT_EQ(find_memory("", from("work/deep/er")).folder, root_ / "work" / ".rhapsode");
  EXPECT_EQ(find_memory("", from("work")).folder, ".rhapsode");
  fs::create_directories(root_ / "work" / "deep" / ".rhapsode");
  EXPECT_EQ(find_memory("", from("work/deep/er")).folder, root_ / "work" / "deep" / ".rhapsode");
  EXPECT_EQ(find_memory("", from("home")).folder, root_ / "home" / "memory");
}

TEST_F(MemoryPlaceTest, AHomeFolderOfThatNameIsNoMemory) {
  fs::create_directories(root_ / ".rhapsode");
  const PlaceSearch search{root_ / "work", root_ / ".rhapsode"};
  EXPECT_EQ(find_memory("", search).folder, root_ / ".rhapsode" / "memory");
  const PlaceSearch beside{root_, root_ / ".rhapsode"};
  EXPECT_EQ(place_for_memory("", Texts{"work"}, beside).folder, root_ / ".rhapsode" / "memory");
}

TEST_F(MemoryPlaceTest, ANewOneLiesBesideWhatItHolds) {
  const PlaceSearch search = from("work");
  EXPECT_EQ(place_for_memory("", Texts{"deep", "./deep/er"}, search).folder, ".rhapsode");
  EXPECT_EQ(place_for_memory("", Texts{(root_ / "work" / "deep").string()}, search).folder, ".rhapsode");
  EXPECT_EQ(place_for_memory("", Texts{"."}, search).folder, ".rhapsode");
  const fs::path home = root_ / "home" / "memory";
  EXPECT_EQ(place_for_memory("", Texts{"deep", "../other"}, search).folder, home);
  EXPECT_EQ(place_for_memory("", Texts{"deep/../../other"}, search).folder, home);
  EXPECT_EQ(place_for_memory("", Texts{"-"}, search).folder, home);
  EXPECT_EQ(place_for_memory("", Texts{}, search).folder, home);
  fs::create_directories(root_ / "work" / ".git");
  EXPECT_EQ(place_for_memory("", Texts{"../other"}, from("work/deep")).folder, ".rhapsode");
  EXPECT_EQ(place_for_memory("there", Texts{"../other"}, from("work/deep")).folder, "there");
}

TEST(NearestSource, EndingsThenSlips) {
  const Texts sources{"docs/guide.md", "docs/design/memory.md", "notes/2026.txt"};
  EXPECT_EQ(nearest_source("guide.md", sources), "docs/guide.md");
  EXPECT_EQ(nearest_source("design/memory.md", sources), "docs/design/memory.md");
  EXPECT_EQ(nearest_source("docs/giude.md", sources), "docs/guide.md");
  EXPECT_EQ(nearest_source("other/place/memry.md", sources), "docs/design/memory.md");
  EXPECT_EQ(nearest_source("unlike.cpp", sources), "");
  EXPECT_EQ(nearest_source("", sources), "");
  EXPECT_EQ(nearest_source("guide.md", Texts{}), "");
}

}  // namespace
}  // namespace rhapsode::cli
