// Links and chains in a memory: what they bring, what they never cross, and memories of version 1.
#include <gmock/gmock.h>

#include "engine/memory_fixture.h"
#include "engine/two_hop_fixture.h"
#include "support/memory_fixtures.h"

namespace rhapsode {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

class MemoryLinks : public MemoryTest {
 protected:
  static SearchOptions by_words(bool links, int limit = 5) {
    SearchOptions options;
    options.latent = false;  // a random model's signal is noise
    options.limit = limit;
    options.links.on = links;
    return options;
  }
  static std::vector<FoundPassage> search(Memory& memory, const std::string& question,
                                          const SearchOptions& options) {
    auto found = memory.search(question, options);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? std::move(*found) : std::vector<FoundPassage>{};
  }
  static std::vector<std::string> names(const std::vector<FoundPassage>& found) {
    std::vector<std::string> names;
    for (const FoundPassage& one : found) names.push_back(fs::path(one.passage.source).filename());
    return names;
  }
  void write_town() {
    write("bridge.md", "# Alder Bridge\n\nIt was drawn by Edda Morvane and opened in spring.\n");
    write("edda.md", "# Edda Morvane\n\nShe kept bees and was born in Skellig Harbour.\n");
    write("harbour.md", "# Skellig Harbour\n\nNine hundred people live there.\n");
    write("other.md", "# Quince\n\nA fruit that is boiled with sugar.\n");
  }
};

TEST_F(MemoryLinks, LinksBringWhatSharesAMentionAndSayThroughWhat) {
  write_town();
  const auto memory = open();
  add(*memory);
  const std::string question = "Who opened the Alder Bridge?";
  EXPECT_THAT(names(search(*memory, question, by_words(false, 1))), ElementsAre("bridge.md"));
  const auto found = search(*memory, question, by_words(true, 5));
  ASSERT_GE(found.size(), 2u);
  EXPECT_FALSE(found[0].link.has_value());
  EXPECT_EQ(names(found)[0], "bridge.md");
  SearchOptions one_seed = by_words(true, 3);
  one_seed.links.seeds = 1;
  const auto reached = search(*memory, "Alder Bridge", one_seed);
  EXPECT_THAT(names(reached), ElementsAre("bridge.md", "edda.md", "harbour.md"));
  ASSERT_TRUE(reached.size() == 3 && reached[1].link && reached[2].link);
  EXPECT_EQ(reached[1].link->mention, "edda morvane");
  EXPECT_EQ(reached[1].link->from, reached[0].passage.id);
  EXPECT_EQ(reached[2].link->mention, "skellig harbour");
  EXPECT_EQ(reached[2].link->from, reached[1].passage.id);
  // The same whenever it is asked.
  const auto again = search(*memory, "Alder Bridge", one_seed);
  ASSERT_EQ(again.size(), reached.size());
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].score, reached[i].score);
}

TEST_F(MemoryLinks, NoLinkCrossesAFilter) {
  write_town();
  const auto memory = open();
  add(*memory);
  SearchOptions options = by_words(true, 10);
  options.filter.sources = {(folder_ / "docs/bridge.md").string(), (folder_ / "docs/harbour.md").string()};
  EXPECT_THAT(names(search(*memory, "Alder Bridge", options)), ElementsAre("bridge.md"));
  ForgetOptions forget;
  forget.sources = {(folder_ / "docs/edda.md").string()};
  ASSERT_TRUE(memory->forget(forget).ok());
  EXPECT_THAT(names(search(*memory, "Alder Bridge", by_words(true, 10))),
              testing::Not(Contains("harbour.md")));
}

TEST_F(MemoryLinks, OptionsWithoutMeaningAreRefused) {
  write_town();
  const auto memory = open();
  add(*memory);
  SearchOptions options = by_words(true);
  options.links.follow = 1.0;
  EXPECT_EQ(memory->search("bridge", options).error().kind, ErrorKind::kInvalidArgument);
  options = by_words(false);
  options.chain.passages = 3;
  options.chain.candidates = 0;
  EXPECT_EQ(memory->search("bridge", options).error().kind, ErrorKind::kInvalidArgument);
}

