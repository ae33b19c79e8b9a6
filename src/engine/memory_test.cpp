// What a memory keeps: adding, updating, forgetting, healing.
#include <fmt/format.h>

#include <future>

#include "engine/memory_fixture.h"
#include "kernels/page.h"

namespace rhapsode {
namespace {

TEST_F(MemoryTest, ASecondAddOfAnUnchangedTreeEvaluatesNothing) {
  write("a.txt", paragraphs(30, "lamp"));
  write("b/c.md", "# Boats\n\n" + paragraphs(5, "boat"));
  auto memory = open();
  const AddReport first = add(*memory);
  EXPECT_EQ(first.added, 2);
  EXPECT_GT(first.encoded_tokens, 0u);
  EXPECT_GE(first.evaluated_tokens, first.encoded_tokens);
  const AddReport second = add(*memory);
  EXPECT_EQ(second.added, 0);
  EXPECT_EQ(second.unchanged, 2);
  EXPECT_EQ(second.evaluated_tokens, 0u);
}

TEST_F(MemoryTest, EqualFilesAreEncodedOnceAndOutliveOneAnother) {
  write("a.txt", paragraphs(10, "lamp"));
  auto memory = open();
  add(*memory);
  write("b.txt", paragraphs(10, "lamp"));
  const AddReport report = add(*memory);
  EXPECT_EQ(report.added, 1);
  EXPECT_EQ(report.encoded_tokens, 0u);
  EXPECT_EQ(memory->stats()->contents, 1);
  ForgetOptions forget;
  forget.sources = {(folder_ / "docs/b.txt").string()};
  ASSERT_TRUE(memory->forget(forget).ok());
  EXPECT_EQ(memory->search("lamp", {})->size(), 1u);
}

// A memory above its threshold finds by an index that follows adding and forgetting; with so few passages the
// answers are those of the scan.
TEST_F(MemoryTest, AnIndexFollowsAddingAndForgetting) {
  write("a.txt", paragraphs(10, "lamp"));
  write("b.txt", paragraphs(10, "door"));
  MemoryOptions indexed = options();
  indexed.index_chunks = 1;
  const auto sources_of = [](Memory& memory) {
    const std::vector<FoundPassage> found = memory.search("lamp", {}).value();
    std::vector<std::string> sources;
    for (const FoundPassage& one : found) sources.push_back(one.passage.source);
    return sources;
  };
  std::vector<std::string> scanned;
  {
    auto memory = open();
    add(*memory);
    EXPECT_FALSE(memory->stats()->approximate);
    scanned = sources_of(*memory);
    EXPECT_FALSE(scanned.empty());
  }
  auto memory = std::move(*Memory::open(*engine_, indexed));
  add(*memory);
  const MemoryStats stats = *memory->stats();
  EXPECT_TRUE(stats.approximate);
  EXPECT_EQ(stats.index_problem, "");
  EXPECT_EQ(stats.indexed_passages, stats.passages);
  EXPECT_GT(stats.index_bytes, 0u);
  EXPECT_EQ(sources_of(*memory), scanned);
  ForgetOptions forget;
  forget.sources = {(folder_ / "docs/b.txt").string()};
  ASSERT_TRUE(memory->forget(forget).ok());
  EXPECT_EQ(memory->stats()->indexed_passages, memory->stats()->passages);
  memory.reset();
  EXPECT_TRUE(Memory::look(options(true)).value()->stats()->approximate);  // the threshold is kept
}

// The first passage behind the prefix is where it was encoded: reuse of it alone is exact.
TEST_F(MemoryTest, KvIsMadeFromTextOnFirstReadAndKeptForTheNextProcess) {
  write("a.txt", paragraphs(6, "lamp"));
  {
    auto memory = open();
    AddOptions options;
    options.index_only = true;
    add(*memory, options);
    EXPECT_EQ(memory->stats()->kv_bytes, 0u);
  }
  {
    auto memory = open(/*read_only=*/true);
    const Answer made = ask(*memory, asking("Where is the lamp?", ReadPolicy::kReuse));
    EXPECT_EQ(made.usage.cached_tokens + made.usage.evaluated_tokens, made.usage.prompt_tokens);
    EXPECT_GE(made.usage.evaluated_tokens, made.usage.memory_tokens_read);
    EXPECT_EQ(memory->stats()->kv_misses, 1u);
    EXPECT_GT(memory->stats()->kv_bytes, 0u);
  }
  auto memory = open(/*read_only=*/true);
  const Answer answer = ask(*memory, asking("Where is the lamp?", ReadPolicy::kReuse));
  EXPECT_EQ(memory->stats()->kv_hits, 1u);
  EXPECT_EQ(memory->stats()->kv_misses, 0u);
  EXPECT_EQ(answer.usage.cached_tokens + answer.usage.evaluated_tokens, answer.usage.prompt_tokens);
}

// The engine waits within on_text until the other thread is through.
TEST_F(MemoryTest, OthersReadTheMemoryWhileAnAnswerIsToldAndWritersWaitForIt) {
  write("a.txt", paragraphs(6, "lamp"));
  auto memory = open();
  add(*memory);
  std::future<void> writer;
  AskOptions options = asking("Where is the lamp?", ReadPolicy::kReuse);
  options.on_text = [&](std::string_view) {
    if (writer.valid()) return true;
    std::async(std::launch::async, [&] {
      EXPECT_EQ(memory->list({})->size(), 1u);
      EXPECT_EQ(memory->stats()->passages, 1u);
    }).get();
    writer = std::async(std::launch::async, [&] {
      ForgetOptions forget;
      forget.sources = {(folder_ / "docs/a.txt").string()};
      EXPECT_TRUE(memory->forget(forget).ok());
    });
    EXPECT_EQ(writer.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    return true;
  };
  EXPECT_EQ(ask(*memory, options).passages.size(), 1u);
  ASSERT_TRUE(writer.valid());
  writer.get();
  EXPECT_TRUE(memory->list({})->empty());
}

TEST_F(MemoryTest, SeveralAnswersAreToldAtOnceAndEachIsItsOwn) {
  write("a.txt", paragraphs(6, "lamp"));
  write("b.txt", paragraphs(6, "boat"));
  auto memory = open();
  add(*memory);
  const auto alone = [&](const char* question) {
    return ask(*memory, asking(question, ReadPolicy::kReuse)).text;
  };
  const std::string lamp = alone("Where is the lamp?"), boat = alone("Where is the boat?");
  std::vector<std::future<void>> asks;
  for (int i = 0; i < 8; ++i) {
    asks.push_back(std::async(std::launch::async, [&, i] {
      EXPECT_EQ(alone(i % 2 ? "Where is the lamp?" : "Where is the boat?"), i % 2 ? lamp : boat);
    }));
  }
  for (std::future<void>& one : asks) one.get();
}

TEST_F(MemoryTest, AnswersWhosePagesDoNotFitBesideOneAnotherWaitForOneAnother) {
  constexpr int kEach = 6;
  constexpr int kPageTokens = kernels::kPageTokens;
  for (int i = 0; i < 2 * kEach; ++i) {
    write(fmt::format("d{:02}.txt", i), paragraphs(10, fmt::format("lamp{}", i)));
  }
  auto memory = open();
  add(*memory);
  std::array<AskOptions, 2> asks;
  const std::vector<SourceInfo> sources = *memory->list({});
  for (int i = 0; i < 2 * kEach; ++i) {
    asks[i / kEach].passages.push_back(memory->show(sources[i].source)->passages.front().id);
  }
  std::array<std::string, 2> alone;
  int pages = 0;
  for (int set = 0; set < 2; ++set) {
    const std::vector<int64_t> passages = asks[set].passages;
    asks[set] = asking("Where is the lamp?", set == 0 ? ReadPolicy::kReuse : ReadPolicy::kBlend);
    asks[set].passages = passages;
    const Answer answer = ask(*memory, asks[set]);
    alone[set] = answer.text;
    int needed = (answer.usage.prompt_tokens + asks[set].max_tokens) / kPageTokens + 8;
    for (const FoundPassage& read : answer.passages) needed += read.passage.tokens % kPageTokens != 0;
    pages = std::max(pages, needed);
  }
  memory.reset();
  EngineOptions cramped;
  RH_REQUIRE_TINY_MODEL(path, tiny_model());
  cramped.model = path;
  cramped.threads = 2;
  cramped.cache_folder = folder_ / "home";
  cramped.kv_cap_bytes = engine_->model().kv_bytes_per_token * kPageTokens * (pages * 3 / 2);
  engine_ = Engine::open(cramped).value();
  memory = open();
  std::vector<std::future<void>> told;
  for (int i = 0; i < 10; ++i) {
    told.push_back(
        std::async(std::launch::async, [&, i] { EXPECT_EQ(ask(*memory, asks[i % 2]).text, alone[i % 2]); }));
  }
  for (std::future<void>& one : told) one.get();
}

TEST_F(MemoryTest, AnUpdateReplacesAndKeepsHistoryForAsOf) {
  write("a.txt", paragraphs(40, "lamp"));
  auto memory = open();
  add(*memory);
  write("a.txt", "One boat is here.\n");
  const AddReport report = add(*memory);
  EXPECT_EQ(report.updated, 1);
  const auto detail = memory->show((folder_ / "docs/a.txt").string());
  ASSERT_TRUE(detail.ok()) << detail.error().message;
  EXPECT_EQ(detail->versions.size(), 2u);
  EXPECT_EQ(detail->passages.size(), 1u);
  EXPECT_EQ(*memory->text((folder_ / "docs/a.txt").string()), "One boat is here.\n");
}

// Where passages end depends on the name in their headers; a copy is read as its original is cut.
TEST_F(MemoryTest, ACopyUnderAMuchLongerNameIsReadAsTheOriginal) {
  write("a.txt", paragraphs(60, "lamp"));
  auto memory = open();
  AddOptions relative;
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "docs");
  relative.paths = {"a.txt"};
  add(*memory, relative);
  const std::string far =
      "a-very-long-folder-name-that-takes-many-tokens/and-another-one-of-the-same-length/a.txt";
  write(far, paragraphs(60, "lamp"));
  relative.paths = {far};
  const AddReport report = add(*memory, relative);
  fs::current_path(before);
  EXPECT_EQ(report.added, 1);
  EXPECT_EQ(report.encoded_tokens, 0u);
  EXPECT_EQ(memory->show(far)->passages.size(), memory->show("a.txt")->passages.size());
}

TEST_F(MemoryTest, SyncRemovesWhatIsGoneAndASubsetRemovesNothing) {
  write("a.txt", paragraphs(5, "lamp"));
  write("b.txt", paragraphs(5, "boat"));
  auto memory = open();
  add(*memory);
  AddOptions one;
  one.paths = {(folder_ / "docs/a.txt").string()};
  one.sync = true;
  add(*memory, one);
  EXPECT_EQ(memory->list({})->size(), 2u) << "case I15";
  fs::remove(folder_ / "docs/b.txt");
  add(*memory);
  EXPECT_EQ(memory->list({})->size(), 2u);
  AddOptions sync;
  sync.sync = true;
  std::vector<std::string> asked;
  sync.confirm_removal = [&](const std::vector<std::string>& names) {
    asked = names;
    return true;
  };
  EXPECT_EQ(add(*memory, sync).removed, 1);
  EXPECT_EQ(asked.size(), 1u);
  EXPECT_EQ(memory->list({})->size(), 1u);
}

TEST_F(MemoryTest, ForgettingLeavesNoByteInAnyFile) {
  const std::string canary = "zyxcanary4711";
  write("secret.txt", "The code of the vault is " + canary + " and nothing else.\n");
  write("other.txt", paragraphs(5, "boat"));
  auto memory = open();
  add(*memory);
  ForgetOptions forget;
  forget.sources = {(folder_ / "docs/secret.txt").string()};
  const auto report = memory->forget(forget);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->sources.size(), 1u);
  EXPECT_EQ(memory->list({})->size(), 1u);
  const std::vector<FoundPassage> hits = memory->search("vault " + canary, {}).value();
  for (const FoundPassage& passage : hits) {
    EXPECT_EQ(passage.text.find(canary), std::string::npos);
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "memory")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    EXPECT_EQ(bytes.find(canary), std::string::npos) << entry.path();
  }
}

