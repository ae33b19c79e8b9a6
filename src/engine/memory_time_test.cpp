// Time and users through a whole memory: supersession, as-of, scopes, facts. Answers are the tiny model's
// noise; what is found, refused and reported is not.
#include <gmock/gmock.h>

#include "engine/memory_fixture.h"

namespace rhapsode {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

template <typename T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result).value() : T{};
}

class MemoryTimeTest : public MemoryTest {
 protected:
  std::string path(const std::string& name) const { return (folder_ / "docs" / name).string(); }
  void add_one(Memory& memory, const std::string& name, const std::string& text, AddOptions options = {}) {
    write(name, text);
    options.paths = {path(name)};
    const AddReport report = add(memory, options);
    EXPECT_THAT(report.failed, IsEmpty());
  }
  static std::set<std::string> found(Memory& memory, const std::string& question,
                                     const SourceFilter& filter = {}) {
    SearchOptions options;
    options.filter = filter;
    options.limit = 50;
    const auto passages = memory.search(question, options);
    EXPECT_TRUE(passages.ok()) << (passages.ok() ? "" : passages.error().message);
    std::set<std::string> names;
    for (const FoundPassage& one : *passages) names.insert(fs::path(one.passage.source).filename().string());
    return names;
  }
  static SourceFilter of(const std::string& user) {
    SourceFilter filter;
    filter.user = user;
    return filter;
  }
  static FactStatement fact(const std::string& subject, const std::string& attribute,
                            const std::string& value, const std::string& told = "2026-01-01",
                            const std::string& user = "") {
    FactStatement statement;
    statement.subject = subject;
    statement.attribute = attribute;
    statement.value = value;
    statement.told = told;
    statement.user = user;
    statement.speaker = subject;
    statement.quote = subject + " says " + value;
    return statement;
  }
};

constexpr char kOldPep[] =
    "PEP: 333\nTitle: Gateway interface of old\nAuthor: A\nStatus: Superseded\nCreated: 07-Dec-2003\n"
    "Superseded-By: 3333\n\nGateway servers call the application.\n";
constexpr char kNewPep[] =
    "PEP: 3333\nTitle: Gateway interface anew\nAuthor: A\nStatus: Final\nCreated: 26-Sep-2010\n"
    "Replaces: 333\n\nGateway servers call the application with bytes.\n";

TEST_F(MemoryTimeTest, ASupersededPepIsLeftOutUnlessItIsNamed) {
  auto memory = open();
  add_one(*memory, "pep-0333.rst", kOldPep);
  EXPECT_THAT(memory->show(path("pep-0333.rst"))->problems, ElementsAre(HasSubstr("PEP 3333")));
  EXPECT_THAT(found(*memory, "gateway servers"), ElementsAre("pep-0333.rst"));
  add_one(*memory, "pep-3333.rst", kNewPep);
  EXPECT_THAT(found(*memory, "gateway servers"), ElementsAre("pep-3333.rst"));
  EXPECT_THAT(found(*memory, "What does PEP 333 say of servers?"),
              ElementsAre("pep-0333.rst", "pep-3333.rst"));
  EXPECT_THAT(found(*memory, "the gateway interface of old"), Contains("pep-0333.rst"));
  EXPECT_THAT(found(*memory, "PEP 33330"), Not(Contains("pep-0333.rst")));
  SourceFilter filter;
  filter.as_of = "2009-01-01";
  EXPECT_THAT(found(*memory, "gateway servers", filter), ElementsAre("pep-0333.rst"));
  filter.as_of = "2011-01-01";
  EXPECT_THAT(found(*memory, "gateway servers", filter), ElementsAre("pep-3333.rst"));
  filter.as_of.clear();
  filter.history = true;
  EXPECT_THAT(found(*memory, "gateway servers", filter), ElementsAre("pep-0333.rst", "pep-3333.rst"));
  const SourceInfo old = memory->show(path("pep-0333.rst"))->info;
  EXPECT_THAT(old.superseded_by, ElementsAre(path("pep-3333.rst")));
  EXPECT_EQ(old.identifier, "PEP 333");
  EXPECT_EQ(memory->list({})->size(), 2u);

  AskOptions named = asking("What does PEP 333 say of gateway servers?", ReadPolicy::kReuse);
  const Answer answer = ask(*memory, named);
  EXPECT_THAT(answer.notes, Contains("PEP 333 is superseded by PEP 3333."));
  bool read = false;
  for (const FoundPassage& passage : answer.passages) {
    if (passage.passage.source != path("pep-0333.rst")) continue;
    read = true;
    EXPECT_EQ(passage.passage.superseded_by, path("pep-3333.rst"));
  }
  EXPECT_TRUE(read);
  named.heed_times = false;
  EXPECT_THAT(ask(*memory, named).notes, IsEmpty());

  ForgetOptions forget;
  forget.sources = {path("pep-3333.rst")};
  ASSERT_TRUE(memory->forget(forget).ok());
  EXPECT_THAT(found(*memory, "gateway servers"), ElementsAre("pep-0333.rst"));
  EXPECT_THAT(memory->show(path("pep-0333.rst"))->info.superseded_by, IsEmpty());
}