// Case M12: both passages of a two-hop question stand among the first five, whatever the model says.
TEST_F(MemoryLinks, M12TwoHopQuestionsFindBothPassagesAmongNoise) {
  for (int i = 0; i < 200; ++i) write(fmt::format("noise/{:03}.md", i), noise(i));
  for (int i = 0; i < 20; ++i) {
    write(two_hop(i).first_name, two_hop(i).first);
    write(two_hop(i).second_name, two_hop(i).second);
  }
  const auto memory = open();
  AddOptions adding;
  adding.index_only = true;
  add(*memory, adding);
  int both = 0, without = 0;
  for (int i = 0; i < 20; ++i) {
    const TwoHop asked = two_hop(i);
    const auto holds_both = [&](const SearchOptions& options) {
      const auto found = search(*memory, asked.question, options);
      const auto holds = [&](const std::string& name) {
        return std::any_of(found.begin(), found.end(),
                           [&](const FoundPassage& one) { return one.passage.source.ends_with(name); });
      };
      return holds(asked.first_name) && holds(asked.second_name);
    };
    both += holds_both(by_words(true)) ? 1 : 0;
    without += holds_both(by_words(false)) ? 1 : 0;
  }
  EXPECT_GE(both, 18);
  EXPECT_LE(without, 2) << "the questions would not need links";
}

TEST_F(MemoryLinks, MemoriesOfVersion1AreTakenAlong) {
  ASSERT_TRUE(test::unpack_fixture("memory-v1.rhw", folder_ / "v1.rhw"));
  ASSERT_TRUE(test::unpack_memory(1, folder_ / "old"));
  MemoryOptions options;
  options.folder = folder_ / "old";
  options.whitening = folder_ / "v1.rhw";
  options.read_only = true;
  {
    // Read as it is: everything but links.
    const auto reader = Memory::open(*engine_, options);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_THAT(names(search(**reader, "lower canal", by_words(true))), ElementsAre("alder-bridge.md"));
  }
  options.read_only = false;
  const auto memory = Memory::open(*engine_, options);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_THAT(names(search(**memory, "lower canal", by_words(true))),
              ElementsAre("alder-bridge.md", "edda-morvane.md", "skellig-harbour.md"));
  EXPECT_THAT((*memory)->verify({1.0, 0})->problems, IsEmpty());
  EXPECT_EQ((*memory)->list({})->size(), 4u);
}

// Without time to make KV, nothing is chained, and the answer says how many candidates were left out.
TEST_F(MemoryLinks, ChainsOfColdPassagesKeepToTheirTime) {
  write_town();
  const auto memory = open();
  AddOptions adding;
  adding.index_only = true;
  add(*memory, adding);
  AskOptions asked = asking("Who opened the Alder Bridge?", ReadPolicy::kReuse);
  asked.abstain = false;
  asked.chain.passages = 3;
  asked.chain.deadline_ms = 0;
  const Answer cold = ask(*memory, asked);
  EXPECT_GT(cold.usage.cold_candidates, 0);
  for (const FoundPassage& found : cold.passages) EXPECT_FALSE(found.chained.has_value());
  asked.chain.deadline_ms = 60000;
  const Answer warm = ask(*memory, asked);
  EXPECT_EQ(warm.usage.cold_candidates, 0);
  EXPECT_TRUE(warm.passages.back().chained.has_value()) << "the best is read last";
}