TEST_F(MemoryTest, CitationsAreByteExactRangesOfTheStoredText) {
  for (int i = 0; i < 4; ++i)
    write("d" + std::to_string(i) + ".txt", "Grüße, " + paragraphs(12, "lämp" + std::to_string(i)));
  auto memory = open();
  add(*memory);
  AskOptions options = asking("Where is the lämp2?", ReadPolicy::kReuse);
  options.cite = true;
  options.max_tokens = 12;
  const Answer answer = ask(*memory, options);
  for (const Citation& citation : answer.citations) {
    const std::string text = *memory->text(citation.source);
    EXPECT_EQ(text.substr(citation.start_byte, citation.end_byte - citation.start_byte), citation.quote);
    EXPECT_EQ(citation.page, 0);
  }
  EXPECT_GT(answer.usage.probe_tokens, 0);
}

TEST_F(MemoryTest, OneBadSourceDoesNotStopTheOthers) {
  write("a.txt", paragraphs(5, "lamp"));
  write("empty.txt", "");
  write("blank.txt", " \n\t\n");
  write("binary.bin", std::string("\x7f"
                                  "ELF\0\0\0\1",
                                  8));
  write("z.txt", paragraphs(5, "boat"));
  auto memory = open();
  const AddReport report = add(*memory);
  EXPECT_EQ(report.added, 2);
  EXPECT_EQ(report.skipped.size() + report.failed.size(), 3u);
}

