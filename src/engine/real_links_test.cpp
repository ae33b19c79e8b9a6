// Links with a real model: what finding by the model's own signal makes of them. Slow tier.
#include <gtest/gtest.h>

#include <fstream>

#include "engine/two_hop_fixture.h"
#include "rhapsode/memory.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"

namespace rhapsode {
namespace {

namespace fs = std::filesystem;

class RealLinks : public test::TemporaryFolder {
 protected:
  void SetUp() override {
    RH_REQUIRE_MODEL(path, "qwen2.5-coder-0.5b");
    EngineOptions options;
    options.model = path;
    options.kv_cap_bytes = 1ull << 30;
    auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(*engine);
    MemoryOptions memory;
    memory.folder = folder_ / "memory";
    memory.create = true;
    auto opened = Memory::open(*engine_, memory);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    memory_ = std::move(*opened);
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / "docs" / name).parent_path());
    std::ofstream(folder_ / "docs" / name) << text;
  }
  void add() {
    AddOptions options;
    options.paths = {(folder_ / "docs").string()};
    options.index_only = true;
    ASSERT_TRUE(memory_->add(options).ok());
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;
};

// Case M12: 200 documents of noise, 20 questions of two hops; both passages among the first five of 18.
TEST_F(RealLinks, M12TwoHopQuestionsFindBothPassagesAmongNoise) {
  for (int i = 0; i < 200; ++i) write(fmt::format("noise/{:03}.md", i), noise(i));
  for (int i = 0; i < 20; ++i) {
    write(two_hop(i).first_name, two_hop(i).first);
    write(two_hop(i).second_name, two_hop(i).second);
  }
  add();
  int both = 0;
  for (int i = 0; i < 20; ++i) {
    const TwoHop asked = two_hop(i);
    const auto found = memory_->search(asked.question, {});
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_LE(found->size(), 5u);
    int held = 0;
    for (const FoundPassage& one : *found) {
      held +=
          one.passage.source.ends_with(asked.first_name) || one.passage.source.ends_with(asked.second_name);
    }
    both += held == 2 ? 1 : 0;
  }
  EXPECT_GE(both, 18);
}

// Case M13: two people of one name: each question finds its own first, is answered from it, and hops merge
// nothing.
TEST_F(RealLinks, M13TwoPeopleOfOneNameStayTwo) {
  write("acme.md", "# Acme\n\nLi Wei, CFO of Acme, lives in Lisbon and collects stamps.\n");
  write("bolt.md", "# Bolt\n\nLi Wei, CFO of Bolt, lives in Oslo and sails.\n");
  add();
  for (const bool acme : {true, false}) {
    const std::string own = acme ? "acme.md" : "bolt.md";
    AskOptions asked;
    asked.question = fmt::format("In which city does Li Wei, the CFO of {}, live?", acme ? "Acme" : "Bolt");
    asked.sampling.temperature = 0;
    asked.most_passages = 1;
    const auto answer = memory_->ask(asked);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_TRUE(answer->passages.at(0).passage.source.ends_with(own));
    EXPECT_NE(answer->text.find(acme ? "Lisbon" : "Oslo"), std::string::npos) << answer->text;
    EXPECT_EQ(answer->text.find(acme ? "Oslo" : "Lisbon"), std::string::npos) << answer->text;
    asked.most_passages = 2;
    asked.hops = 2;
    const auto hopped = memory_->ask(asked);
    ASSERT_TRUE(hopped.ok()) << hopped.error().message;
    ASSERT_EQ(hopped->hops.size(), 2u);
    EXPECT_TRUE(hopped->hops[0].passages.at(0).passage.source.ends_with(own));
    EXPECT_FALSE(hopped->hops[1].passages.at(0).passage.source.ends_with(own));
  }
}

}  // namespace
}  // namespace rhapsode
