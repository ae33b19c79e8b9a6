// The finder over a real catalog: exact below its threshold, an index above it that follows the catalog.
#include "recall/finder.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/sha256.h"
#include "index/index_test_support.h"
#include "io/file.h"
#include "recall/loop_search.h"
#include "support/temporary_folder.h"

namespace rhapsode::recall {
namespace {

using index::kTestDimensions;
using index::kTestWords;

class FinderTest : public test::TemporaryFolder {
 protected:
  FinderTest() : topics_(80) {
    catalog_ = open(false);
    states_ = [this](const std::string& sentence) -> Result<std::vector<float>> {
      ++sentences_;
      last_sentence_ = sentence;
      return topics_.question(8).vectors;
    };
  }

  std::unique_ptr<store::Catalog> open(bool read_only) const {
    store::CatalogOptions options;
    options.folder = folder_ / "memory";
    options.create = !read_only;
    options.read_only = read_only;
    return std::move(*store::Catalog::open(options));
  }
  FinderOptions finder_options() const {
    FinderOptions options;
    options.folder = folder_ / "memory" / "index";
    options.key = "codes";
    options.dimensions = kTestDimensions;
    options.least_chunks = 200;
    return options;
  }
  Finder finder(bool read_only = false, const std::string& key = "codes") const {
    FinderOptions options = finder_options();
    options.key = key;
    options.read_only = read_only;
    return Finder(std::move(options));
  }
  // With a device that has room for so many passages.
  FinderOptions on_device(size_t room) const {
    FinderOptions options = finder_options();
    options.device = [room](int) -> Result<std::unique_ptr<kernels::CodeSearch>> {
      return std::unique_ptr<kernels::CodeSearch>(std::make_unique<LoopSearch>(room));
    };
    return options;
  }

  // A source of passages of one sentence and four chunks each.
  void add(const std::string& name, int passages) {
    store::ContentRecord record{{}, "text", name, name, {}};
    for (int p = 0; p < passages; ++p) {
      store::PassagePlace place;
      place.begin = record.text.size();
      record.text += fmt::format("What passage {} of the source {} says is said here. ", p, name);
      place.end = record.text.size();
      place.tokens = 16;
      place.unique_tokens = {p};
      place.terms = {name};
      record.passages.push_back(place);
    }
    const std::string hash = *sha256(std::as_bytes(std::span(record.text)));
    const store::ContentInfo content = *catalog_->begin_content({hash, "test"}, record);
    std::vector<std::vector<uint64_t>> codes;
    std::vector<store::EncodedPassage> encoded;
    for (int p = 0; p < passages; ++p) codes.push_back(topics_.codes(4));
    for (int p = 0; p < passages; ++p) {
      encoded.push_back({p, 4, "white", std::as_bytes(std::span(codes[static_cast<size_t>(p)])), {}, {}});
    }
    ASSERT_TRUE(catalog_->put_encoded(content.id, encoded).ok());
    store::SourceRecord source;
    source.name = name;
    source.kind = "text";
    source.added = "2026-01-01T00:00:00Z";
    ASSERT_TRUE(catalog_->publish(source, content.id).ok());
  }

  std::vector<int64_t> visible(const store::Catalog& catalog) const { return *catalog.visible_passages({}); }
  std::vector<int64_t> best(Finder& finder, const store::Catalog& catalog,
                            const index::QuestionVectors& question) {
    const auto scores = finder.find(catalog, question, visible(catalog), true, 10);
    EXPECT_TRUE(scores.ok()) << (scores.ok() ? "" : scores.error().message);
    return scores.ok() ? scores->best : std::vector<int64_t>{};
  }
  // By the definition, from the catalog's codes.
  std::vector<int64_t> right(const store::Catalog& catalog, const index::QuestionVectors& question) const {
    const std::vector<int64_t> ids = visible(catalog);
    std::vector<index::PassageCodes> passages;
    const std::vector<store::CodeView> codes = *catalog.codes(ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      passages.push_back({ids[i], codes[i].bytes.data(), codes[i].chunks});
    }
    std::vector<int64_t> found;
    for (const index::ScanHit& hit :
         index::best_passages(question, passages, index::QuestionForm::kFourBits, 10, 1)) {
      found.push_back(hit.id);
    }
    return found;
  }
  void expect_right(Finder& finder, const store::Catalog& catalog) {
    for (int i = 0; i < 5; ++i) {
      const index::QuestionVectors question = topics_.question(6);
      EXPECT_EQ(best(finder, catalog, question), right(catalog, question));
    }
  }

