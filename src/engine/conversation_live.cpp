// The live part of a conversation: evaluated behind what is live, cut into segments, spilled.
#include <algorithm>
#include <tuple>

#include "base/sha256.h"
#include "engine/conversation_impl.h"
#include "store/host_pages.h"

namespace rhapsode {

using kernels::kPageTokens;

namespace {

constexpr int kMostAimTokens = 512;
// Of what a passage aims at, how much of a turn's end is one by itself.
constexpr int kTurnShare = 4;

Result<std::string> hash_of(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

void PromptParts::add(std::span<const store::PagePin> pages, std::span<const int32_t> part) {
  if (part.empty()) return;
  engine::ContextRun run;
  run.tokens = static_cast<int>(part.size());
  // Where the part's frame has its 0, so that its first token stands behind what is here.
  run.shift = static_cast<int32_t>(tokens.size()) - pages.front()->positions[0];
  for (const store::PagePin& page : pages) run.pages.push_back(page.share());
  runs.push_back(std::move(run));
  tokens.insert(tokens.end(), part.begin(), part.end());
}

int Conversation::Impl::aim_tokens() const {
  const int quarter = options.live_budget_tokens / 4 / kPageTokens * kPageTokens;
  return std::clamp(quarter, kPageTokens, kMostAimTokens);
}

int Conversation::Impl::live_tokens() const {
  int total = tail.size();
  for (const LiveSegment& segment : closed) total += segment.size();
  return total;
}

Result<PromptParts> Conversation::Impl::context(const ConversationView& view, bool with_live) {
  PromptParts parts;
  RH_TRY(const std::span<const store::PagePin> prefix, memory.encoder->prefix_pages());
  parts.add(prefix, memory.frame->prefix());
  for (const ContextPart& part : view.before) parts.add(part.pages, part.tokens);
  if (!with_live) return parts;
  for (const LiveSegment& segment : closed) parts.add(segment.pages, segment.tokens);
  parts.add(tail.pages, tail.tokens);
  for (const ContextPart& part : view.behind) parts.add(part.pages, part.tokens);
  return parts;
}

Result<std::shared_ptr<Generation::State>> Conversation::Impl::start_state(const ConversationView& view,
                                                                           Request request,
                                                                           std::span<const int32_t> tokens) {
  RH_TRY(PromptParts parts, context(view, true));
  const auto most = static_cast<int64_t>(parts.tokens.size() + tokens.size()) + request.max_tokens;
  if (most > memory.engine->context_tokens) {
    return make_error(
        ErrorKind::kTooLarge,
        "{} tokens of context, {} of the message and {} for the answer do not fit the context of "
        "{}: take a smaller --live-budget or --budget, or raise --context",
        parts.tokens.size(), tokens.size(), request.max_tokens, memory.engine->context_tokens);
  }
  auto state = std::make_shared<Generation::State>(std::move(request), *memory.engine->pool);
  state->submitted_ns = now_ns();
  state->use_prefix_cache = false;  // the conversation keeps its own pages
  state->keep_pages = true;
  state->runs = std::move(parts.runs);
  state->prompt = std::move(parts.tokens);
  state->prompt.insert(state->prompt.end(), tokens.begin(), tokens.end());
  engine::OpenFrame open;
  open.tokens = tail.first_position() + tail.size();
  if (open.tokens % kPageTokens != 0) open.tail = tail.pages.back().share();
  state->frame = std::move(open);
  return state;
}

// What was evaluated of `tokens` (a request's own rows, in order) is the tail's from now on.
void Conversation::Impl::absorb(Generation::State& state, std::span<const int32_t> tokens,
                                const ConversationView& view) {
  const auto taken = tokens.first(std::min<size_t>(tokens.size(), state.kept_tokens));
  if (taken.empty()) return;
  if ((tail.first_position() + tail.size()) % kPageTokens != 0) tail.pages.pop_back();
  for (store::PagePin& page : state.kept_pages) tail.pages.push_back(std::move(page));
  state.kept_pages.clear();
  std::string seen = fmt::format("{}|{}", tail.context, view.names);
  for (const LiveSegment& segment : closed) {
    seen += fmt::format("|{}", segment.stored.spill.fingerprint);
    tail.saw.insert(segment.stored.content);
  }
  seen += fmt::format("|{}+{}", tail.size(), taken.size());
  if (auto hash = hash_of(seen); hash.ok()) tail.context = std::move(hash).value();
  tail.saw.insert(view.contents.begin(), view.contents.end());
  tail.leaned_on.insert(view.leaned_on.begin(), view.leaned_on.end());
  tail.tokens.insert(tail.tokens.end(), taken.begin(), taken.end());
}

Status Conversation::Impl::take_in(std::span<const int32_t> tokens, const ConversationView& view) {
  if (tokens.empty()) return {};
  Request request;
  request.max_tokens = 0;
  RH_TRY(auto state, start_state(view, std::move(request), tokens));
  std::vector<int32_t> prompt = std::move(state->prompt);
  RH_TRY(Generation generation, memory.engine->start(state, std::move(prompt)));
  RH_TRY(const Response response, generation.wait());
  absorb(*state, tokens, view);
  if (response.finish != FinishReason::kCancelled) return {};
  return make_error(ErrorKind::kCancelled, "the engine is closing");
}

Status Conversation::Impl::take_in_steps(std::span<const int32_t> tokens, Border end, Reply& reply) {
  const auto step = static_cast<size_t>(aim_tokens());
  while (!tokens.empty()) {
    const auto next = tokens.first(std::min(step, tokens.size()));
    RH_TRY_STATUS(make_room(static_cast<int>(next.size()), 0, reply));
    RH_TRY_STATUS(take_in(next, {}));
    reply.usage.evaluated_tokens += static_cast<int>(next.size());
    tokens = tokens.subspan(next.size());
    RH_TRY_STATUS(close_full(tokens.empty() ? end : Border::kNone, reply.usage));
  }
  return {};
}

Result<ContextPart> Conversation::Impl::evaluate_part(PromptParts parts, std::vector<int32_t> tokens) {
  Request request;
  request.max_tokens = 0;
  auto state = std::make_shared<Generation::State>(std::move(request), *memory.engine->pool);
  state->submitted_ns = now_ns();
  state->use_prefix_cache = false;
  state->keep_pages = true;
  state->runs = std::move(parts.runs);
  std::vector<int32_t> prompt = std::move(parts.tokens);
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  state->frame = engine::OpenFrame{};
  RH_TRY(Generation generation, memory.engine->start(state, std::move(prompt)));
  RH_TRY(const Response response, generation.wait());
  if (response.finish == FinishReason::kCancelled) {
    return make_error(ErrorKind::kCancelled, "the engine is closing");
  }
  return ContextPart{std::move(state->kept_pages), std::move(tokens)};
}

Status Conversation::Impl::make_room(int tokens, int reserve, Reply& reply) {
  const int aim = aim_tokens();
  const int needed = tokens + reserve;
  // A message goes whole into a passage where it can.
  const bool overflows = tail.size() + tokens > aim + aim / 4 && tail.size() >= aim / 2;
  int older = 0;
  for (const LiveSegment& segment : closed) older += segment.size();
  const bool crowded = tail.size() > 0 && tail.size() + needed > options.live_budget_tokens && older == 0;
  if (overflows || crowded) {
    LiveSegment full = std::move(tail);
    tail = LiveSegment{};
    tail.first_token = full.end_token();
    RH_TRY_STATUS(close(std::move(full), reply.usage));
  }
  while (!closed.empty() && live_tokens() + needed > options.live_budget_tokens) spill_front(reply);
  return {};
}

void Conversation::Impl::spill_front(Reply& reply) {
  const LiveSegment& segment = closed.front();
  reply.spilled.push_back(
      {segment.stored.passage, segment.source, segment.size(), segment.first_message, segment.last_message});
  closed.pop_front();
}

Status Conversation::Impl::close_full(Border border, TurnUsage& usage) {
  const int aim = aim_tokens();
  while (tail.size() > aim + aim / 4) {
    LiveSegment head;
    head.first_token = tail.first_token;
    head.context = tail.context;
    head.saw = tail.saw;
    head.leaned_on = tail.leaned_on;
    head.tokens.assign(tail.tokens.begin(), tail.tokens.begin() + aim);
    const int pages = aim / kPageTokens;
    std::move(tail.pages.begin(), tail.pages.begin() + pages, std::back_inserter(head.pages));
    tail.pages.erase(tail.pages.begin(), tail.pages.begin() + pages);
    tail.tokens.erase(tail.tokens.begin(), tail.tokens.begin() + aim);
    tail.first_token += aim;
    RH_TRY_STATUS(close(std::move(head), usage));
    tail.saw.insert(closed.back().stored.content);
  }
  const int least = border == Border::kTurn ? aim / kTurnShare : aim;
  if (border == Border::kNone || tail.size() < least) return {};
  LiveSegment full = std::move(tail);
  tail = LiveSegment{};
  tail.first_token = full.end_token();
  return close(std::move(full), usage);
}

Status Conversation::Impl::close(LiveSegment segment, TurnUsage& usage) {
  RH_TRY_STATUS(store(segment, usage));
  known[segment.stored.passage] = segment.stored;
  closed.push_back(std::move(segment));
  std::erase_if(recent, [&](const auto& message) { return message.end_token() <= tail.first_token; });
  return {};
}

std::string Conversation::Impl::fingerprint_of(const LiveSegment& segment) const {
  const auto hash = hash_of(fmt::format("{}|{}|{}", memory.kv_fingerprint, segment.context, segment.size()));
  return hash.ok() ? *hash : memory.kv_fingerprint + segment.context;
}

// The segment becomes a passage of the memory: text, terms and routing keys as of any, KV as it is. Done
// again after a kill, it changes nothing.
Status Conversation::Impl::store(LiveSegment& segment, TurnUsage& usage) {
  const ConversationPiece piece{row, next_passage, segment.first_token, segment.end_token(), recent};
  const Transcript transcript = transcript_of(piece, memory.passes->tokenizer());
  std::tie(segment.first_message, segment.last_message) = messages_of(piece);
  segment.stored.number = next_passage;
  segment.stored.first_token = segment.first_token;
  segment.stored.tokens = segment.size();
  segment.source = store::passage_source(row.name, next_passage);
  RH_TRY(const PassageDraft draft, draft_passage(*memory.frame, piece, transcript));
  RH_TRY(const store::ContentInfo info, memory.catalog->begin_content(draft.key, draft.content));
  segment.stored.content = info.id;
  segment.stored.passage = info.passages.front();
  RH_TRY_STATUS(put_passage(segment, draft, usage));
  RH_TRY_STATUS(memory.catalog->publish(draft.source, info.id));
  RH_TRY_STATUS(log.add_passage(row.id, segment.stored));
  ++next_passage;
  return memory.sync_index();
}

Result<std::vector<std::byte>> Conversation::Impl::begin_spill(LiveSegment& segment) {
  RH_TRY(std::vector<std::byte> kv, store::encode_pinned_kv(segment.pages, memory.stored_kv, segment.size()));
  segment.stored.spilled = true;
  segment.stored.spill = {fingerprint_of(segment), memory.kv_fingerprint, segment.first_position()};
  const std::vector<int64_t> saw(segment.saw.begin(), segment.saw.end());
  RH_TRY_STATUS(log.set_spill(segment.stored.passage, segment.stored.spill, saw));
  return kv;
}

Status Conversation::Impl::put_passage(LiveSegment& segment, const PassageDraft& draft, TurnUsage& usage) {
  const uint64_t before = memory.encoder->evaluated_tokens();
  RH_TRY(const DraftCodes made, encode_draft(*memory.encoder, *memory.whitening, draft));
  usage.index_tokens += static_cast<int>(memory.encoder->evaluated_tokens() - before);
  RH_TRY(const std::vector<std::byte> kv, begin_spill(segment));
  store::EncodedPassage passage{
      0, made.chunks, memory.whitening->id(), made.codes, segment.stored.spill.fingerprint, kv};
  Status put = memory.catalog->put_encoded(segment.stored.content, std::span(&passage, 1));
  if (put.ok() || put.error().kind != ErrorKind::kTooLarge) return put;
  passage.kv = {};  // the disk's cap takes no more: it is made from text when it is recalled
  return memory.catalog->put_encoded(segment.stored.content, std::span(&passage, 1));
}

Status Conversation::Impl::store_kv_anew(LiveSegment& segment) {
  RH_TRY(const std::vector<std::byte> kv, begin_spill(segment));
  known[segment.stored.passage] = segment.stored;
  const store::KvRecord record{segment.stored.passage, kv};
  const Status put = memory.catalog->put_kv(segment.stored.spill.fingerprint, std::span(&record, 1));
  return put.ok() || put.error().kind == ErrorKind::kTooLarge ? Status{} : put;
}

// Empty when there is none any more, or it is damaged.
Result<std::vector<store::PagePin>> Conversation::Impl::load_as_computed(int64_t passage,
                                                                         const store::Spill& spill,
                                                                         int tokens) {
  std::vector<store::PagePin> none;
  if (spill.base != memory.kv_fingerprint) return none;
  RH_TRY(const auto extent, memory.catalog->kv_extent(spill.fingerprint, passage));
  if (!extent) return none;
  std::vector<std::byte> bytes(extent->extent.bytes);
  RH_TRY(std::vector<store::PagePin> pages, memory.passes->take_pages(recall::pages_for(tokens)));
  Status read = memory.catalog->read_kv(*extent, bytes);
  if (read.ok()) read = store::decode_pinned_kv(bytes, pages, tokens);
  if (!read.ok() && read.error().kind == ErrorKind::kCorrupt) {
    RH_TRY_STATUS(memory.catalog->quarantine(passage));
    return none;
  }
  RH_TRY_STATUS(read);
  for (const store::PagePin& page : pages) {
    for (int32_t& position : page->positions) position += spill.first_position;
  }
  return pages;
}

}  // namespace rhapsode
