#include "index/index_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "index/index_test_support.h"
#include "io/file.h"

namespace rhapsode::index {
namespace {

namespace fs = std::filesystem;

class IndexFolderTest : public testing::Test {
 protected:
  IndexFolderTest()
      : folder_(fs::temp_directory_path() / ("rhapsode_index_folder_" + std::to_string(getpid()))),
        topics_(60),
        index_(topics_.anchors(80)) {
    fs::remove_all(folder_);
  }
  ~IndexFolderTest() override { fs::remove_all(folder_); }

  IndexFolder open(const std::string& key = "codes", bool resident = true, bool read_only = false) const {
    IndexFolderOptions options;
    options.key = key;
    options.resident = resident;
    options.read_only = read_only;
    return {folder_, options};
  }
  void put_range(int64_t begin, int64_t end) {
    std::vector<int64_t> ids;
    for (int64_t id = begin; id < end; ++id) {
      store_.put(id, topics_.codes(static_cast<int>(id % 5)));
      ids.push_back(id);
    }
    ASSERT_TRUE(index_.add(store_.passages(ids)).ok());
  }
  void save() {
    auto saved = open().save(*index_.state());
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    index_.adopt_numbers(*saved);
  }
  std::vector<ScanHit> hits(const PassageIndex& index, const QuestionVectors& question, int threads = 1,
                            int probes = 8) {
    FindOptions options;
    options.candidates = 60;
    options.threads = threads;
    options.probes = probes;
    const auto found = index.find(question, index.scope(), store_, options);
    EXPECT_TRUE(found.ok());
    return found->hits;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& file : fs::directory_iterator(folder_)) found.push_back(file.path());
    std::sort(found.begin(), found.end());
    return found;
  }

  fs::path folder_;
  TestTopics topics_;
  TestStore store_;
  PassageIndex index_;
};

TEST_F(IndexFolderTest, GivesBackWhatWasSaved) {
  put_range(0, 400);
  put_range(200, 700);
  index_.remove(std::vector<int64_t>{3, 250, 699});
  save();
  EXPECT_GT(open().bytes_on_disk(), 1000u);
  for (const bool resident : {true, false}) {
    auto state = open("codes", resident).load();
    ASSERT_TRUE(state.ok()) << state.error().message;
    const PassageIndex loaded(std::move(*state), {});
    EXPECT_EQ(loaded.size(), 697u);
    EXPECT_FALSE(loaded.contains(250));
    for (int i = 0; i < 10; ++i) {
      const QuestionVectors question = topics_.question(6);
      EXPECT_TRUE(same_hits(hits(index_, question), hits(loaded, question)));
    }
  }
}

TEST_F(IndexFolderTest, LaterSavesWriteOnlyWhatIsNewAndRemoveWhatIsOld) {
  put_range(0, 100);
  save();
  const fs::path first = folder_ / "000001.rhl";
  const auto written = fs::last_write_time(first);
  put_range(100, 200);
  save();
  EXPECT_EQ(fs::last_write_time(first), written);
  EXPECT_TRUE(fs::exists(folder_ / "000002.rhl"));
  std::ofstream(folder_ / "000009.rhl") << "left by a process that died";
  index_.remove(std::vector<int64_t>{1});
  ASSERT_TRUE(index_.purge().ok());
  save();
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(folder_ / "000010.rhl"));  // numbers are never used twice
  EXPECT_FALSE(fs::exists(folder_ / "000009.rhl"));
}

TEST_F(IndexFolderTest, AnIndexOnTheDiskGoesOnBeingChanged) {
  put_range(0, 300);
  save();
  PassageIndex stored(*open("codes", false).load(), {});
  stored.remove(std::vector<int64_t>{5, 6});
  ASSERT_TRUE(stored.purge().ok());
  EXPECT_EQ(stored.size(), 298u);
  auto saved = open().save(*stored.state());
  ASSERT_TRUE(saved.ok());
  const PassageIndex again(*open().load(), {});
  const QuestionVectors question = topics_.question(6);
  EXPECT_TRUE(same_hits(hits(stored, question), hits(again, question)));
}

// Any change of any byte is found when the index is loaded, and named; lists that stay on the disk are
// checked when they are read.
TEST_F(IndexFolderTest, DamageIsRefusedByName) {
  put_range(0, 120);
  save();
  std::mt19937 random(1);
  for (const fs::path& path : files()) {
    const std::string content = *read_text_file(path);
    for (int i = 0; i < 60; ++i) {
      std::string changed = content;
      const size_t at = i == 0 ? content.size() - 1 : random() % content.size();
      changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
      ASSERT_TRUE(replace_file(path, changed).ok());
      const auto state = open().load();
      ASSERT_FALSE(state.ok()) << path << " " << at;
      EXPECT_NE(state.error().message.find(path.string()), std::string::npos) << state.error().message;
    }
    for (const size_t size : {size_t{0}, size_t{5}, content.size() / 2, content.size() - 1}) {
      ASSERT_TRUE(replace_file(path, content.substr(0, size)).ok());
      EXPECT_FALSE(open().load().ok()) << path << " " << size;
    }
    fs::remove(path);
    EXPECT_EQ(open().load().error().kind, ErrorKind::kNotFound);
    ASSERT_TRUE(replace_file(path, content).ok());
  }
  ASSERT_TRUE(open().load().ok());
}