  index::TestTopics topics_;
  std::unique_ptr<store::Catalog> catalog_;
  SentenceStates states_;
  int sentences_ = 0;
  std::string last_sentence_;
};

TEST_F(FinderTest, SmallMemoriesAreScanned) {
  add("small", 20);
  Finder finder = this->finder();
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_EQ(sentences_, 0);
  EXPECT_FALSE(finder.stats().approximate);
  EXPECT_EQ(finder.stats().bytes, 0u);
  expect_right(finder, *catalog_);
}

TEST_F(FinderTest, ADeviceAnswersInsteadOfScanAndIndex) {
  add("one", 60);
  ASSERT_TRUE(finder().sync(*catalog_, states_).ok());  // large enough for an index
  Finder finder(on_device(1000));
  expect_right(finder, *catalog_);
  EXPECT_TRUE(finder.stats().on_device);
  EXPECT_FALSE(finder.stats().approximate);
  EXPECT_EQ(finder.stats().device_bytes, 60u);
  EXPECT_EQ(finder.stats().device_problem, "");
  add("two", 30);
  expect_right(finder, *catalog_);
  ASSERT_TRUE(catalog_->erase(std::vector<std::string>{"one"}).ok());
  expect_right(finder, *catalog_);
  LatentScores scores;
  const std::vector<int64_t> ids = visible(*catalog_);
  const index::QuestionVectors question = topics_.question(4);
  ASSERT_TRUE(finder.score(*catalog_, question, ids, scores).ok());
  const auto found = finder.find(*catalog_, question, ids, true, 100);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->best.size(), ids.size());
  for (const auto& [id, score] : found->known) EXPECT_EQ(score, scores.known[id]);  // the same as the host's
}

TEST_F(FinderTest, AFullDeviceIsSaidAndTheHostGoesOn) {
  add("one", 60);
  Finder finder(on_device(50));
  expect_right(finder, *catalog_);
  EXPECT_FALSE(finder.stats().on_device);
  EXPECT_EQ(finder.stats().device_problem, "the device is full");
}

TEST_F(FinderTest, ADeviceThatFailsIsAnError) {
  add("one", 10);
  FinderOptions options = on_device(0);
  options.device = [](int) -> Result<std::unique_ptr<kernels::CodeSearch>> {
    return make_error(ErrorKind::kInternal, "the device fell off the bus");
  };
  Finder finder(std::move(options));
  const auto found = finder.find(*catalog_, topics_.question(3), visible(*catalog_), true, 5);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message, "the device fell off the bus");
}

TEST_F(FinderTest, TheIndexFollowsTheCatalog) {
  add("one", 60);
  Finder finder = this->finder();
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_EQ(sentences_, 60);
  EXPECT_EQ(last_sentence_.find("What passage"), 0u);
  EXPECT_TRUE(finder.stats().approximate);
  EXPECT_EQ(finder.stats().indexed, 60u);
  EXPECT_GT(finder.stats().bytes, 0u);
  expect_right(finder, *catalog_);
  add("two", 30);
  expect_right(finder, *catalog_);  // before the index knows
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_EQ(finder.stats().indexed, 90u);
  EXPECT_EQ(sentences_, 60);  // the anchors stay
  expect_right(finder, *catalog_);
  ASSERT_TRUE(catalog_->erase(std::vector<std::string>{"two"}).ok());
  expect_right(finder, *catalog_);
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_EQ(finder.stats().indexed, 60u);
  EXPECT_EQ(sentences_, 60);
}

// What an erased passage left in the anchors goes as well: they are trained anew.
TEST_F(FinderTest, ErasingWhatAnchorsWereTrainedOnTrainsThemAnew) {
  add("one", 60);
  add("two", 60);
  Finder finder = this->finder();
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_EQ(sentences_, 120);
  ASSERT_TRUE(catalog_->erase(std::vector<std::string>{"one"}).ok());
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_EQ(sentences_, 180);
  EXPECT_EQ(finder.stats().indexed, 60u);
  expect_right(finder, *catalog_);
}

