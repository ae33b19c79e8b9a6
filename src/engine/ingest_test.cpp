// What add() stores does not depend on how many threads do it, nor on what else goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "engine/passes_fixture.h"
#include "index/whitening.h"
#include "io/file.h"
#include "recall/ingester.h"
#include "store/sqlite_database.h"
#include "support/temporary_folder.h"

namespace rhapsode {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;

class IngestTest : public PassesFixture {
 protected:
  void SetUp() override {
    PassesFixture::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    std::string pattern = (fs::temp_directory_path() / "ingest-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    make_whitening();
  }
  void TearDown() override {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }

  void make_whitening() {
    const int width = runner_->architecture().embedding;
    index::WhiteningTrainer trainer(width, 1, "tiny");
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> state(static_cast<size_t>(width));
    for (int i = 0; i < 4 * width; ++i) {
      for (float& value : state) value = normal(random);
      trainer.add_chunk(state);
      trainer.add_question_token(state);
    }
    auto made = trainer.finish(/*few_are_enough=*/true);
    ASSERT_TRUE(made.ok());
    whitening_.emplace(std::move(*made));
  }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / "docs" / name).parent_path());
    std::ofstream(folder_ / "docs" / name, std::ios::binary) << text;
  }

  // Short and long ones, equal ones under other names and endings, one that cannot be read, one of nothing.
  void write_documents(int count) const {
    std::mt19937 random(11);
    const std::vector<std::string> words = {"lamp",  "boat",  "stone", "River",  "House",
                                            "glass", "Tower", "bread", "winter", "Engine"};
    for (int d = 0; d < count; ++d) {
      std::string text;
      const auto paragraphs = d == count / 2 ? 400u : 1 + random() % 12;
      for (unsigned p = 0; p < paragraphs; ++p) {
        for (int w = 0; w < 14; ++w) text += words[random() % words.size()] + ' ';
        text += std::to_string(random() % 1000) + ".\n\n";
      }
      write("text" + std::to_string(100 + d) + ".txt", text);
      if (d % 5 == 1) write("copy" + std::to_string(100 + d) + ".txt", text);
      if (d % 5 == 2) write("zcopy" + std::to_string(100 + d) + ".txt", text);
      if (d % 7 == 3) write("other/read" + std::to_string(100 + d) + ".md", text);
    }
    write("empty.txt", "");
    write("blank.txt", " \n\n ");
    write("broken.docx", "PK\x03\x04 and no more");
  }

  struct Added {
    AddReport report;
    std::unique_ptr<store::Catalog> catalog;
    fs::path folder;
  };

  Added add(const std::string& name, int threads, AddOptions options = {}, uint64_t cap = 0) {
    Added added;
    added.folder = folder_ / name;
    store::CatalogOptions catalog_options;
    catalog_options.folder = added.folder;
    catalog_options.create = true;
    auto catalog = store::Catalog::open(catalog_options);
    EXPECT_TRUE(catalog.ok());
    added.catalog = std::move(*catalog);
    if (cap > 0) {
      EXPECT_TRUE(
          added.catalog->set_settings({{std::string(store::kKvCapSetting), std::to_string(cap)}}).ok());
    }
    recall::Ingester ingester(*added.catalog, *passes_, *encoder_, *frame_, *whitening_,
                              {"print", kernels::KvType::kF32, cap, threads});
    options.paths = {(folder_ / "docs").string()};
    auto report = ingester.add(options, 0);
    EXPECT_TRUE(report.ok()) << report.error().message;
    if (report.ok()) added.report = std::move(*report);
    return added;
  }

  // Every row of every table, as text.
  static std::map<std::string, Rows> tables_of(const fs::path& memory) {
    std::map<std::string, Rows> tables;
    auto database = store::Database::open(memory / "catalog.db", {.read_only = true});
    EXPECT_TRUE(database.ok());
    auto names = (*database)->prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE "
        "'term_index' AND name NOT LIKE 'sqlite_%'");
    EXPECT_TRUE(names.ok());
    while (*names->step()) {
      const std::string name(names->text(0));
      Rows& rows = tables[name];
      sqlite3_stmt* all = nullptr;
      EXPECT_EQ(
          sqlite3_prepare_v2((*database)->handle(), ("SELECT * FROM " + name).c_str(), -1, &all, nullptr),
          SQLITE_OK);
      while (sqlite3_step(all) == SQLITE_ROW) {
        std::string row;
        for (int c = 0; c < sqlite3_column_count(all); ++c) {
          const std::string column = sqlite3_column_name(all, c);
          const bool time = column == "added" || column == "valid_from" || column == "last_use";
          const auto* bytes = static_cast<const char*>(sqlite3_column_blob(all, c));
          row += column + "=";
          if (!time && bytes != nullptr) row.append(bytes, static_cast<size_t>(sqlite3_column_bytes(all, c)));
          row += ";";
        }
        rows.push_back(std::move(row));
      }
      sqlite3_finalize(all);
      std::sort(rows.begin(), rows.end());
    }
    return tables;
  }

  // Segments without their headers, which hold a random id; texts by name.
  static std::map<std::string, std::string> files_of(const fs::path& memory) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(memory)) {
      const std::string path = fs::relative(entry.path(), memory).string();
      if (!entry.is_regular_file() || path.starts_with("catalog.db")) continue;
      std::string bytes = read_text_file(entry.path(), 1 << 30).value();
      if (path.ends_with(".seg")) bytes.erase(0, store::kSegmentHeaderBytes);
      files[path] = std::move(bytes);
    }
    return files;
  }

  static void expect_alike(const Added& a, const Added& b) {
    const auto tables_a = tables_of(a.folder), tables_b = tables_of(b.folder);
    ASSERT_EQ(tables_a.size(), tables_b.size());
    for (const auto& [name, rows] : tables_a) EXPECT_TRUE(rows == tables_b.at(name)) << name;
    const auto files_a = files_of(a.folder), files_b = files_of(b.folder);
    for (const auto& [name, bytes] : files_a) {
      ASSERT_TRUE(files_b.contains(name)) << name;
      EXPECT_TRUE(bytes == files_b.at(name)) << name;
    }
    EXPECT_EQ(files_a.size(), files_b.size());
    EXPECT_EQ(a.report.added, b.report.added);
    EXPECT_EQ(a.report.unchanged, b.report.unchanged);
    EXPECT_EQ(a.report.passages, b.report.passages);
    EXPECT_EQ(a.report.encoded_tokens, b.report.encoded_tokens);
    EXPECT_EQ(a.report.kv_bytes, b.report.kv_bytes);
    EXPECT_EQ(a.report.index_only, b.report.index_only);
    const auto names = [](const std::vector<SourceIssue>& issues) {
      Rows rows;
      for (const SourceIssue& issue : issues) rows.push_back(issue.source + ": " + issue.reason);
      return rows;
    };
    EXPECT_EQ(names(a.report.skipped), names(b.report.skipped));
    EXPECT_EQ(names(a.report.failed), names(b.report.failed));
  }

  fs::path folder_;
  std::optional<index::Whitening> whitening_;
};