TEST_F(MemoryTest, AnEmptyMemoryAndAFilterWithoutHitAnswerWithAFlag) {
  auto memory = open();
  const Answer answer = ask(*memory, asking("What is music?", ReadPolicy::kReuse));
  EXPECT_TRUE(answer.abstained);
  EXPECT_TRUE(answer.citations.empty());
  EXPECT_TRUE(answer.passages.empty());
}

TEST_F(MemoryTest, AnotherModelIsRefusedUntilTheMemoryIsEncodedAgainForIt) {
  write("a.txt", paragraphs(6, "lamp"));
  write("b.md", "# Boats\n\n" + paragraphs(3, "boat"));
  {
    auto memory = open();
    add(*memory);
  }
  RH_REQUIRE_TINY_MODEL(path, "llama-f32");
  EngineOptions other_options;
  other_options.model = path;
  other_options.threads = 2;
  other_options.kv_cap_bytes = 64 << 20;
  other_options.cache_folder = folder_ / "home";
  auto other = Engine::open(other_options);
  ASSERT_TRUE(other.ok()) << other.error().message;
  MemoryOptions options;
  options.folder = folder_ / "memory";
  options.whitening =
      random_whitening(**other, folder_ / "other.rhw", (*other)->model().heads * (*other)->model().head_dim);
  const auto refused = Memory::open(**other, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--reencode"), std::string::npos) << refused.error().message;
  options.reencode = true;
  auto memory = Memory::open(**other, options);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_EQ((*memory)->list({})->size(), 2u);
  EXPECT_FALSE((*memory)->search("lamp", {})->empty());
  const Answer answer = ask(**memory, asking("Where is the lamp?", ReadPolicy::kReuse));
  EXPECT_EQ(answer.usage.cached_tokens + answer.usage.evaluated_tokens, answer.usage.prompt_tokens);
  EXPECT_EQ(add(**memory).evaluated_tokens, 0u) << "the tree is unchanged for the new model too";
  memory->reset();
  options.reencode = false;
  EXPECT_TRUE(Memory::open(**other, options).ok());
  EXPECT_FALSE(Memory::open(*engine_, this->options()).ok());
}

TEST_F(MemoryTest, AQuestionThatNothingFitsIsNotAnswered) {
  write("a.txt", paragraphs(6, "lamp"));
  auto memory = open();
  add(*memory);
  AskOptions options = asking("What is music?", ReadPolicy::kReuse);
  options.cite = true;
  const Answer answer = ask(*memory, options);
  EXPECT_TRUE(answer.abstained);
  EXPECT_TRUE(answer.citations.empty());
  EXPECT_EQ(answer.usage.generated_tokens, 0);
  EXPECT_FALSE(answer.passages.empty()) << "what was looked at, with its scores";
  options.abstain = false;
  EXPECT_FALSE(ask(*memory, options).abstained);
  AskOptions small = asking("Where is the lamp?", ReadPolicy::kReuse);
  small.budget_tokens = 3;
  EXPECT_EQ(memory->ask(small).error().kind, ErrorKind::kTooLarge);
  AskOptions follow_up = asking("Why?", ReadPolicy::kReuse);
  follow_up.history = {{"user", "Where is the lamp?"}, {"assistant", "In the hall."}};
  EXPECT_GT(ask(*memory, follow_up).usage.generated_tokens, 0);
}

TEST_F(MemoryTest, AFollowUpQuestionReusesTheConversationBeforeIt) {
  write("a.txt", paragraphs(6, "lamp"));
  auto memory = open();
  add(*memory);
  AskOptions first = asking("Where is the lamp?", ReadPolicy::kReuse);
  const Answer one = ask(*memory, first);
  AskOptions second = asking("And the house?", ReadPolicy::kReuse);
  second.history = {{"user", first.question}, {"assistant", one.text}};
  const Answer two = ask(*memory, second);
  EXPECT_GT(two.usage.prompt_tokens, one.usage.prompt_tokens);
  EXPECT_GT(two.usage.cached_tokens, one.usage.cached_tokens)
      << "the first turn was kept behind its passages";
}

TEST_F(MemoryTest, VerifyFindsAFlippedByteAndReadingHealsIt) {
  write("a.txt", paragraphs(6, "lamp"));
  {
    auto memory = open();
    add(*memory);
    EXPECT_TRUE(memory->verify({})->problems.empty());
  }
  fs::path segment;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "memory/kv")) {
    if (entry.is_regular_file()) segment = entry.path();
  }
  ASSERT_FALSE(segment.empty());
  {
    std::fstream file(segment, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 600);
    file.put('\x55');
    file.put('\x2a');
  }
  auto memory = open();
  EXPECT_FALSE(memory->verify({})->problems.empty());
  const Answer healed = ask(*memory, asking("Where is the lamp?", ReadPolicy::kReuse));
  const Answer full = ask(*memory, asking("Where is the lamp?", ReadPolicy::kFull));
  EXPECT_EQ(healed.text, full.text);
  EXPECT_EQ(memory->stats()->quarantined, 1u);
}