TEST_F(FinderTest, ReadersUseAndFollowTheWritersIndex) {
  add("one", 60);
  Finder writer = finder();
  ASSERT_TRUE(writer.sync(*catalog_, states_).ok());
  const std::unique_ptr<store::Catalog> reading = open(true);
  Finder reader = finder(true);
  EXPECT_TRUE(reader.stats().approximate);
  expect_right(reader, *reading);
  add("two", 60);
  ASSERT_TRUE(writer.sync(*catalog_, states_).ok());
  ASSERT_TRUE(reading->refresh().ok());
  expect_right(reader, *reading);
  EXPECT_EQ(reader.stats().indexed, 120u);
}

TEST_F(FinderTest, FiltersComeFirst) {
  add("one", 60);
  add("two", 60);
  Finder finder = this->finder();
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  store::Selection selection;
  selection.sources = {"two"};
  const std::vector<int64_t> allowed = *catalog_->visible_passages(selection);
  ASSERT_EQ(allowed.size(), 60u);
  const auto scores = finder.find(*catalog_, topics_.question(6), allowed, false, 100);
  ASSERT_TRUE(scores.ok());
  EXPECT_EQ(scores->best.size(), 60u);
  for (const int64_t id : scores->best) EXPECT_TRUE(std::binary_search(allowed.begin(), allowed.end(), id));
}

// X9: a damaged index file costs time, is named, and is made again from the codes.
TEST_F(FinderTest, X9_ADamagedIndexIsRebuiltFromTheCodes) {
  add("one", 60);
  {
    Finder finder = this->finder();
    ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  }
  const std::filesystem::path path = folder_ / "memory" / "index" / "000001.rhl";
  std::string content = *read_text_file(path);
  content[content.size() - 3] = static_cast<char>(content[content.size() - 3] ^ 1);
  ASSERT_TRUE(replace_file(path, content).ok());
  Finder finder = this->finder();
  EXPECT_FALSE(finder.stats().approximate);
  EXPECT_NE(finder.stats().problem.find(path.string()), std::string::npos) << finder.stats().problem;
  expect_right(finder, *catalog_);
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_TRUE(finder.stats().approximate);
  EXPECT_EQ(finder.stats().problem, "");
  EXPECT_EQ(finder.stats().indexed, 60u);
  expect_right(finder, *catalog_);
}

TEST_F(FinderTest, AnIndexOfOtherCodesIsNotUsed) {
  add("one", 60);
  Finder first = finder();
  ASSERT_TRUE(first.sync(*catalog_, states_).ok());
  Finder other = finder(false, "codes of another model");
  EXPECT_FALSE(other.stats().approximate);
  EXPECT_NE(other.stats().problem, "");
  ASSERT_TRUE(other.sync(*catalog_, states_).ok());
  EXPECT_TRUE(other.stats().approximate);
  EXPECT_EQ(sentences_, 120);
}

TEST_F(FinderTest, AMemoryThatShrinksIsScannedAgain) {
  add("one", 60);
  add("two", 10);
  Finder finder = this->finder();
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  ASSERT_TRUE(catalog_->erase(std::vector<std::string>{"one"}).ok());
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  EXPECT_FALSE(finder.stats().approximate);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "memory" / "index"));
  expect_right(finder, *catalog_);
}

TEST_F(FinderTest, ScoresOfOthersAreAddedOnce) {
  add("one", 60);
  Finder finder = this->finder();
  ASSERT_TRUE(finder.sync(*catalog_, states_).ok());
  const index::QuestionVectors question = topics_.question(6);
  const std::vector<int64_t> ids = visible(*catalog_);
  auto scores = finder.find(*catalog_, question, ids, true, 5);
  ASSERT_TRUE(scores.ok());
  EXPECT_EQ(scores->known.size(), 5u);
  ASSERT_TRUE(finder.score(*catalog_, question, ids, *scores).ok());
  EXPECT_EQ(scores->known.size(), 60u);
  LatentScores all;
  ASSERT_TRUE(finder.score(*catalog_, question, ids, all).ok());
  for (const int64_t id : ids) EXPECT_EQ(all.known[id], scores->known[id]) << id;
}

}  // namespace
}  // namespace rhapsode::recall