TEST_F(IngestTest, ThreadsStoreWhatOneStores) {
  write_documents(40);
  const Added one = add("one", 1);
  EXPECT_GT(one.report.added, 50);
  EXPECT_GT(one.report.kv_bytes, 0u);
  EXPECT_FALSE(one.report.skipped.empty());
  for (const int threads : {2, 5}) expect_alike(one, add("threads" + std::to_string(threads), threads));
}

TEST_F(IngestTest, SoItIsWithoutKvAndUnderACap) {
  write_documents(25);
  AddOptions index_only;
  index_only.index_only = true;
  expect_alike(add("one", 1, index_only), add("many", 4, index_only));
  const Added capped = add("capped", 1, {}, 8 << 20);
  EXPECT_TRUE(capped.report.index_only);
  EXPECT_GT(capped.report.kv_bytes, 0u);
  expect_alike(capped, add("capped-many", 4, {}, 8 << 20));
}

TEST_F(IngestTest, WhatAnEarlierRunLeftIsGoneOnWith) {
  write_documents(30);
  const Added whole = add("whole", 1);
  int commits = 0;
  AddOptions cancelling;
  cancelling.on_progress = [&](const AddProgress&) { return ++commits < 2; };
  {
    const Added part = add("part", 4, cancelling);
    EXPECT_TRUE(part.report.cancelled);
    EXPECT_GT(part.report.encoded_tokens, 0u);
    EXPECT_LT(part.report.encoded_tokens, whole.report.encoded_tokens);
  }
  {
    const Added rest = add("part", 4);
    EXPECT_FALSE(rest.report.cancelled);
    EXPECT_LT(rest.report.encoded_tokens, whole.report.encoded_tokens);
    EXPECT_EQ(rest.catalog->visible_passages({})->size(), whole.catalog->visible_passages({})->size());
    EXPECT_TRUE(rest.catalog->check()->problems.empty());
  }
  const Added again = add("part", 4);
  EXPECT_EQ(again.report.encoded_tokens, 0u);
  EXPECT_EQ(again.report.added, 0);
}

// Pages of two batches do not fit the pool: the second waits for those of the first.
TEST_F(IngestTest, SmallPoolsAreEnough) {
  write_documents(30);
  const Added one = add("one", 1);
  const uint64_t page = runner_->kv_shape().block_bytes();
  encoder_.reset();  // it holds pages of the pool
  scheduler_.reset();
  pool_ = store::PagePool::create(runner_->kv_shape(), 56 * page).value();
  scheduler_ = std::make_unique<engine::Scheduler>(*runner_, *pool_, tracer_, engine::SchedulerOptions{});
  passes_ = std::make_unique<engine::EnginePasses>(*runner_, *scheduler_);
  encoder_ = std::make_unique<recall::Encoder>(*passes_, *frame_);
  expect_alike(one, add("small", 4));
}

TEST_F(IngestTest, PlansCountWhatIsAdded) {
  write_documents(20);
  const Added added = add("planned", 3);
  for (const int threads : {1, 4}) {
    store::CatalogOptions options;
    options.folder = folder_ / ("empty" + std::to_string(threads));
    options.create = true;
    const auto catalog = store::Catalog::open(options);
    ASSERT_TRUE(catalog.ok());
    recall::Ingester ingester(**catalog, *passes_, *encoder_, *frame_, *whitening_,
                              {"print", kernels::KvType::kF32, 0, threads});
    AddOptions adding;
    adding.paths = {(folder_ / "docs").string()};
    const auto plan = ingester.plan(adding);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->sources_new, added.report.added);
    EXPECT_EQ(plan->tokens, added.report.encoded_tokens);
    EXPECT_EQ(plan->kv_bytes, added.report.kv_bytes);
    EXPECT_EQ(plan->sources_changed + plan->sources_unchanged, 0);
  }
}

}  // namespace
}  // namespace rhapsode