// The reader is told what holds now, not the next step of a chain, and of what the question names although
// nothing of it is read.
TEST_F(MemoryTimeTest, OfAChainOfSupersessionsTheLastIsTold) {
  auto memory = open();
  const auto pep = [](int number, const std::string& title, const std::string& heads) {
    return fmt::format(
        "PEP: {}\nTitle: {}\nAuthor: A\nStatus: Final\nCreated: 07-Dec-2003\n{}\n\nLamps of {}.\n", number,
        title, heads, number);
  };
  add_one(*memory, "pep-0011.rst", pep(11, "Lamps of the first kind", "Superseded-By: 22"));
  add_one(*memory, "pep-0022.rst", pep(22, "Lanterns", "Replaces: 11\nSuperseded-By: 33"));
  add_one(*memory, "pep-0033.rst", pep(33, "Torches", "Replaces: 22"));
  AskOptions asked = asking("What is in force in place of \"Lamps of the first kind\"?", ReadPolicy::kReuse);
  asked.most_passages = 1;
  const Answer answer = ask(*memory, asked);
  EXPECT_THAT(answer.notes, Contains("PEP 11 is superseded by PEP 33."));
  EXPECT_THAT(answer.notes, testing::Each(testing::Not(HasSubstr("PEP 22"))));
  EXPECT_EQ(memory->show(path("pep-0011.rst"))->info.superseded_by,
            std::vector<std::string>{path("pep-0022.rst")});
}

TEST_F(MemoryTimeTest, SupersedingByHandAndByFrontMatter) {
  auto memory = open();
  add_one(*memory, "plan.md", "---\ntitle: Plan\ndate: 2024-01-01\n---\n\nThe lamp is red.\n");
  AddOptions by_hand;
  by_hand.supersedes = {path("plan.md"), "nowhere.md"};
  write("next.md", "The lamp is green.\n");
  by_hand.paths = {path("next.md")};
  const AddReport report = add(*memory, by_hand);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0].reason, HasSubstr("nowhere.md"));
  EXPECT_THAT(found(*memory, "lamp"), ElementsAre("next.md"));
  add_one(*memory, "last.md", "---\nsupersedes:\n  - next.md\n---\n\nThe lamp is blue.\n");
  EXPECT_THAT(found(*memory, "lamp"), ElementsAre("last.md"));
  // Against each other: neither is hidden, and the report says so.
  AddOptions back;
  back.supersedes = {path("last.md")};
  back.paths = {path("next.md")};
  EXPECT_THAT(add(*memory, back).warnings[0].reason, HasSubstr("supersede each other"));
  EXPECT_THAT(found(*memory, "lamp"), ElementsAre("last.md", "next.md"));
}

