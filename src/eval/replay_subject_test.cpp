// Replaying over a tiny random model: which messages are found is noise; that each is there once, is not.
#include "eval/replay_subject.h"

#include "engine/memory_fixture.h"

namespace rhapsode::eval {
namespace {

class ReplaySubjectTest : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    if (IsSkipped()) return;
    random_whitening(*engine_, folder_ / "tiny.rhw", embedding());
    for (const char* name : {"one", "two"}) {
      SpokenConversation talk{name, {}};
      for (int i = 0; i < 24; ++i) {
        data_.documents.push_back({"", text_of(name, i), ""});
        const bool user = i % 2 == 0;
        talk.messages.push_back({static_cast<int>(data_.documents.size()) - 1, user ? "user" : "assistant",
                                 user ? "user-1" : "", "2024-03-05"});
      }
      data_.conversations.push_back(std::move(talk));
    }
  }
  static std::string text_of(const std::string& name, int number) {
    if (name == "two" && number == 4) return "My zebra Quaggelina lives in Thessaloniki.";
    return "In talk " + name + " the remark " + std::to_string(number) + " was about nothing in particular.";
  }
  std::unique_ptr<ReplaySubject> replay() {
    ReplayOptions options;
    options.memory.engine.model = tiny_model_path();
    options.memory.engine.threads = 2;
    options.memory.engine.kv_cap_bytes = 64 << 20;
    options.memory.engine.cache_folder = folder_ / "home";
    options.memory.folder = folder_ / "talks";
    options.memory.whitening = folder_ / "tiny.rhw";
    options.live_budget_tokens = 256;
    options.on_message = [this](const std::string&, size_t, size_t) { return ++said_ <= most_said_; };
    auto subject = ReplaySubject::open(data_, options);
    EXPECT_TRUE(subject.ok()) << subject.error().message;
    return subject.ok() ? std::move(subject).value() : nullptr;
  }
  fs::path tiny_model_path() const { return rhapsode::test::tiny_model_path(tiny_model()); }

  Dataset data_;
  int said_ = 0;
  int most_said_ = 1000;
};

TEST_F(ReplaySubjectTest, RanksEveryMessageOnceAndSaysNothingTwice) {
  auto subject = replay();
  ASSERT_NE(subject, nullptr);
  const auto keywords =
      subject->rank("Where does the zebra Quaggelina live?", {Signal::kKeywords, false, 5, 1});
  ASSERT_TRUE(keywords.ok()) << keywords.error().message;
  ASSERT_FALSE(keywords->empty());
  EXPECT_EQ(said_, 24);
  std::set<int> first;
  for (size_t i = 0; i < 2 && i < keywords->size(); ++i) first.insert((*keywords)[i].span.document);
  // A turn is one passage here: what was said, and what was said to it.
  EXPECT_TRUE(first.contains(24 + 4));
  const auto latent = subject->rank("zebra", {Signal::kLatent, false, 100, 0});
  ASSERT_TRUE(latent.ok()) << latent.error().message;
  EXPECT_EQ(said_, 48);
  std::set<int> documents;
  for (const PlacedPassage& message : *latent) EXPECT_TRUE(documents.insert(message.span.document).second);
  EXPECT_GE(documents.size(), 22u);  // at most the last turn is in no passage yet
  EXPECT_LT(*documents.rbegin(), 24);
  subject.reset();
  const auto again = replay();
  ASSERT_NE(again, nullptr);
  const auto same = again->rank("zebra", {Signal::kLatent, false, 100, 0});
  ASSERT_TRUE(same.ok()) << same.error().message;
  EXPECT_EQ(said_, 48);
  ASSERT_EQ(same->size(), latent->size());
  for (size_t i = 0; i < same->size(); ++i) EXPECT_EQ((*same)[i].span, (*latent)[i].span);
}

TEST_F(ReplaySubjectTest, AStoppedReplayGoesOn) {
  most_said_ = 10;
  auto subject = replay();
  ASSERT_NE(subject, nullptr);
  const auto stopped = subject->rank("zebra", {Signal::kFused, false, 5, 1});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
  said_ = 0;
  most_said_ = 1000;
  EXPECT_TRUE(subject->rank("zebra", {Signal::kFused, false, 5, 1}).ok());
  EXPECT_EQ(said_, 14);
  EXPECT_FALSE(subject->rank("zebra", {Signal::kFused, false, 5, 2}).ok());
  EXPECT_FALSE(subject->answer({}).ok());
}

}  // namespace
}  // namespace rhapsode::eval
