#include "eval/task.h"

#include <gmock/gmock.h>

#include "eval/built_in_tasks.h"
#include "eval/readers.h"

namespace rhapsode::eval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTask = R"toml(
name = "mine"
title = "My task"
instruction = "Answer."
metrics = ["em", "f1"]
contexts = ["full", "closed", "reuse"]
unit = "passage"
recall_at = [5, 1]
distractors = 3
seed = 9
[[data]]
group = "a"
reader = "nq-oracle"
path = "nq.jsonl"
last = 10
)toml";

std::string without(std::string toml, const std::string& line) {
  const size_t at = toml.find(line);
  return toml.erase(at, line.size());
}
std::string replaced(std::string toml, const std::string& from, const std::string& to) {
  return toml.replace(toml.find(from), from.size(), to);
}

TEST(Task, ReadsEveryKey) {
  const auto task = parse_task(kTask, "mine.toml");
  ASSERT_TRUE(task.ok()) << task.error().message;
  EXPECT_EQ(task->name, "mine");
  EXPECT_THAT(task->contexts, ElementsAre(Context::kClosed, Context::kFull, Context::kReuse));
  EXPECT_EQ(task->default_contexts, task->contexts);
  EXPECT_EQ(task->unit, RankUnit::kPassage);
  EXPECT_THAT(task->recall_at, ElementsAre(1, 5));
  EXPECT_EQ(task->distractors, 3);
  EXPECT_EQ(task->seed, 9u);
  ASSERT_EQ(task->data.size(), 1u);
  EXPECT_EQ(task->data[0].options.at("last"), "10");
  EXPECT_EQ(task->sha256.size(), 64u);
}

TEST(Task, ComplaintsNameFileKeyAndWhatIsAllowed) {
  const std::pair<std::string, std::string> cases[] = {
      {without(kTask, "name = \"mine\""), "'name' is missing"},
      {replaced(kTask, "seed = 9", "kind = \"chat\""), "'kind' must be one of questions, replay, talk"},
      {replaced(kTask, "seed = 9", "baseline = \"half\""), "'baseline' must be a context"},
      {replaced(kTask, "\"em\"", "\"bleu\""), "'bleu' is none"},
      {replaced(kTask, "\"full\"", "\"half\""), "'half' is no context"},
      {replaced(kTask, "\"nq-oracle\"", "\"nq\""), "must be one of musique"},
      {replaced(kTask, "\"nq.jsonl\"", "\"../nq.jsonl\""), "below the data folder"},
      {replaced(kTask, "\"nq.jsonl\"", "\"/nq.jsonl\""), "below the data folder"},
      {replaced(kTask, "seed = 9", "sead = 9"), "'sead' is no key"},
      {replaced(kTask, "[5, 1]", "[0]"), "must lie in [1, 1000]"},
      {replaced(kTask, "\"passage\"", "\"word\""), "document or passage"},
      {"name = ", "line 1"},
  };
  for (const auto& [toml, expected] : cases) {
    const auto task = parse_task(toml, "mine.toml");
    ASSERT_FALSE(task.ok()) << expected;
    EXPECT_THAT(task.error().message, HasSubstr("mine.toml"));
    EXPECT_THAT(task.error().message, HasSubstr(expected));
    EXPECT_EQ(task.error().kind, ErrorKind::kInvalidArgument);
  }
}

TEST(Task, EveryBuiltInOneIsValidAndCalledAsItsFile) {
  EXPECT_GE(built_in_tasks().size(), 8u);
  for (const BuiltInTask& built_in : built_in_tasks()) {
    const auto task = find_task(std::string(built_in.name));
    ASSERT_TRUE(task.ok()) << task.error().message;
    EXPECT_EQ(task->name, built_in.name);
  }
}

TEST(Task, AnUnknownNameIsAnsweredWithThoseThereAre) {
  const auto task = find_task("multihop");
  ASSERT_FALSE(task.ok());
  EXPECT_THAT(task.error().message, HasSubstr("multihop-dev"));
}

TEST(Contexts, RunInAFixedOrderAndOnce) {
  const auto contexts = parse_contexts("reuse,full,reuse,closed");
  ASSERT_TRUE(contexts.ok());
  EXPECT_THAT(*contexts, ElementsAre(Context::kClosed, Context::kFull, Context::kReuse));
  EXPECT_FALSE(parse_contexts("").ok());
  EXPECT_FALSE(parse_contexts("full,").ok());
}

}  // namespace
}  // namespace rhapsode::eval
