// Facts from messages to records, in a memory over the tiny model: what is current, what is history, what it
// costs.
#include <gmock/gmock.h>

#include "engine/memory_fixture.h"
#include "rhapsode/facts.h"

namespace rhapsode {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class FactsTest : public MemoryTest {
 protected:
  RememberReport say(Memory& memory, const std::string& text, const std::string& stamp = "2026-03-08",
                     const std::string& user = "ana") {
    const std::string speaker = user == "ana" ? "Ana" : "Ben";
    auto report = remember(memory, {text, speaker, stamp, fmt::format("m{}", ++messages_), user});
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report.ok() ? *report : RememberReport{};
  }
  static std::map<std::string, std::string> current(Memory& memory, const std::string& user = "ana") {
    SourceFilter mine;
    mine.user = user;
    const auto facts = memory.facts(mine);
    EXPECT_TRUE(facts.ok()) << facts.error().message;
    std::map<std::string, std::string> values;
    for (const FactInfo& fact : *facts) values[fact.subject + "|" + fact.attribute] = fact.value;
    return values;
  }
  static std::vector<FactInfo> history(Memory& memory, const std::string& user = "ana") {
    SourceFilter ever;
    ever.user = user;
    ever.history = true;
    auto facts = memory.facts(ever);
    return facts.ok() ? *facts : std::vector<FactInfo>();
  }

  int messages_ = 0;
};

// Case M1: the update takes, the store is not empty, history keeps both.
TEST_F(FactsTest, M1AnUpdateReplacesAndHistoryKeepsBoth) {
  auto memory = open();
  say(*memory, "Ana's favourite tea is oolong");
  const RememberReport report = say(*memory, "Ana now dislikes oolong, prefers mint");
  EXPECT_EQ(report.report.superseded, 1);
  EXPECT_EQ(report.generations, 0);
  EXPECT_EQ(current(*memory), (std::map<std::string, std::string>{{"Ana|favourite tea", "mint"}}));
  ASSERT_THAT(history(*memory), SizeIs(2));
  SearchOptions options;
  options.filter.user = "ana";
  const auto found = memory->search("What is Ana's favourite tea?", options);
  ASSERT_TRUE(found.ok());
  ASSERT_THAT(*found, SizeIs(1));
  EXPECT_EQ(found->front().text, "Ana's favourite tea is mint.\n");
}

// Case M3: what is forgotten is found by no path, also after reopening.
TEST_F(FactsTest, M3AForgottenFactIsFoundByNoPath) {
  {
    auto memory = open();
    say(*memory, "My phone number is 555-0134.");
    say(*memory, "My phone number is 555-0199.");
    ForgetOptions forget;
    forget.sources = {"@ana/facts/ana/phone-number"};
    forget.user = "ana";
    const auto report = memory->forget(forget);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->passages, 2);
  }
  auto memory = open(/*read_only=*/true);
  SourceFilter ever;
  ever.all_users = ever.history = true;
  EXPECT_THAT(memory->list(ever).value(), IsEmpty());
  EXPECT_THAT(memory->facts(ever).value(), IsEmpty());
  SearchOptions options;
  options.filter = ever;
  EXPECT_THAT(memory->search("555-0134 phone number", options).value(), IsEmpty());
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "memory")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(bytes.find("555-0134"), std::string::npos) << entry.path();
  }
}

// Case M9: two moves: what was before that is there, one id, linked versions.
TEST_F(FactsTest, M9TwoMovesKeepOneIdAndLinkedVersions) {
  auto memory = open();
  say(*memory, "I live in Oslo.", "2019-05-01");
  say(*memory, "I moved to Rome last month.", "2022-04-10");
  say(*memory, "Yesterday I moved to Lisbon.", "2024-07-02");
  const auto facts = history(*memory);
  ASSERT_THAT(facts, SizeIs(3));
  for (const FactInfo& fact : facts) EXPECT_EQ(fact.source, "@ana/facts/ana/home");
  EXPECT_EQ(facts[1].event_time, "2022-03");
  EXPECT_EQ(facts[2].event_time, "2024-07-01");
  EXPECT_THAT(facts[0].valid_to, HasSubstr("2022-03-01"));
  EXPECT_THAT(facts[1].valid_to, HasSubstr("2024-07-01"));
  EXPECT_EQ(facts[2].message, "m3");
  EXPECT_EQ(current(*memory)["Ana|home"], "Lisbon");
  SearchOptions options;
  options.filter.user = "ana";
  EXPECT_THAT(memory->search("Where did I live before that?", options).value(), SizeIs(3));
}

TEST_F(FactsTest, AMessageToldTwiceIsRecordedOnceAndUsersKeepTheirOwn) {
  auto memory = open();
  const HeardMessage message{"My dog is called Rex.", "Ana", "2026-01-01", "id-1", "ana"};
  EXPECT_EQ(remember(*memory, message)->report.recorded, 1);
  const auto again = remember(*memory, message);
  EXPECT_EQ(again->report.recorded, 0);
  EXPECT_EQ(again->report.known, 1);
  say(*memory, "My dog is called Fido.", "2026-01-02", "ben");
  EXPECT_EQ(current(*memory, "ana"), (std::map<std::string, std::string>{{"Ana|dog", "Rex"}}));
  EXPECT_EQ(current(*memory, "ben"), (std::map<std::string, std::string>{{"Ben|dog", "Fido"}}));
  // Confirmed by another message: no new value.
  EXPECT_EQ(say(*memory, "My dog is called Rex.").report.superseded, 0);
  EXPECT_EQ(memory->show("@ana/facts/ana/dog", {.user = "ana"})->versions.size(), 1u);
  // What nobody recorded cannot be taken back, and says so.
  EXPECT_THAT(say(*memory, "Forget my cat.").report.problems, SizeIs(1));
}

