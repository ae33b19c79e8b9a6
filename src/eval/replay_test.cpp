#include "eval/replay.h"

#include <gmock/gmock.h>

namespace rhapsode::eval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int64_t> numbers(const std::vector<RankedMessage>& ranked) {
  std::vector<int64_t> numbers;
  for (const RankedMessage& message : ranked) numbers.push_back(message.number);
  return numbers;
}

TEST(Replay, AMessageCountsAsTheBestPassageThatHoldsIt) {
  // Message 3 is cut over passages 20 and 30; passage 99 is none of the conversation's.
  const std::map<int64_t, MessageRange> ranges{{10, {0, 1}}, {20, {2, 3}}, {30, {3, 3}}, {40, {4, 6}}};
  const std::vector<int64_t> passages{30, 99, 40, 20, 10};
  const auto ranked = rank_messages(passages, ranges, 100);
  EXPECT_THAT(numbers(ranked), ElementsAre(3, 4, 5, 6, 2, 0, 1));
  EXPECT_EQ(ranked[0].passage, 0u);
  EXPECT_EQ(ranked[1].passage, 2u);
  EXPECT_EQ(ranked[4].passage, 3u);
  EXPECT_THAT(numbers(rank_messages(passages, ranges, 3)), ElementsAre(3, 4, 5));
  EXPECT_THAT(rank_messages({}, ranges, 3), IsEmpty());
}

class MessagesSaid : public testing::Test {
 protected:
  SaidMessage said(int64_t number, const char* role, const char* text) {
    SaidMessage message;
    message.number = number;
    message.role = role;
    message.text = text;
    return message;
  }
  Dataset data_{{{"", "Hello.", ""}, {"", "Hello.", ""}, {"", "Bye.", ""}}, {}, {}, 0};
  SpokenConversation talk_{"talk", {{0, "user", "", ""}, {1, "user", "", ""}, {2, "assistant", "", ""}}};
};

TEST_F(MessagesSaid, PassesOverWhatTheEnginePutsBetweenMessagesOfOneRole) {
  EXPECT_THAT(*messages_said(data_, talk_, {}), IsEmpty());
  EXPECT_THAT(
      *messages_said(data_, talk_,
                     {said(0, "user", "Hello."), said(1, "assistant", ""), said(2, "user", "Hello.")}),
      ElementsAre(0, 2));
}

TEST_F(MessagesSaid, RefusesAnotherConversation) {
  const auto other = messages_said(data_, talk_, {said(0, "assistant", "Hello.")});
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("message 0 of the conversation 'talk'"));
  EXPECT_FALSE(messages_said(data_, {"talk", {}}, {said(0, "user", "Hello.")}).ok());
}

}  // namespace
}  // namespace rhapsode::eval
