#include "eval/replay.h"

#include <set>

namespace rhapsode::eval {

Result<std::vector<int64_t>> messages_said(const Dataset& dataset, const SpokenConversation& conversation,
                                           const std::vector<SaidMessage>& history) {
  std::vector<int64_t> said;
  for (const SaidMessage& message : history) {
    const size_t next = said.size();
    if (next < conversation.messages.size()) {
      const SpokenMessage& expected = conversation.messages[next];
      const std::string& text = dataset.documents[static_cast<size_t>(expected.document)].text;
      if (message.role == expected.role && message.text == text) {
        said.push_back(message.number);
        continue;
      }
    }
    if (message.text.empty()) continue;
    return make_error(
        ErrorKind::kInvalidArgument,
        "message {} of the conversation '{}' in the memory is not that of the data: give another "
        "--memory folder",
        message.number, conversation.name);
  }
  return said;
}

std::vector<RankedMessage> rank_messages(std::span<const int64_t> passages,
                                         const std::map<int64_t, MessageRange>& ranges, size_t most) {
  std::vector<RankedMessage> ranked;
  std::set<int64_t> known;
  for (size_t i = 0; i < passages.size(); ++i) {
    const auto range = ranges.find(passages[i]);
    if (range == ranges.end()) continue;
    for (int64_t number = range->second.first; number <= range->second.last; ++number) {
      if (ranked.size() == most) return ranked;
      if (known.insert(number).second) ranked.push_back({number, i});
    }
  }
  return ranked;
}

}  // namespace rhapsode::eval