// Made-up things that fifty facts are about, with what replaces them.
struct MadeUp {
  std::string attribute;
  std::string value;
  std::string corrected;
};

std::vector<MadeUp> made_up_facts(uint32_t seed) {
  const std::vector<std::string> things = {
      "tea",  "dog", "street", "boat", "doctor", "lawyer", "piano",  "hotel",   "garden", "book",
      "song", "pen", "lamp",   "bank", "gym",    "club",   "cheese", "bicycle", "watch",  "camera"};
  const std::vector<std::string> kinds = {"favourite", "oldest", "summer"};
  std::vector<std::string> attributes;
  for (const std::string& kind : kinds) {
    for (const std::string& thing : things) attributes.push_back(kind + " " + thing);
  }
  std::mt19937 random(seed);
  std::shuffle(attributes.begin(), attributes.end(), random);
  const auto name = [&] {
    std::string word(1, static_cast<char>('A' + random() % 26));
    for (int i = 0; i < 6; ++i) word += (i % 2 == 0 ? "aeiou"[random() % 5] : "bdfgklmnprstv"[random() % 13]);
    return word;
  };
  std::vector<MadeUp> facts;
  for (int i = 0; i < 50; ++i) facts.push_back({attributes[static_cast<size_t>(i)], name(), name()});
  return facts;
}

// Fifty facts stated in different words, twenty of them corrected and ten others retracted: at least 45 of
// the 50 stand as they should, and nothing retracted is told as current.
TEST_F(FactsTest, FiftyStatedTwentyCorrectedTenRetracted) {
  auto memory = open();
  const std::vector<MadeUp> facts = made_up_facts(11);
  const auto worded = [](const std::vector<std::string>& forms, size_t i, const MadeUp& fact,
                         const std::string& value) {
    std::string text = forms[i % forms.size()];
    text.replace(text.find("ATTRIBUTE"), 9, fact.attribute);
    if (const size_t at = text.find("VALUE"); at != std::string::npos) text.replace(at, 5, value);
    if (const size_t at = text.find("OLD"); at != std::string::npos) text.replace(at, 3, fact.value);
    return text;
  };
  const std::vector<std::string> stating = {
      "My ATTRIBUTE is VALUE.", "By the way, my ATTRIBUTE is called VALUE.", "Ana's ATTRIBUTE is VALUE",
      "Thanks! My ATTRIBUTE is VALUE, and I like it.", "Note that my ATTRIBUTE is now VALUE."};
  const std::vector<std::string> correcting = {
      "Actually, my ATTRIBUTE is VALUE, not OLD.", "Sorry, I meant my ATTRIBUTE is VALUE.",
      "My ATTRIBUTE has changed to VALUE.", "No, my ATTRIBUTE is VALUE."};
  const std::vector<std::string> retracting = {
      "Please forget my ATTRIBUTE.", "Forget that my ATTRIBUTE is OLD.", "My ATTRIBUTE is no longer OLD.",
      "My ATTRIBUTE isn't OLD anymore."};
  for (size_t i = 0; i < 50; ++i) {
    say(*memory, worded(stating, i, facts[i], facts[i].value), fmt::format("2026-01-{:02}", 1 + i / 2));
    say(*memory, "What do you think of that? I would like to see more.");
  }
  for (size_t i = 0; i < 20; ++i)
    say(*memory, worded(correcting, i, facts[i], facts[i].corrected), "2026-02-01");
  for (size_t i = 20; i < 30; ++i) say(*memory, worded(retracting, i, facts[i], ""), "2026-02-02");
  const auto values = current(*memory);
  int right = 0, retracted_told = 0;
  for (size_t i = 0; i < 50; ++i) {
    const auto found = values.find("Ana|" + facts[i].attribute);
    const std::string told = found == values.end() ? "" : found->second;
    const std::string expected = i < 20 ? facts[i].corrected : i < 30 ? "" : facts[i].value;
    right += told == expected;
    retracted_told += i >= 20 && i < 30 && !told.empty();
  }
  EXPECT_GE(right, 45);
  EXPECT_EQ(retracted_told, 0);
  EXPECT_THAT(history(*memory), SizeIs(80));
}

// Case M14: text and facts become searchable without one model generation. (The case's megabyte in a minute
// is for a real model: a tiny one's vocabulary makes a token of nearly every byte.)
TEST_F(FactsTest, M14TextIsSearchableWithoutAnyGeneration) {
  write("big.txt", paragraphs(120, "lamp") + "The canary sits in the quince tree.\n");
  auto memory = open();
  AddOptions options;
  options.index_only = true;
  const AddReport report = add(*memory, options);
  EXPECT_EQ(report.added, 1);
  // Only what is encoded runs through the model, the prefix once: no token is generated.
  EXPECT_LT(report.evaluated_tokens, report.encoded_tokens + 1024);
  EXPECT_EQ(say(*memory, "My dog is called Rex.").generations, 0);
  SearchOptions searching;
  searching.latent = false;
  searching.filter.user = "ana";
  const auto found = memory->search("quince canary", searching);
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(found->front().text, HasSubstr("quince"));
}

}  // namespace
}  // namespace rhapsode
