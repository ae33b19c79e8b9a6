// What of replaying a conversation needs no model: which messages are still to be said, and how a ranking of
// passages becomes one of messages.
//
// A passage may hold several messages, or a part of one. A message counts for as much as the best passage
// that holds words of it; the messages of one passage come in the order they were said. A message that is in
// no passage yet (the very last ones may be) is not ranked: what happens to be live gets nothing for free.
// Threads: any. Cost: linear.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/dataset.h"
#include "rhapsode/conversation.h"

namespace rhapsode::eval {

// How many of the conversation's messages are in the history, and as which number each; kInvalidArgument when
// the history is of something else. Empty messages that the engine puts between two of one role are passed
// over.
Result<std::vector<int64_t>> messages_said(const Dataset& dataset, const SpokenConversation& conversation,
                                           const std::vector<SaidMessage>& history);

struct MessageRange {
  int64_t first = 0;
  int64_t last = 0;
};
struct RankedMessage {
  int64_t number = 0;
  size_t passage = 0;  // of the ranking: the best one that holds it
};
// The best `most` messages, best first. `passages`: by rank. Passages without a range hold nothing.
std::vector<RankedMessage> rank_messages(std::span<const int64_t> passages,
                                         const std::map<int64_t, MessageRange>& ranges, size_t most);

}  // namespace rhapsode::eval
