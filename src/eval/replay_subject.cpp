#include "eval/replay_subject.h"

#include <algorithm>

#include "io/file.h"

namespace rhapsode::eval {
namespace {

// A passage holds at least a part of a message, so that so many passages a message wanted are enough; and no
// ranking is cut shorter than signals look.
constexpr int kPassagesPerMessage = 3;
constexpr int kLeastPassages = 60;

Error not_answered() {
  return make_error(ErrorKind::kUnsupported, "what was said is ranked, not answered from");
}

}  // namespace

Result<std::unique_ptr<ReplaySubject>> ReplaySubject::open(const Dataset& dataset, ReplayOptions options) {
  std::unique_ptr<ReplaySubject> subject(new ReplaySubject(dataset, std::move(options)));
  RH_TRY(subject->engine_, Engine::open(subject->options_.memory.engine));
  if (dataset.conversations.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "the data holds no conversation to replay");
  }
  RH_TRY(subject->memory_, subject->open_memory(dataset.conversations.front().name));
  RH_TRY(const MemoryStats stats, subject->memory_->stats());
  subject->info_ = {subject->engine_->model().name, subject->engine_->model().weights, stats.fingerprint};
  return subject;
}

Result<std::unique_ptr<Memory>> ReplaySubject::open_memory(const std::string& name) {
  const MemorySubjectOptions& options = options_.memory;
  RH_TRY_STATUS(make_directories(options.folder / name));
  return Memory::open(*engine_, memory_options(options, name));
}

Status ReplaySubject::bring(int number) {
  if (number == conversation_) return {};
  if (number < 0 || static_cast<size_t>(number) >= dataset_.conversations.size()) {
    return make_error(ErrorKind::kInvalidArgument, "there is no conversation {} to ask about", number);
  }
  const SpokenConversation& spoken = dataset_.conversations[static_cast<size_t>(number)];
  conversation_ = -1;
  memory_.reset();
  RH_TRY(memory_, open_memory(spoken.name));
  ConversationOptions opening;
  opening.name = spoken.name;
  opening.live_budget_tokens = options_.live_budget_tokens;
  RH_TRY(const auto conversation, Conversation::open(*memory_, opening));
  RH_TRY_STATUS(say_rest(spoken, *conversation));
  RH_TRY(const std::vector<SpilledPassage> passages, conversation->passages());
  ranges_.clear();
  for (const SpilledPassage& passage : passages) {
    ranges_[passage.passage] = {passage.first_message, passage.last_message};
  }
  conversation_ = number;
  return {};
}

Status ReplaySubject::say_rest(const SpokenConversation& spoken, Conversation& conversation) {
  RH_TRY(const std::vector<SaidMessage> history, conversation.history());
  RH_TRY(const std::vector<int64_t> said, messages_said(dataset_, spoken, history));
  documents_.clear();
  for (size_t i = 0; i < spoken.messages.size(); ++i) {
    const SpokenMessage& message = spoken.messages[i];
    if (i < said.size()) {
      documents_[said[i]] = message.document;
      continue;
    }
    if (options_.on_message && !options_.on_message(spoken.name, i, spoken.messages.size())) {
      return make_error(ErrorKind::kCancelled, "stopped after {} of {} messages of {}", i,
                        spoken.messages.size(), spoken.name);
    }
    NotedMessage noted;
    noted.role = message.role;
    noted.text = dataset_.documents[static_cast<size_t>(message.document)].text;
    noted.speaker = message.speaker;
    noted.time = message.time;
    RH_TRY(const rhapsode::Reply reply, conversation.note(noted));
    documents_[reply.message] = message.document;
  }
  return {};
}

Result<std::vector<PlacedPassage>> ReplaySubject::rank(const std::string& question, const Ranking& ranking) {
  RH_TRY_STATUS(bring(ranking.conversation));
  SearchOptions options = search_options(ranking, options_.memory);
  options.limit = std::max(kLeastPassages, kPassagesPerMessage * ranking.passages);
  options.filter.sources = {"chats/" + dataset_.conversations[static_cast<size_t>(conversation_)].name};
  RH_TRY(const std::vector<FoundPassage> found, memory_->search(question, options));
  std::vector<int64_t> passages;
  for (const FoundPassage& one : found) passages.push_back(one.passage.id);
  std::vector<PlacedPassage> ranked;
  const auto most = static_cast<size_t>(ranking.passages);
  for (const RankedMessage& message : rank_messages(passages, ranges_, most)) {
    const auto document = documents_.find(message.number);
    if (document == documents_.end()) continue;
    const FoundPassage& from = found[message.passage];
    ranked.push_back({Span{document->second}, from.passage.source, "", from.score, from.evidence});
  }
  return ranked;
}

Result<std::vector<int32_t>> ReplaySubject::tokenize(const std::string& text) {
  return engine_->tokenize(text, false);
}

Result<Reply> ReplaySubject::answer(const ReadRequest&) {
  return not_answered();
}
Status ReplaySubject::warm(const std::vector<Span>&) {
  return not_answered();
}
Result<ScoredAnswer> ReplaySubject::score(const ReadRequest&, const std::string&, int) {
  return not_answered();
}

}  // namespace rhapsode::eval
