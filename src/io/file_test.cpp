#include "io/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "io/archive.h"
#include "io/http.h"
#include "io/mapped_file.h"
#include "io/page_cache_view.h"
#include "support/temporary_folder.h"

namespace rhapsode {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class FileTest : public test::TemporaryFolder {};

TEST_F(FileTest, WritesAndReadsBack) {
  auto file = File::open_write(folder_ / "a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write_at(bytes("world"), 6).ok());
  ASSERT_TRUE(file->write_at(bytes("hello "), 0).ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(*file->size(), 11u);
  ASSERT_TRUE(file->truncate(7).ok());
  ASSERT_TRUE(file->close().ok());
  EXPECT_EQ(*read_text_file(folder_ / "a"), "hello w");
}

TEST_F(FileTest, ErrorsHaveKindsAndPaths) {
  const auto missing = File::open_read(folder_ / "none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr((folder_ / "none").string()));
  ASSERT_TRUE(replace_file(folder_ / "short", "abc").ok());
  std::vector<std::byte> more(10);
  const Status cut = File::open_read(folder_ / "short")->read_at(more, 0);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().kind, ErrorKind::kCorrupt);
  EXPECT_THAT(cut.error().message, HasSubstr("ends 7 bytes too early"));
  EXPECT_EQ(read_text_file(folder_ / "short", 2).error().kind, ErrorKind::kTooLarge);
  EXPECT_EQ(File::open_read("/dev/zero").error().kind, ErrorKind::kInvalidArgument);
}

TEST_F(FileTest, SaysWhetherTheSystemKeepsAPart) {
  constexpr size_t kBytes = 1 << 20;
  ASSERT_TRUE(replace_file(folder_ / "a", std::string(kBytes, 'x')).ok());
  const auto file = File::open_read(folder_ / "a");
  std::vector<std::byte> all(kBytes);
  ASSERT_TRUE(file->read_at(all, 0).ok());
  EXPECT_TRUE(PageCacheView(*file).holds(0, kBytes));
  EXPECT_TRUE(PageCacheView(*file).holds(5000, 1));
  EXPECT_TRUE(PageCacheView(*file).holds(kBytes - 1, 1));
  EXPECT_FALSE(PageCacheView(*file).holds(0, 0));
  EXPECT_FALSE(PageCacheView(*file).holds(1, kBytes)) << "behind the end is nothing";
  EXPECT_FALSE(PageCacheView(*file).holds(kBytes + 1, 1));
  ASSERT_TRUE(replace_file(folder_ / "empty", "").ok());
  EXPECT_FALSE(PageCacheView(*File::open_read(folder_ / "empty")).holds(0, 1));
  // A file system in memory lets go of nothing; on a disk the system may.
  ASSERT_EQ(::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED), 0);
  if (PageCacheView(*file).holds(0, kBytes)) GTEST_SKIP() << "the system keeps the file all the same";
  ASSERT_TRUE(file->read_at(std::span(all).first(kBytes / 2), 0).ok());
  EXPECT_TRUE(PageCacheView(*file).holds(0, kBytes / 2));
}

// It tells others that all of it is there, whatever there is.
TEST_F(FileTest, TheSystemSaysWhatItKeepsOnlyToWhoMayWriteTheFile) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  ASSERT_TRUE(replace_file(folder_ / "a", std::string(1 << 16, 'x')).ok());
  const auto file = File::open_read(folder_ / "a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(PageCacheView(*file).holds(0, 1 << 16));
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(::seteuid(kNobody), 0);
  const bool held = PageCacheView(*file).holds(0, 1 << 16);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_FALSE(held);
}

TEST_F(FileTest, APipeIsRefusedInsteadOfWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(File::open_read(folder_ / "pipe").error().message, HasSubstr("not a regular file"));
}

TEST_F(FileTest, AFullDiskIsNoSpace) {
  auto full = File::open_write("/dev/full");
  if (!full.ok()) GTEST_SKIP() << "there is no /dev/full here";
  const Status status = full->write_at(bytes("x"), 0);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kNoSpace);
}

TEST_F(FileTest, ReplacingIsWholeAndLeavesNothingElse) {
  ASSERT_TRUE(replace_file(folder_ / "a", "old").ok());
  ASSERT_TRUE(replace_file(folder_ / "a", "new").ok());
  EXPECT_EQ(*read_text_file(folder_ / "a"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_FALSE(replace_file(folder_ / "absent/a", "x").ok());
}

TEST_F(FileTest, LocksHoldBetweenProcessesAndEndWithThem) {
  const std::filesystem::path path = folder_ / "lock";
  const auto held_elsewhere = [&] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(FileLock::acquire(path, false).ok() ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status) == 1;
  };
  {
    const auto lock = FileLock::acquire(path, false);
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(held_elsewhere());
  }
  EXPECT_FALSE(held_elsewhere());
  EXPECT_TRUE(FileLock::acquire(path, true).ok());
}

TEST_F(FileTest, FreeSpaceOfAFolderThatIsNotThereYet) {
  const auto space = free_space(folder_ / "a/b/c");
  ASSERT_TRUE(space.ok());
  EXPECT_GT(*space, 0u);
}

TEST_F(FileTest, MapsFiles) {
  const std::string content(100000, 'x');
  ASSERT_TRUE(replace_file(folder_ / "a", content).ok());
  auto map = MappedFile::open(folder_ / "a");
  ASSERT_TRUE(map.ok());
  map->populate();
  const MappedFile moved = *std::move(map);
  EXPECT_TRUE(std::ranges::equal(moved.bytes(), bytes(content)));
  ASSERT_TRUE(replace_file(folder_ / "empty", "").ok());
  EXPECT_TRUE(MappedFile::open(folder_ / "empty")->bytes().empty());
  EXPECT_FALSE(MappedFile::open(folder_).ok());
}

TEST_F(FileTest, DamagedArchivesAreRefused) {
  ASSERT_TRUE(replace_file(folder_ / "a.whl", "PK\3\4 not really").ok());
  const Status status =
      extract_member(folder_ / "a.whl", "m", [](std::span<const std::byte>) { return Status(); });
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("a.whl"));
  EXPECT_FALSE(extract_member(folder_ / "none", "m", nullptr).ok());
}

TEST(Http, UrlsAreShownWithoutSecretsAndResolved) {
  EXPECT_EQ(shown_url("https://u:p@h.example:8/a?b=c#d"), "https://h.example:8/a");
  EXPECT_EQ(resolve_url("https://h.example/simple/p/", "../../f/x.whl#sha256=00"),
            "https://h.example/f/x.whl");
  EXPECT_EQ(resolve_url("https://h.example/p/", "https://o.example/x"), "https://o.example/x");
  EXPECT_EQ(resolve_url("not a url", "x"), std::nullopt);
}

}  // namespace
}  // namespace rhapsode