// The verdict of the model decides what `auto` does.
TEST_F(MemoryTest, WhatIsStoredCanBeLookedAtWithoutTheModel) {
  write("a.txt", paragraphs(6, "lamp"));
  open()->add([&] {
    AddOptions options;
    options.paths = {(folder_ / "docs").string()};
    return options;
  }());
  MemoryOptions where;
  where.folder = folder_ / "memory";
  auto memory = Memory::look(where);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_EQ((*memory)->list({})->size(), 1u);
  EXPECT_EQ((*memory)->stats()->sources, 1);
  EXPECT_GT((*memory)->stats()->kv_bytes, 0u);
  EXPECT_EQ((*memory)->show((folder_ / "docs/a.txt").string())->passages.size(), 1u);
  EXPECT_EQ((*memory)->search("lamp", {}).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ((*memory)->verify({}).error().kind, ErrorKind::kInvalidArgument);
  where.folder = folder_ / "nowhere";
  EXPECT_FALSE(Memory::look(where).ok());
}

TEST_F(MemoryTest, ExportAndImportKeepEverything) {
  write("a.txt", paragraphs(6, "lamp"));
  auto memory = open();
  add(*memory);
  const Status exported = memory->export_to(folder_ / "all.rhm");
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  ASSERT_TRUE(Memory::import_from(folder_ / "all.rhm", folder_ / "copy").ok());
  EXPECT_FALSE(Memory::import_from(folder_ / "all.rhm", folder_ / "copy").ok()) << "it holds something";
  MemoryOptions copy_options = options();
  copy_options.folder = folder_ / "copy";
  auto copy = Memory::open(*engine_, copy_options);
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(add(**copy).evaluated_tokens, 0u);
  EXPECT_EQ((*copy)->stats()->kv_bytes, memory->stats()->kv_bytes);
}

}  // namespace
}  // namespace rhapsode
