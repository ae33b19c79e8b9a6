#include "rhapsode/conversation.h"

#include <algorithm>
#include <tuple>

#include "base/text_check.h"
#include "engine/conversation_impl.h"
#include "recall/ingester.h"

namespace rhapsode {

namespace {

constexpr int kLeastLiveBudget = 256;
constexpr size_t kMostNameBytes = 200;

Error no_conversation(const std::string& name) {
  return make_error(ErrorKind::kNotFound, "the memory has no conversation '{}': 'rhapsode list' names them",
                    name);
}

std::string folder_of(const std::string& name) {
  return std::string(store::kConversationFolder) + name;
}

}  // namespace

Status Conversation::Impl::check_name() const {
  const std::string& name = options.name;
  const bool controls =
      std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  if (name.empty() || name.size() > kMostNameBytes || controls || !is_utf8(name) ||
      name.find('/') != std::string::npos || name == "." || name == "..") {
    return make_error(ErrorKind::kInvalidArgument,
                      "'{}' is no name of a conversation: up to {} bytes of text without '/'", shown(name),
                      kMostNameBytes);
  }
  // Documents of such a folder would be taken for the conversation's passages.
  store::Selection below = store::Selection::stored();
  below.sources = {folder_of(name)};
  RH_TRY(const std::vector<store::SourceRow> rows, memory.catalog->sources(below));
  for (const store::SourceRow& source : rows) {
    if (source.record.kind == store::kConversationKind) continue;
    return make_error(
        ErrorKind::kInvalidArgument,
        "the memory has a document {}, so a conversation cannot be named '{}': take another name",
        source.record.name, name);
  }
  return {};
}

Status Conversation::Impl::set_up() {
  RH_TRY_STATUS(memory.needs_model());
  if (memory.options.read_only) {
    return make_error(ErrorKind::kInvalidArgument,
                      "the memory {} is open for reading only, and a conversation is kept in it",
                      memory.options.folder.string());
  }
  if (options.live_budget_tokens < kLeastLiveBudget) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a live budget of {} tokens is too small to talk in: give at least {}",
                      options.live_budget_tokens, kLeastLiveBudget);
  }
  RH_TRY_STATUS(check_name());
  RH_TRY(frame, memory.frame->turn_frame());
  RH_TRY(behind_answer, memory.frame->message("", frame.behind_answer));
  RH_TRY(std::optional<store::ConversationRow> found, log.find(options.name));
  const std::string vocabulary = recall::vocabulary_id(memory.passes->tokenizer());
  if (!options.fork_from.empty()) {
    if (found) {
      return make_error(ErrorKind::kInvalidArgument,
                        "there is a conversation '{}' already: a fork begins under a name of its own",
                        options.name);
    }
    RH_TRY(const std::optional<store::ConversationRow> from, log.find(options.fork_from));
    if (!from) return no_conversation(options.fork_from);
    RH_TRY(found, log.fork(*from, options.name));
  }
  if (!found && !options.create) return no_conversation(options.name);
  if (!found) {
    RH_TRY(found, log.create(options.name, vocabulary));
  }
  if (found->vocabulary != vocabulary) {
    return make_error(ErrorKind::kInvalidArgument,
                      "the conversation '{}' was held with a model that counts its tokens differently: go on "
                      "in one of another name; this one can still be read, and recalled by others",
                      options.name);
  }
  row = *found;
  return {};
}

Status Conversation::Impl::still_there() {
  RH_TRY(const std::optional<store::ConversationRow> found, log.find(options.name));
  if (found && found->id == row.id) {
    // Something that was said is no more: also what is live of it.
    stale = stale || found->edits != row.edits;
    return {};
  }
  return make_error(ErrorKind::kNotFound, "the conversation '{}' has been forgotten", options.name);
}

Status Conversation::Impl::bring_live(TurnUsage& usage) {
  RH_TRY_STATUS(memory.catalog->refresh());
  RH_TRY_STATUS(still_there());
  if (!stale) {
    // Should it fail half-way, what is live is not what was said.
    stale = true;
    RH_TRY_STATUS(heed_forgotten(usage));
    stale = false;
    return {};
  }
  RH_TRY_STATUS(resume(usage));
  stale = false;
  return {};
}

Result<std::vector<int32_t>> Conversation::Impl::tokens_between(int64_t begin, int64_t end) const {
  RH_TRY(const std::vector<store::MessageRow> messages, log.messages(row.id, begin, end));
  std::vector<int32_t> tokens;
  for (const store::MessageRow& message : messages) {
    const int64_t from = std::max<int64_t>(0, begin - message.first_token);
    const int64_t to = std::min(message.end_token(), end) - message.first_token;
    tokens.insert(tokens.end(), message.tokens.begin() + from, message.tokens.begin() + to);
  }
  if (static_cast<int64_t>(tokens.size()) == end - begin) return tokens;
  return make_error(ErrorKind::kCorrupt, "the conversation '{}' has {} of its tokens {} to {}", row.name,
                    tokens.size(), begin, end);
}