TEST_F(MemoryTimeTest, DatesInAQuestionPreferStatementsThatHoldThen) {
  auto memory = open();
  add_one(*memory, "a.md", "Ada was head of the lamp house from 1990 to 1995.\n");
  add_one(*memory, "b.md", "Bea was head of the lamp house from 2004 to 2009.\n");
  AskOptions options = asking("Who was head of the lamp house in 2006?", ReadPolicy::kReuse);
  const Answer answer = ask(*memory, options);
  EXPECT_EQ(answer.as_of, "2006");
  EXPECT_THAT(answer.notes, Contains(HasSubstr("2006")));
  EXPECT_EQ(answer.passages.size(), 2u);  // a preference, no filter
  SearchOptions searching;
  searching.latent = false;  // the tiny model's own signal is noise
  const auto best = [&](const std::string& question) {
    return must(memory->search(question, searching)).front().text;
  };
  EXPECT_THAT(best("Who was head of the lamp house in 2006?"), HasSubstr("Bea"));
  EXPECT_THAT(best("Who was head of the lamp house in 1992?"), HasSubstr("Ada"));
  searching.filter.as_of = "2030-01-01";
  EXPECT_THAT(best("Who was head of the lamp house in 1992?"), HasSubstr("Ada"));
  // What is asked for by hand goes before the question's own words.
  options.filter.as_of = "2030-01-01";
  EXPECT_EQ(ask(*memory, options).as_of, "2030-01-01");
}

// Case M11: two users, the same topic, canaries; every reading path, and no user at all.
class M11 : public MemoryTimeTest {
 protected:
  void add_for(Memory& memory, const std::string& user) {
    AddOptions options;
    options.user = user;
    add_one(memory, "own.md", "The lamp topic canary of " + user + ".\n", options);
    add_one(memory, "same.md", "The lamp topic is the same for both.\n", options);
    const std::vector statements = {fact("Kim", "secret", "canary of " + user, "2026-01-01", user)};
    ASSERT_TRUE(memory.record(statements).ok());
  }
  std::unique_ptr<Memory> of_two() {
    auto memory = open();
    add_one(*memory, "all.md", "The lamp topic is open to all.\n");
    add_for(*memory, "ana");
    add_for(*memory, "ben");
    return memory;
  }
};

TEST_F(M11, NoPathShowsAnotherUsersSources) {
  auto memory = of_two();
  memory = open(/*read_only=*/true);
  const auto dump = [&](const SourceFilter& filter) {
    std::string text;
    SearchOptions searching;
    searching.filter = filter;
    searching.limit = 100;
    for (const FoundPassage& one : must(memory->search("lamp topic canary secret of Kim", searching))) {
      text += one.text + one.passage.source + one.passage.header;
    }
    AskOptions options = asking("What was the lamp topic canary before 2030?", ReadPolicy::kReuse);
    options.filter = filter;
    options.most_passages = 50;
    const Answer answer = ask(*memory, options);
    for (const FoundPassage& one : answer.passages) text += one.text + one.passage.header;
    for (const SourceInfo& one : must(memory->list(filter))) text += one.source + one.title;
    for (const FactInfo& one : must(memory->facts(filter))) text += one.source + one.value + one.quote;
    return text;
  };
  for (const bool history : {false, true}) {
    SourceFilter ana = of("ana");
    ana.history = history;
    const std::string seen = dump(ana);
    EXPECT_THAT(seen, HasSubstr("canary of ana"));
    EXPECT_THAT(seen, HasSubstr("open to all"));
    EXPECT_THAT(seen, Not(HasSubstr("ben")));
  }
}