TEST_F(IndexFolderTest, DamagedListsOnTheDiskAreAnErrorOfTheQuestion) {
  put_range(0, 200);
  save();
  const PassageIndex stored(*open("codes", false).load(), {});
  const fs::path path = folder_ / "000001.rhl";
  std::string content = *read_text_file(path);
  for (size_t i = content.size() / 2; i < content.size(); ++i) content[i] = '\x55';
  std::ofstream(path, std::ios::binary | std::ios::in) << content;  // in place: the index has the file open
  FindOptions options;
  options.candidates = 20;
  options.probes = 80;
  const auto found = stored.find(topics_.question(20), stored.scope(), store_, options);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::kCorrupt);
  EXPECT_NE(found.error().message.find("000001.rhl"), std::string::npos);
}

TEST_F(IndexFolderTest, AnotherKeyIsRefusedAndClearingRemovesEverything) {
  put_range(0, 50);
  save();
  EXPECT_EQ(open("other codes").load().error().kind, ErrorKind::kUnsupported);
  ASSERT_TRUE(open().clear().ok());
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(open().load().error().kind, ErrorKind::kNotFound);
  EXPECT_TRUE(open().clear().ok());
}

// --- Section K of the user cases ---

// Killed while it saves: what was saved last opens, or what was being saved.
TEST_F(IndexFolderTest, X9_OpensAfterBeingKilledWhileItSaves) {
  put_range(0, 500);
  save();
  for (int kill = 0; kill < 10; ++kill) {
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t i = 0;; ++i) {
        index_.remove(std::vector<int64_t>{i % 500});
        if (!index_.purge().ok()) _exit(1);
        auto saved = open().save(*index_.state());
        if (!saved.ok()) _exit(1);
        index_.adopt_numbers(*saved);
        const PassageCodes back = store_.passage(i % 500);
        if (!index_.add(std::span(&back, 1)).ok()) _exit(1);
      }
    }
    ::usleep(static_cast<useconds_t>(2000 + 3000 * kill));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    auto state = open().load();
    ASSERT_TRUE(state.ok()) << state.error().message;
    const size_t size = PassageIndex(std::move(*state), {}).size();
    EXPECT_TRUE(size == 499 || size == 500) << size;
  }
  put_range(0, 500);
  save();  // the next writer removes what was left
  for (const fs::path& path : files()) EXPECT_EQ(path.string().find(".new-"), std::string::npos) << path;
}

TEST_F(IndexFolderTest, X11_NewerFormatsAreRefusedWithBothVersions) {
  put_range(0, 50);
  save();
  for (const fs::path& path : {folder_ / "manifest.rhx", folder_ / "000001.rhl"}) {
    const std::string content = *read_text_file(path);
    std::string newer = content;
    newer[8] = 7;
    ASSERT_TRUE(replace_file(path, newer).ok());
    const std::string message = open().load().error().message;
    EXPECT_NE(message.find("version 7"), std::string::npos) << message;
    EXPECT_NE(message.find("version 1"), std::string::npos) << message;
    ASSERT_TRUE(replace_file(path, content).ok());
  }
}

TEST_F(IndexFolderTest, X12_ReadOnlyIsEnforcedAndReopeningGivesTheSameAnswers) {
  put_range(0, 800);
  save();
  const std::vector<fs::path> before = files();
  IndexFolder reading = open("codes", true, true);
  EXPECT_EQ(reading.save(*index_.state()).error().kind, ErrorKind::kPermission);
  EXPECT_EQ(reading.clear().error().kind, ErrorKind::kPermission);
  EXPECT_EQ(files(), before);
  const PassageIndex loaded(*reading.load(), {});
  const QuestionVectors question = topics_.question(6);
  const std::vector<ScanHit> expected = hits(index_, question, 1, 16);
  std::vector<std::thread> threads;
  std::vector<char> same(8, 0);
  for (size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      TestStore codes = store_;
      FindOptions options;
      options.candidates = 60;
      options.probes = 16;
      options.threads = static_cast<int>(t) + 1;
      const auto found = loaded.find(question, loaded.scope(), codes, options);
      same[t] = found.ok() && same_hits(found->hits, expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<char>(8, 1));
}

}  // namespace
}  // namespace rhapsode::index