Status Conversation::Impl::resume(TurnUsage& usage) {
  closed.clear();
  tail = LiveSegment{};
  known.clear();
  RH_TRY(const std::vector<store::ConversationPassage> passages, log.passages(row.id));
  for (const store::ConversationPassage& passage : passages) known[passage.passage] = passage;
  int64_t tail_begin = 0;
  next_passage = 0;
  if (!passages.empty()) {
    tail_begin = passages.back().first_token + passages.back().tokens;
    next_passage = passages.back().number + 1;
  }
  RH_TRY(recent, log.messages(row.id, tail_begin));
  RH_TRY(const std::optional<store::ConversationRow> now, log.find(row.name));
  if (!now) return no_conversation(row.name);
  row = *now;
  next_number = row.messages;
  next_turn = 0;
  unanswered = false;
  RH_TRY(const std::vector<store::MessageRow> last, log.messages(row.id, row.tokens - 1));
  if (!last.empty()) {
    unanswered = last.back().role == "user";
    next_turn = last.back().turn + (unanswered ? 0 : 1);
  }
  // As many of the last passages as the budget takes beside the tail.
  const int64_t room = options.live_budget_tokens - (row.tokens - tail_begin);
  size_t first = passages.size();
  int64_t live = 0;
  while (first > 0 && live + passages[first - 1].tokens <= room) live += passages[--first].tokens;
  RH_TRY_STATUS(load_live(std::span(passages).subspan(first), usage));
  LiveSegment end;
  end.first_token = tail_begin;
  RH_TRY(end.tokens, tokens_between(tail_begin, row.tokens));
  return make_anew(std::move(end), usage);
}

Status Conversation::Impl::load_live(std::span<const store::ConversationPassage> passages, TurnUsage& usage) {
  for (const store::ConversationPassage& passage : passages) {
    LiveSegment segment;
    segment.stored = passage;
    segment.first_token = passage.first_token;
    segment.source = store::passage_source(row.name, passage.number);
    RH_TRY(const std::vector<store::MessageRow> messages,
           log.messages(row.id, passage.first_token, passage.first_token + passage.tokens));
    const ConversationPiece piece{row, passage.number, passage.first_token,
                                  passage.first_token + passage.tokens, messages};
    std::tie(segment.first_message, segment.last_message) = messages_of(piece);
    RH_TRY(segment.tokens, tokens_between(passage.first_token, passage.first_token + passage.tokens));
    if (passage.spilled) {
      RH_TRY(segment.pages, load_as_computed(passage.passage, passage.spill, segment.size()));
    }
    if (segment.pages.empty()) {
      RH_TRY_STATUS(make_anew(std::move(segment), usage));
      continue;
    }
    closed.push_back(std::move(segment));
  }
  tail = LiveSegment{};
  return {};
}

// Evaluates a segment again, behind those that are live: the tail, or one that was closed before.
Status Conversation::Impl::make_anew(LiveSegment segment, TurnUsage& usage) {
  const std::vector<int32_t> tokens = std::move(segment.tokens);
  tail = LiveSegment{};
  tail.first_token = segment.first_token;
  const auto step = static_cast<size_t>(aim_tokens());
  for (size_t done = 0; done < tokens.size(); done += step) {
    const size_t count = std::min(step, tokens.size() - done);
    RH_TRY_STATUS(take_in(std::span(tokens).subspan(done, count), {}));
    usage.evaluated_tokens += static_cast<int>(count);
    usage.made_anew_tokens += static_cast<int>(count);
  }
  if (segment.stored.passage == 0) return {};
  LiveSegment made = std::move(tail);
  tail = LiveSegment{};
  made.stored = segment.stored;
  made.source = std::move(segment.source);
  made.first_message = segment.first_message;
  made.last_message = segment.last_message;
  RH_TRY_STATUS(store_kv_anew(made));
  closed.push_back(std::move(made));
  tail.first_token = closed.back().end_token();
  return {};
}

Result<size_t> Conversation::Impl::first_tainted() const {
  for (size_t i = 0; i < closed.size(); ++i) {
    RH_TRY(const std::optional<store::Spill> spill, log.spill(closed[i].stored.passage));
    if (!spill || spill->fingerprint != closed[i].stored.spill.fingerprint) return i;
  }
  const std::vector<int64_t> saw(tail.saw.begin(), tail.saw.end());
  RH_TRY(const std::vector<int64_t> still, log.known_contents(saw));
  if (still.size() != saw.size()) return closed.size();
  for (const auto& [passage, fingerprint] : tail.leaned_on) {
    RH_TRY(const std::optional<store::Spill> spill, log.spill(passage));
    if (!spill || spill->fingerprint != fingerprint) return closed.size();
  }
  return closed.size() + 1;
}