// Two hops: the second one's query holds what the first one found, earlier passages are read again where they
// stood, and the trace says all of it.
TEST_F(MemoryLinks, HopsBuildOnOneAnotherAndKeepWhatWasRead) {
  for (int i = 0; i < 10; ++i) {
    write(two_hop(i).first_name, two_hop(i).first);
    write(two_hop(i).second_name, two_hop(i).second);
  }
  const auto memory = open();
  add(*memory);
  for (const ReadPolicy policy : {ReadPolicy::kReuse, ReadPolicy::kPrefix}) {
    AskOptions asked = asking(two_hop(3).question, policy);
    asked.abstain = false;
    asked.most_passages = 4;
    asked.hops = 2;
    const Answer answer = ask(*memory, asked);
    ASSERT_EQ(answer.hops.size(), 2u);
    EXPECT_EQ(answer.hops[0].query, asked.question);
    EXPECT_TRUE(answer.hops[1].query.starts_with(asked.question + " ")) << answer.hops[1].query;
    EXPECT_EQ(answer.hops[1].answer, answer.text);
    ASSERT_EQ(answer.passages.size(), 4u);
    // The first hop's two, then the second's, none twice.
    std::vector<int64_t> read, traced;
    for (const FoundPassage& passage : answer.passages) read.push_back(passage.passage.id);
    for (const Hop& hop : answer.hops) {
      EXPECT_EQ(hop.passages.size(), 2u);
      const size_t begin = traced.size();
      for (const FoundPassage& passage : hop.passages) traced.push_back(passage.passage.id);
      std::reverse(traced.begin() + static_cast<std::ptrdiff_t>(begin), traced.end());  // the best last
    }
    EXPECT_EQ(read, traced);
    int first_two = 0;
    for (int i = 0; i < 2; ++i) first_two += answer.passages[i].passage.tokens;
    EXPECT_GE(answer.usage.cached_tokens, first_two) << "the first hop's KV is kept";
    const Answer again = ask(*memory, asked);
    EXPECT_EQ(again.text, answer.text);
    EXPECT_EQ(again.hops[1].query, answer.hops[1].query);
  }
  AskOptions wrong = asking("Who?", ReadPolicy::kReuse);
  for (const int hops : {0, -1, 9}) {
    wrong.hops = hops;
    EXPECT_EQ(memory->ask(wrong).error().kind, ErrorKind::kInvalidArgument) << hops;
  }
}

TEST_F(MemoryLinks, HopsOverNothingFitAbstain) {
  write_town();
  const auto memory = open();
  add(*memory);
  AskOptions asked = asking("Which xylophonist tuned the zeppelin at Qwghlm?", ReadPolicy::kReuse);
  asked.hops = 2;
  const Answer answer = ask(*memory, asked);
  EXPECT_TRUE(answer.abstained);
  EXPECT_FALSE(answer.hops.empty());
}

// Case M13: two people of one name stay two: each question finds its own first, and a link between them
// merges nothing.
TEST_F(MemoryLinks, M13TwoPeopleOfOneNameStayTwo) {
  write("acme.md", "# Acme\n\nLi Wei, CFO of Acme, lives in Lisbon and collects stamps.\n");
  write("bolt.md", "# Bolt\n\nLi Wei, CFO of Bolt, lives in Oslo and sails.\n");
  const auto memory = open();
  add(*memory);
  for (const bool links : {false, true}) {
    for (const std::string firm : {"Acme", "Bolt"}) {
      const auto found =
          search(*memory, "Where does Li Wei, the CFO of " + firm + ", live?", by_words(links));
      ASSERT_EQ(found.size(), 2u);
      const bool acme = firm == "Acme";
      EXPECT_EQ(names(found)[0], acme ? "acme.md" : "bolt.md");
      EXPECT_NE(found[0].text.find(acme ? "Lisbon" : "Oslo"), std::string::npos);
      EXPECT_EQ(found[0].text.find(acme ? "Oslo" : "Lisbon"), std::string::npos);
      EXPECT_FALSE(found[0].link.has_value());
    }
  }
}

}  // namespace
}  // namespace rhapsode
