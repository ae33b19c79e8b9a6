// How a memory reads passages: policies, verdicts, self-checks.
#include <cmath>

#include "engine/memory_fixture.h"
#include "model/file_hash.h"
#include "model/verdict_file.h"
#include "store/catalog.h"
#include "store/kv_codec.h"
#include "store/page_pool.h"

namespace rhapsode {
namespace {

TEST_F(MemoryTest, ReuseReadsStoredKvAndEvaluatesNoDocumentToken) {
  for (int i = 0; i < 6; ++i)
    write("d" + std::to_string(i) + ".txt", paragraphs(12, "lamp" + std::to_string(i)));
  auto memory = open();
  add(*memory);
  const Answer first = ask(*memory, asking("Where is lamp3?", ReadPolicy::kReuse));
  EXPECT_EQ(first.policy, ReadPolicy::kReuse);
  EXPECT_EQ(first.usage.cached_tokens + first.usage.evaluated_tokens, first.usage.prompt_tokens);
  EXPECT_GT(first.usage.memory_tokens_read, 0);
  EXPECT_GE(first.usage.cached_tokens, first.usage.memory_tokens_read);
  const Answer full = ask(*memory, asking("Where is lamp3?", ReadPolicy::kFull));
  EXPECT_EQ(full.usage.cached_tokens, 0);
  EXPECT_EQ(full.usage.evaluated_tokens, full.usage.prompt_tokens);
  EXPECT_EQ(full.usage.prompt_tokens, first.usage.prompt_tokens);
  ask(*memory, asking("Where is lamp3?", ReadPolicy::kPrefix));
  const Answer again = ask(*memory, asking("Where is lamp3?", ReadPolicy::kPrefix));
  EXPECT_EQ(again.usage.evaluated_tokens, 1);
}

TEST_F(MemoryTest, ReuseOfOnePassageAnswersAsFullAttentionDoes) {
  write("a.txt", paragraphs(6, "lamp"));
  auto memory = open();
  add(*memory);
  for (const char* question : {"Where is the lamp?", "Who stands in the hall?", "Which number is it?"}) {
    const Answer full = ask(*memory, asking(question, ReadPolicy::kFull));
    const Answer reuse = ask(*memory, asking(question, ReadPolicy::kReuse));
    ASSERT_EQ(full.passages.size(), 1u);
    EXPECT_EQ(full.text, reuse.text) << question;
  }
}

// Stored KV whose checksums are right and whose values are not: only encoding again can tell.
void falsify_kv(const fs::path& folder, const Engine& engine, const std::string& fingerprint,
                int64_t passage) {
  auto catalog = store::Catalog::open({.folder = folder});
  ASSERT_TRUE(catalog.ok()) << catalog.error().message;
  const auto extent = (*catalog)->kv_extent(fingerprint, passage);
  ASSERT_TRUE(extent.ok() && *extent);
  std::vector<std::byte> bytes((*extent)->extent.bytes);
  ASSERT_TRUE((*catalog)->read_kv(**extent, bytes).ok());
  const ModelInfo model = engine.model();
  const kernels::KvShape shape{model.layers, model.kv_heads, model.head_dim, kernels::KvType::kF16};
  const auto rows = (*catalog)->passages(std::span(&passage, 1), {});
  ASSERT_TRUE(rows.ok());
  const int tokens = rows->front().tokens;
  const auto pool = store::PagePool::create(shape, 64 << 20).value();
  std::vector<store::PagePin> pins;
  std::vector<kernels::Page*> pages;
  std::vector<const kernels::Page*> read;
  for (int i = 0; i < (tokens + 63) / 64; ++i) {
    pins.push_back(pool->allocate());
    pages.push_back(pins.back().get());
    read.push_back(pins.back().get());
  }
  ASSERT_TRUE(store::decode_kv(shape, bytes, pages, tokens).ok());
  const auto head = kernels::page_head(shape, *pages[0], 1, 0);
  for (int i = 0; i < 64 * shape.head_dim; ++i) head.v[2 * i + 1] ^= std::byte{0x80};  // signs
  const auto changed = store::encode_kv(shape, shape.type, read, tokens);
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  const store::KvRecord record{passage, *changed};
  ASSERT_TRUE((*catalog)->put_kv(fingerprint, std::span(&record, 1)).ok());
}

TEST_F(MemoryTest, ASelfCheckFindsKvThatIsNotThePassagesAndSetsItAside) {
  write("a.txt", paragraphs(6, "lamp"));
  std::string fingerprint;
  int64_t passage = 0;
  AskOptions asked = asking("Where is the lamp?", ReadPolicy::kReuse);
  asked.self_check = 1;
  std::string right;
  {
    auto memory = open();
    add(*memory);
    fingerprint = memory->stats()->fingerprint;
    const Answer sound = ask(*memory, asked);
    passage = sound.self_check.passage;
    EXPECT_EQ(passage, sound.passages[0].passage.id);
    EXPECT_EQ(sound.self_check.problem, "");
    EXPECT_GT(sound.usage.probe_tokens, sound.passages[0].passage.tokens);
    right = sound.text;
    asked.self_check = 0;
    EXPECT_EQ(ask(*memory, asked).self_check.passage, 0);
  }
  falsify_kv(folder_ / "memory", *engine_, fingerprint, passage);
  auto memory = open();
  asked.self_check = 1;
  const Answer wrong = ask(*memory, asked);
  EXPECT_NE(wrong.self_check.problem, "");
  EXPECT_GT(wrong.self_check.difference, 0.1);
  EXPECT_EQ(memory->stats()->quarantined, 1u);
  const Answer healed = ask(*memory, asked);
  EXPECT_EQ(healed.self_check.problem, "");
  EXPECT_EQ(healed.text, right);
}

TEST_F(MemoryTest, SelfChecksTakeTheirShareOfReads) {
  for (int i = 0; i < 4; ++i)
    write("d" + std::to_string(i) + ".txt", paragraphs(4, "lamp" + std::to_string(i)));
  auto memory = open();
  add(*memory);
  AskOptions asked = asking("Where is lamp2?", ReadPolicy::kReuse);
  asked.self_check = 0.1;
  int checked = 0;
  for (int i = 0; i < 10; ++i) checked += ask(*memory, asked).self_check.passage != 0;
  EXPECT_EQ(checked, 4);  // of 40 reads, wherever counting began
}

TEST_F(MemoryTest, MemoriesThatAreAskedOnceTakeTheirShareOfSelfChecks) {
  write("a.txt", paragraphs(3, "lamp"));
  add(*open());
  AskOptions asked = asking("Where is the lamp?", ReadPolicy::kReuse);
  asked.self_check = 0.5;
  asked.max_tokens = 1;
  int checked = 0;
  constexpr int kMemories = 30;
  for (int i = 0; i < kMemories; ++i) checked += ask(*open(), asked).self_check.passage != 0;
  // Each by the toss of a coin: all alike once in half a billion runs.
  EXPECT_GT(checked, 0);
  EXPECT_LT(checked, kMemories);
}

// Every number format of stored KV is moved to other positions, and stays as close as where it was made.
TEST_F(MemoryTest, G5EveryNumberFormatIsMoved) {
  for (int i = 0; i < 4; ++i) {
    write("d" + std::to_string(i) + ".txt", paragraphs(6, "lamp" + std::to_string(i)));
  }
  std::vector<std::vector<float>> exact;
  const std::pair<KvStorage, const char*> formats[] = {
      {KvStorage::kF32, "f32"}, {KvStorage::kF16, "f16"}, {KvStorage::kBF16, "bf16"}, {KvStorage::kI8, "i8"}};
  for (const auto& [stored, name] : formats) {
    EngineOptions pages;
    pages.model = test::tiny_model_path(kTinyModel);
    pages.kv_cap_bytes = 64 << 20;
    pages.kv_type = stored;
    auto engine = Engine::open(pages);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    MemoryOptions options = this->options();
    options.folder = folder_ / name;
    auto memory = Memory::open(**engine, options);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    add(**memory);
    const AskOptions asked = asking("Where is lamp3?", ReadPolicy::kReuse);
    int moved = 0;
    for (const PassageReading& reading : ask(**memory, asked).readings) moved += reading.approximate_tokens;
    EXPECT_GT(moved, 0) << name;
    const auto scored = (*memory)->score(asked, "in the hall of the house");
    ASSERT_TRUE(scored.ok()) << scored.error().message;
    if (exact.empty()) exact = scored->logits;
    ASSERT_EQ(scored->logits.size(), exact.size());
    for (size_t t = 0; t < exact.size(); ++t) {
      float furthest = 0;
      for (size_t v = 0; v < exact[t].size(); ++v) {
        furthest = std::max(furthest, std::abs(exact[t][v] - scored->logits[t][v]));
      }
      EXPECT_LT(furthest, 0.1f) << name << ", token " << t;
    }
  }
}

TEST_F(MemoryTest, TheVerdictOnInt8HoldsForMemoriesThatStoreIt) {
  write("a.txt", paragraphs(6, "lamp"));
  const fs::path home = folder_ / "home";
  const auto hash = model::known_hash(test::tiny_model_path(kTinyModel), home);
  ASSERT_TRUE(hash.ok()) << hash.error().message;
  model::Verdict verdict;
  verdict.model_sha256 = *hash;
  model::MeasuredReading row;
  row.policy = "reuse";
  row.stored = "i8";  // as the flag --stored-kv calls it
  verdict.readings = {row};
  ASSERT_TRUE(model::save_verdict(verdict, model::verdict_path(home, *hash)).ok());
  MemoryOptions int8 = options();
  int8.stored_kv = KvStorage::kI8;
  auto memory = Memory::open(*engine_, int8);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  add(**memory);
  EXPECT_EQ(ask(**memory, asking("Where is the lamp?", ReadPolicy::kAuto)).policy, ReadPolicy::kReuse);
}

TEST_F(MemoryTest, BlendCountsWhatItEvaluatesAgainAndAllOfItIsFullAttention) {
  for (int i = 0; i < 4; ++i)
    write("d" + std::to_string(i) + ".txt", paragraphs(6, "lamp" + std::to_string(i)));
  auto memory = open();
  add(*memory);
  for (const BlendSelector selector : kBlendSelectors) {
    AskOptions asked = asking("Where is lamp3?", ReadPolicy::kBlend);
    asked.blend = {selector, 0.25, 1};
    const Answer answer = ask(*memory, asked);
    const int read = answer.usage.memory_tokens_read;
    EXPECT_EQ(answer.usage.recomputed_tokens, std::lround(0.25 * read)) << to_string(selector);
    EXPECT_EQ(answer.usage.prompt_tokens,
              answer.usage.cached_tokens + answer.usage.evaluated_tokens - answer.usage.recomputed_tokens);
    EXPECT_GE(answer.usage.charged_tokens, answer.usage.recomputed_tokens);
    ASSERT_EQ(answer.readings.size(), answer.passages.size());
    int tokens = 0, recomputed = 0;
    for (size_t i = 0; i < answer.readings.size(); ++i) {
      const PassageReading& reading = answer.readings[i];
      const int all = reading.exact_tokens + reading.approximate_tokens + reading.recomputed_tokens;
      EXPECT_EQ(reading.miss, "");
      EXPECT_EQ(reading.exact_tokens > 0, i == 0);  // the first one stands where it was encoded
      tokens += all;
      recomputed += reading.recomputed_tokens;
    }
    EXPECT_EQ(tokens, read);
    EXPECT_EQ(recomputed, answer.usage.recomputed_tokens);
    asked.blend.share = 1;
    EXPECT_EQ(ask(*memory, asked).text, ask(*memory, asking("Where is lamp3?", ReadPolicy::kFull)).text);
  }
  AskOptions parallel = asking("Where is lamp3?", ReadPolicy::kBlend);
  parallel.order = ReadOrder::kParallel;
  EXPECT_EQ(memory->ask(parallel).error().kind, ErrorKind::kInvalidArgument);
}

TEST_F(MemoryTest, ReorderFindsMoreOfAPromptCachedThanPrefixAndLosesNoPassage) {
  for (int i = 0; i < 4; ++i)
    write("d" + std::to_string(i) + ".txt", paragraphs(8, "lamp" + std::to_string(i)));
  auto memory = open();
  add(*memory);
  std::vector<int64_t> ids;
  const auto listed = memory->search("lamp", {});
  ASSERT_TRUE(listed.ok());
  for (const FoundPassage& found : *listed) ids.push_back(found.passage.id);
  ASSERT_EQ(ids.size(), 4u);
  AskOptions asked = asking("Where is lamp1?", ReadPolicy::kPrefix);
  asked.passages = ids;
  const Answer first = ask(*memory, asked);
  std::rotate(asked.passages.begin(), asked.passages.begin() + 1, asked.passages.end());
  asked.policy = ReadPolicy::kReorder;
  const Answer again = ask(*memory, asked);
  EXPECT_EQ(again.usage.evaluated_tokens, 1);  // the same order was found
  EXPECT_EQ(again.usage.charged_tokens, 0);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(again.passages[i].passage.id, ids[i]);
  // One passage less: the known beginning still leads.
  asked.passages = {ids[3], ids[1], ids[0]};
  const Answer fewer = ask(*memory, asked);
  EXPECT_EQ(fewer.passages[0].passage.id, ids[0]);
  EXPECT_EQ(fewer.passages[1].passage.id, ids[1]);
  EXPECT_EQ(fewer.passages[2].passage.id, ids[3]);
  EXPECT_EQ(fewer.readings[1].miss, "");
  EXPECT_NE(fewer.readings[2].miss, "");
  // Prefix takes passages as they come.
  asked.policy = ReadPolicy::kPrefix;
  const Answer prefix = ask(*memory, asked);
  EXPECT_EQ(prefix.passages[0].passage.id, ids[3]);
  EXPECT_NE(prefix.readings[0].miss, "");
  EXPECT_GT(prefix.usage.evaluated_tokens, fewer.usage.evaluated_tokens);
}

TEST_F(MemoryTest, AutoReadsAsTheVerdictAllows) {
  for (int i = 0; i < 3; ++i)
    write("d" + std::to_string(i) + ".txt", paragraphs(6, "lamp" + std::to_string(i)));
  const fs::path home = folder_ / "home";
  const auto hash = model::known_hash(test::tiny_model_path(kTinyModel), home);
  ASSERT_TRUE(hash.ok()) << hash.error().message;
  const auto policy_with = [&](double max_kl) {
    auto memory = open();
    add(*memory);
    AskOptions asked = asking("Where is lamp1?", ReadPolicy::kAuto);
    asked.max_kl = max_kl;
    return ask(*memory, asked);
  };
  const Answer unmeasured = policy_with(0.5);
  EXPECT_EQ(unmeasured.policy, ReadPolicy::kPrefix);
  EXPECT_NE(unmeasured.policy_reason.find("has not been measured"), std::string::npos);
  model::Verdict verdict;
  verdict.model_sha256 = *hash;
  model::MeasuredReading reuse, blend;
  reuse.policy = "reuse";
  reuse.stored = blend.stored = "f16";
  reuse.kl = 0.4;
  blend.policy = "blend";
  blend.selector = "first";
  blend.share = blend.charged = 0.2;
  blend.kl = 0.1;
  verdict.readings = {reuse, blend};
  ASSERT_TRUE(model::save_verdict(verdict, model::verdict_path(home, *hash)).ok());
  EXPECT_EQ(policy_with(0.5).policy, ReadPolicy::kReuse);
  const Answer closer = policy_with(0.2);
  EXPECT_EQ(closer.policy, ReadPolicy::kBlend);
  EXPECT_GT(closer.usage.recomputed_tokens, 0);
  // By the verdict's selector: `first` runs nothing to choose.
  EXPECT_EQ(closer.usage.charged_tokens, closer.usage.recomputed_tokens);
  EXPECT_EQ(policy_with(0.05).policy, ReadPolicy::kPrefix);
  // Passages that share positions are reused or not, never blended.
  auto memory = open();
  AskOptions parallel = asking("Where is lamp1?", ReadPolicy::kAuto);
  parallel.order = ReadOrder::kParallel;
  EXPECT_EQ(ask(*memory, parallel).policy, ReadPolicy::kReuse);
  parallel.max_kl = 0.2;
  EXPECT_EQ(memory->ask(parallel).error().kind, ErrorKind::kInvalidArgument);
}

// The number of a judge, by hand: the question's likelihood behind the passage and behind nothing.
TEST_F(MemoryTest, JudgedPassagesCarryWhatTheyAddToTheQuestionsLikelihood) {
  for (int i = 0; i < 6; ++i)
    write("d" + std::to_string(i) + ".txt", paragraphs(5, "lamp" + std::to_string(i)));
  auto memory = open();
  add(*memory);
  SearchOptions options;
  options.limit = 3;
  const auto found = memory->search("Where is lamp4?", options);
  ASSERT_TRUE(found.ok());
  for (const FoundPassage& passage : *found) EXPECT_FALSE(passage.judged);
  options.judge.candidates = 6;
  const auto judged = memory->search("Where is lamp4?", options);
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  ASSERT_EQ(judged->size(), 3u);
  double score = 1e9;
  for (const FoundPassage& passage : *judged) {
    ASSERT_TRUE(passage.judged);
    EXPECT_TRUE(std::isfinite(*passage.judged));
    EXPECT_LE(passage.score, score);
    score = passage.score;
  }
  const auto again = memory->search("Where is lamp4?", options);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*again)[i].passage.id, (*judged)[i].passage.id);
}

TEST_F(MemoryTest, WhatCannotBeReadInTimeIsNotJudgedAndStillFound) {
  for (int i = 0; i < 6; ++i)
    write("d" + std::to_string(i) + ".txt", paragraphs(5, "lamp" + std::to_string(i)));
  auto memory = open();
  AddOptions index_only;
  index_only.index_only = true;
  add(*memory, index_only);
  SearchOptions options;
  options.limit = 6;
  options.judge = {6, 0};
  const auto found = memory->search("Where is lamp4?", options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->size(), 6u);
  for (const FoundPassage& passage : *found) EXPECT_FALSE(passage.judged);
  options.judge.deadline_ms = 60000;
  const auto read = memory->search("Where is lamp4?", options);
  for (const FoundPassage& passage : *read) EXPECT_TRUE(passage.judged);
  options.judge.candidates = -1;
  EXPECT_EQ(memory->search("Where is lamp4?", options).error().kind, ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace rhapsode