// What was computed while a source was in view that has been forgotten since, and all behind it, is computed
// again from the conversation's own tokens.
Status Conversation::Impl::heed_forgotten(TurnUsage& usage) {
  RH_TRY(const size_t first, first_tainted());
  if (first > closed.size()) return {};
  std::vector<LiveSegment> again;
  std::move(closed.begin() + static_cast<ptrdiff_t>(first), closed.end(), std::back_inserter(again));
  closed.resize(first);
  again.push_back(std::move(tail));
  for (LiveSegment& segment : again) {
    segment.pages.clear();
    // A fork that shares the passage may have done it already.
    RH_TRY(const std::optional<store::Spill> made, log.spill(segment.stored.passage));
    if (made) {
      segment.stored.spill = *made;
      RH_TRY(segment.pages, load_as_computed(segment.stored.passage, *made, segment.size()));
    }
    if (segment.pages.empty()) {
      RH_TRY_STATUS(make_anew(std::move(segment), usage));
      continue;
    }
    known[segment.stored.passage] = segment.stored;
    closed.push_back(std::move(segment));
  }
  return {};
}

Conversation::Conversation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Conversation::~Conversation() = default;

Result<std::unique_ptr<Conversation>> Conversation::open(Memory& memory, const ConversationOptions& options) {
  Memory::Impl& held = *memory.impl_;
  const std::lock_guard lock(held.gate);
  auto impl = std::make_unique<Impl>(memory, held, options);
  RH_TRY_STATUS(impl->set_up());
  return std::unique_ptr<Conversation>(new Conversation(std::move(impl)));
}

Result<std::unique_ptr<Conversation>> Conversation::fork(const std::string& name) {
  const std::lock_guard lock(impl_->memory.gate);
  ConversationOptions options = impl_->options;
  options.name = name;
  options.fork_from = impl_->row.name;
  auto made = std::make_unique<Impl>(impl_->owner_memory, impl_->memory, options);
  RH_TRY_STATUS(impl_->still_there());
  RH_TRY_STATUS(made->set_up());
  if (impl_->stale) return std::unique_ptr<Conversation>(new Conversation(std::move(made)));
  const auto share = [](const LiveSegment& segment) {
    LiveSegment shared;
    shared.tokens = segment.tokens;
    shared.first_token = segment.first_token;
    shared.context = segment.context;
    shared.saw = segment.saw;
    shared.leaned_on = segment.leaned_on;
    shared.stored = segment.stored;
    shared.source = segment.source;
    shared.first_message = segment.first_message;
    shared.last_message = segment.last_message;
    for (const store::PagePin& page : segment.pages) shared.pages.push_back(page.share());
    return shared;
  };
  for (const LiveSegment& segment : impl_->closed) made->closed.push_back(share(segment));
  for (LiveSegment& segment : made->closed) {
    segment.source = store::passage_source(name, segment.stored.number);
  }
  made->tail = share(impl_->tail);
  made->recent = impl_->recent;
  made->known = impl_->known;
  made->next_passage = impl_->next_passage;
  made->next_number = impl_->next_number;
  made->next_turn = impl_->next_turn;
  made->unanswered = impl_->unanswered;
  made->stale = false;
  return std::unique_ptr<Conversation>(new Conversation(std::move(made)));
}

Result<std::vector<SaidMessage>> Conversation::history() {
  const std::lock_guard lock(impl_->memory.gate);
  RH_TRY_STATUS(impl_->still_there());
  RH_TRY(const std::vector<store::MessageRow> rows, impl_->log.messages(impl_->row.id));
  std::vector<SaidMessage> history;
  for (const store::MessageRow& message : rows) {
    history.push_back({message.number, message.turn, message.role, message.speaker, message.said,
                       message.text, message.forgotten});
  }
  return history;
}

Result<std::vector<SpilledPassage>> Conversation::passages() {
  const std::lock_guard lock(impl_->memory.gate);
  RH_TRY_STATUS(impl_->still_there());
  RH_TRY(const std::vector<store::ConversationPassage> stored, impl_->log.passages(impl_->row.id));
  std::vector<SpilledPassage> passages;
  for (const store::ConversationPassage& passage : stored) {
    const int64_t end = passage.first_token + passage.tokens;
    RH_TRY(const std::vector<store::MessageRow> messages,
           impl_->log.messages(impl_->row.id, passage.first_token, end));
    const ConversationPiece piece{impl_->row, passage.number, passage.first_token, end, messages};
    const auto [first, last] = messages_of(piece);
    passages.push_back({passage.passage, store::passage_source(impl_->row.name, passage.number),
                        passage.tokens, first, last});
  }
  return passages;
}

int Conversation::live_tokens() const {
  const std::lock_guard lock(impl_->memory.gate);
  return impl_->live_tokens();
}

const std::string& Conversation::name() const {
  return impl_->row.name;
}

}  // namespace rhapsode