TEST_F(M11, NamesIdsAndNoUserAtAllLeadNowhere) {
  auto memory = of_two();
  memory = open(/*read_only=*/true);
  const std::string bens = "@ben/" + path("own.md");
  EXPECT_EQ(memory->show(bens, of("ana")).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(memory->text(bens, of("ana")).error().kind, ErrorKind::kNotFound);
  EXPECT_TRUE(memory->text(bens, of("ben")).ok());
  // By id, too.
  const auto stored = memory->show(bens, of("ben"));
  AskOptions by_id = asking("lamp", ReadPolicy::kReuse);
  by_id.passages = {stored->passages.front().id};
  by_id.filter.user = "ana";
  EXPECT_EQ(memory->ask(by_id).error().kind, ErrorKind::kNotFound);
  // Nobody in particular sees nothing.
  const auto refused = [](const auto& result) {
    return !result.ok() && result.error().kind == ErrorKind::kPermission;
  };
  EXPECT_TRUE(refused(memory->search("lamp", {})));
  EXPECT_TRUE(refused(memory->ask(asking("lamp", ReadPolicy::kReuse))));
  EXPECT_TRUE(refused(memory->list({})));
  EXPECT_TRUE(refused(memory->show(path("all.md"))));
  EXPECT_TRUE(refused(memory->text(path("all.md"))));
  EXPECT_TRUE(refused(memory->facts({})));
  EXPECT_TRUE(refused(memory->stats()));
  EXPECT_TRUE(refused(memory->verify({})));
  EXPECT_TRUE(refused(memory->export_to(folder_ / "out")));
  EXPECT_TRUE(memory->stats(true).ok());
  memory = open();
  ForgetOptions forget;
  forget.sources = {bens};
  forget.user = "ana";
  EXPECT_FALSE(memory->forget(forget).ok());
  forget.user = "ben";
  EXPECT_TRUE(memory->forget(forget).ok());
}

// Case M2: twenty values of one attribute and five other facts: the current search finds the newest value and
// no superseded one; history finds all twenty.
TEST_F(MemoryTimeTest, M2OnlyTheNewestValueIsFoundAndHistoryHasAll) {
  auto memory = open();
  std::vector<FactStatement> statements;
  for (int i = 0; i < 20; ++i) {
    statements.push_back(
        fact("Ana", "phone number", fmt::format("555-{:04}", 100 + i), fmt::format("20{:02}-01-01", i)));
  }
  for (int i = 0; i < 5; ++i) statements.push_back(fact("Ana", "item " + std::to_string(i), "thing"));
  // Told in disorder.
  std::reverse(statements.begin(), statements.end());
  const auto report = memory->record(statements);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->recorded, 25);
  SearchOptions options;
  options.limit = 5;
  options.latent = false;  // the tiny model's own signal is noise
  const auto now = memory->search("What is Ana's phone number?", options);
  ASSERT_TRUE(now.ok());
  EXPECT_THAT(now->front().text, HasSubstr("555-0119"));
  for (size_t i = 1; i < now->size(); ++i) EXPECT_THAT((*now)[i].text, Not(HasSubstr("555-")));
  options.limit = 50;
  options.filter.history = true;
  size_t values = 0;
  for (const FoundPassage& one : must(memory->search("What is Ana's phone number?", options))) {
    values += one.text.find("555-") != std::string::npos;
  }
  EXPECT_EQ(values, 20u);
  EXPECT_EQ(memory->list({})->size(), 6u);
}

// Case M9: after two moves, "before that?" sees the earlier homes, with their dates in the headers.
TEST_F(MemoryTimeTest, M9TheHomeBeforeIsFoundWhenTheQuestionAsksForIt) {
  auto memory = open();
  ASSERT_TRUE(memory
                  ->record(std::vector{fact("Ana", "home", "Oslo", "2019-01-01"),
                                       fact("Ana", "home", "Rome", "2022-03-01"),
                                       fact("Ana", "home", "Lisbon", "2024-07-01")})
                  .ok());
  SearchOptions options;
  const auto texts = [&](const std::string& question) {
    std::vector<std::string> texts;
    for (const FoundPassage& one : must(memory->search(question, options))) {
      texts.push_back(one.passage.header + " " + one.text);
    }
    std::sort(texts.begin(), texts.end());
    return texts;
  };
  EXPECT_THAT(texts("What is Ana's home?"), ElementsAre(HasSubstr("Lisbon")));
  EXPECT_THAT(texts("What was Ana's home before that?"),
              ElementsAre(testing::AllOf(HasSubstr("2019-01-01"), HasSubstr("Oslo")),
                          testing::AllOf(HasSubstr("2022-03-01"), HasSubstr("Rome")),
                          testing::AllOf(HasSubstr("2024-07-01"), HasSubstr("Lisbon"))));
  options.filter.as_of = "2023-01-01";
  EXPECT_THAT(texts("What is Ana's home?"), ElementsAre(HasSubstr("Rome")));
  const auto detail = memory->show("facts/ana/home");
  ASSERT_TRUE(detail.ok()) << detail.error().message;
  EXPECT_EQ(detail->versions.size(), 3u);
}

}  // namespace
}  // namespace rhapsode
