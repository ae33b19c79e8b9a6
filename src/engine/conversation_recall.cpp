// What a turn recalls: passages of documents, and of what was said before and is live no more.
#include <algorithm>

#include "engine/conversation_turn.h"
#include "engine/runner_options.h"
#include "engine/verdict.h"

namespace rhapsode {

namespace {

// A long message is looked up by how it ends: there stands what is asked.
constexpr size_t kMostRoutingBytes = 600;

}  // namespace

std::string ConversationTurn::routing_text() const {
  const std::string& text = options_.text;
  if (text.size() <= kMostRoutingBytes) return text;
  const size_t earliest = text.size() - kMostRoutingBytes;
  for (const char* border : {"\n\n", "\n", ". ", " "}) {
    const size_t found = text.find(border, earliest);
    if (found == std::string::npos) continue;
    const std::string end = text.substr(found + std::string_view(border).size());
    if (end.find_first_not_of(" \t\r\n") != std::string::npos) return end;
  }
  size_t begin = earliest;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  return text.substr(begin);
}

Result<store::Selection> ConversationTurn::selection() const {
  RH_TRY(store::Selection selection, memory_.selection(options_.filter));
  const std::string own = std::string(store::kConversationFolder) + conversation_.row.name;
  const std::string all(store::kConversationFolder.substr(0, store::kConversationFolder.size() - 1));
  const std::string& seen = options_.other_conversations ? all : own;
  if (!options_.documents) {
    selection.sources = {seen};
    selection.tags.clear();
  }
  RH_TRY(const bool others, conversation_.log.has_others(conversation_.row.id));
  const bool filtered = !selection.sources.empty() || !selection.tags.empty();
  if (filtered || (others && !options_.other_conversations)) selection.conversations = {seen};
  // Beside users' own sources nobody's conversation is seen but this one.
  RH_TRY(const bool users, memory_.catalog->has_users());
  if (users && !options_.filter.all_users) selection.conversations = {own};
  return selection;
}

Status ConversationTurn::recall() {
  if (options_.most_passages == 0) return {};
  const int64_t begin = now_ns();
  RH_TRY(std::vector<Chosen> chosen, choose());
  reply_.timing.route_ms = ms_between(begin, now_ns());
  if (chosen.empty()) return {};
  choose_policy(chosen);
  const int64_t loading = now_ns();
  if (reply_.policy == ReadPolicy::kReuse) {
    RH_TRY_STATUS(load(chosen));
    RH_TRY_STATUS(view_stored(chosen));
  } else {
    RH_TRY_STATUS(view_evaluated(chosen));
  }
  reply_.timing.load_ms = ms_between(loading, now_ns());
  report(chosen);
  return {};
}

// The best that are not live and fit the budget: of the conversation in the order they were said, then
// documents, the best one last.
Result<std::vector<ConversationTurn::Chosen>> ConversationTurn::choose() {
  RH_TRY(const store::Selection selection, this->selection());
  // Who asks for what was so is told it.
  if (options_.filter.as_of.empty() && !options_.filter.history) RH_TRY_STATUS(find_outdated());
  recall::RouteOptions route_options;
  route_options.selection = selection;
  route_options.count = options_.most_passages + static_cast<int>(conversation_.closed.size());
  RH_TRY(recall::Route route,
         memory_.route(routing_text(), route_options, {options_.judge, options_.chain, options_.links}));
  reply_.usage.probe_tokens += route.probe_tokens;
  std::erase_if(route.ranked, [this](const recall::Ranked& ranked) {
    return std::any_of(conversation_.closed.begin(), conversation_.closed.end(),
                       [&](const LiveSegment& live) { return live.stored.passage == ranked.passage; });
  });
  if (static_cast<int>(route.ranked.size()) > options_.most_passages) {
    route.ranked.resize(options_.most_passages);
  }
  RH_TRY(std::vector<FoundPassage> found, memory_.found(route.ranked, {.selection = selection}));
  std::vector<int64_t> ids;
  for (const FoundPassage& passage : found) ids.push_back(passage.passage.id);
  RH_TRY(const std::vector<store::PassageRow> rows, memory_.catalog->passages(ids, selection));
  std::vector<Chosen> chosen;
  int tokens = 0;
  for (size_t i = 0; i < found.size() && i < rows.size(); ++i) {
    RH_TRY(Chosen one, take(std::move(found[i]), rows[i].content));
    if (one.tokens.empty()) continue;
    if (tokens + static_cast<int>(one.tokens.size()) > options_.budget_tokens) continue;
    tokens += static_cast<int>(one.tokens.size());
    chosen.push_back(std::move(one));
  }
  reply_.usage.recalled_tokens = tokens;
  std::reverse(chosen.begin(), chosen.end());
  const auto documents =
      std::stable_partition(chosen.begin(), chosen.end(), [](const Chosen& one) { return one.conversation; });
  std::sort(chosen.begin(), documents,
            [](const Chosen& a, const Chosen& b) { return a.found.passage.id < b.found.passage.id; });
  return chosen;
}

Result<ConversationTurn::Chosen> ConversationTurn::take(FoundPassage found, int64_t content) const {
  Chosen one;
  one.content = content;
  const int64_t id = found.passage.id;
  one.conversation = found.passage.source.starts_with(store::kConversationFolder);
  const auto own = conversation_.known.find(id);
  one.own = own != conversation_.known.end();
  if (one.own) {
    one.conversation = true;
    RH_TRY(const std::optional<Transcript> left, without_outdated(own->second));
    one.shortened = left.has_value();
    if (one.shortened) {
      found.text = left->text;
    } else {
      RH_TRY(one.spill, conversation_.log.spill(id));
    }
  }
  if (one.shortened && found.text.empty()) return one;
  if (one.spill) {
    const int64_t begin = own->second.first_token;
    RH_TRY(one.tokens, conversation_.tokens_between(begin, begin + own->second.tokens));
  } else {
    RH_TRY(one.alone, memory_.tokenizer->tokens(found.passage.id, found.passage.header, found.text));
    one.tokens = one.alone.tokens;
  }
  one.found = std::move(found);
  return one;
}

void ConversationTurn::choose_policy(std::span<const Chosen> chosen) {
  reply_.policy = options_.policy;
  reply_.policy_reason = "asked for";
  if (options_.policy == ReadPolicy::kAuto) {
    const engine::FoundVerdict& verdict = memory_.verdict();
    std::vector<model::MeasuredReading> readings = verdict.readings;
    std::erase_if(readings, [](const auto& row) { return row.policy != to_string(ReadPolicy::kReuse); });
    reply_.policy = ReadPolicy::kFull;
    reply_.policy_reason = verdict.missing;
    if (!readings.empty()) {
      const engine::PolicyChoice choice = engine::choose_reading(
          readings, {reply_.usage.recalled_tokens / static_cast<int>(chosen.size()),
                     engine::storage_name(memory_.stored_kv), options_.max_kl, options_.max_f1_loss});
      reply_.policy = choice.policy;
      reply_.policy_reason = choice.reason;
    }
  }
  // Within a conversation there are two ways: stored KV, or text.
  if (reply_.policy != ReadPolicy::kReuse) reply_.policy = ReadPolicy::kFull;
}

Status ConversationTurn::find_outdated() {
  RH_TRY(const bool facts, memory_.catalog->has_facts());
  if (!facts) return {};
  SourceFilter ever = options_.filter;
  ever.sources.clear();
  ever.tags.clear();
  ever.history = true;
  RH_TRY(const store::Selection selection, memory_.selection(ever));
  RH_TRY(const std::vector<store::FactRow> rows, memory_.catalog->facts(selection));
  outdated_ = outdated_words(rows);
  return {};
}

Result<std::optional<Transcript>> ConversationTurn::without_outdated(
    const store::ConversationPassage& passage) const {
  if (outdated_.empty()) return std::optional<Transcript>();
  const int64_t end = passage.first_token + passage.tokens;
  RH_TRY(const std::vector<store::MessageRow> messages,
         conversation_.log.messages(conversation_.row.id, passage.first_token, end));
  const ConversationPiece piece{conversation_.row, passage.number, passage.first_token, end, messages};
  Transcript left = transcript_of(piece, memory_.passes->tokenizer(), outdated_);
  return left.shortened ? std::optional(std::move(left)) : std::nullopt;
}

// Pages of all: as computed where that is there, else of the passage alone.
Status ConversationTurn::load(std::vector<Chosen>& chosen) {
  std::vector<recall::KvWanted> wanted;
  std::vector<size_t> places;
  const uint64_t before = memory_.encoder->evaluated_tokens();
  for (size_t i = 0; i < chosen.size(); ++i) {
    Chosen& one = chosen[i];
    const int64_t id = one.found.passage.id;
    if (one.spill) {
      RH_TRY(one.pages, conversation_.load_as_computed(id, *one.spill, static_cast<int>(one.tokens.size())));
      if (!one.pages.empty()) continue;
      one.spill.reset();
      RH_TRY(one.alone,
             memory_.tokenizer->tokens(one.found.passage.id, one.found.passage.header, one.found.text));
      one.tokens = one.alone.tokens;
    }
    if (one.shortened) {
      RH_TRY(std::vector<recall::Encoded> encoded, memory_.encoder->encode(std::span(&one.alone, 1), false));
      one.pages = std::move(encoded.front().pages);
      one.miss = "what does not hold any more was left out of it";
      continue;
    }
    if (one.found.passage.tier == KvTier::kText) one.miss = "no KV of it was stored: made from its text";
    wanted.push_back({id, &one.alone});
    places.push_back(i);
  }
  RH_TRY(auto pages, memory_.tier->load(*memory_.catalog, wanted, memory_.upkeep()));
  for (size_t n = 0; n < places.size(); ++n) chosen[places[n]].pages = std::move(pages[n]);
  reply_.usage.evaluated_tokens += static_cast<int>(memory_.encoder->evaluated_tokens() - before);
  return {};
}

// Before the first document within a conversation; the prefix opens a block itself.
Result<std::vector<int32_t>> ConversationTurn::opening_tokens() const {
  if (conversation_.live_tokens() == 0 && view_.before.empty()) return std::vector<int32_t>{};
  return memory_.frame->documents_opening();
}

Status ConversationTurn::view_stored(std::vector<Chosen>& chosen) {
  for (Chosen& one : chosen) {
    ContextPart part{std::move(one.pages), one.tokens};
    if (one.conversation) {
      view_.before.push_back(std::move(part));
      continue;
    }
    if (view_.behind.empty()) {
      RH_TRY(const std::vector<int32_t> opening, opening_tokens());
      ContextPart& made = conversation_.opening;
      if (!opening.empty() && made.tokens.empty()) {
        const recall::PassageTokens tokens{opening, 0, 0};
        RH_TRY(std::vector<recall::Encoded> encoded, memory_.encoder->encode(std::span(&tokens, 1), false));
        made = {std::move(encoded.front().pages), opening};
        reply_.usage.evaluated_tokens += static_cast<int>(opening.size());
      }
      if (!opening.empty()) {
        ContextPart shared{{}, opening};
        for (const store::PagePin& page : made.pages) shared.pages.push_back(page.share());
        view_.behind.push_back(std::move(shared));
      }
    }
    view_.behind.push_back(std::move(part));
  }
  return {};
}

// Each kind as one text where it stands: exact.
Status ConversationTurn::view_evaluated(std::vector<Chosen>& chosen) {
  std::vector<int32_t> said;
  std::vector<int32_t> documents;
  for (const Chosen& one : chosen) {
    std::vector<int32_t>& to = one.conversation ? said : documents;
    to.insert(to.end(), one.tokens.begin(), one.tokens.end());
  }
  reply_.usage.evaluated_tokens += static_cast<int>(said.size() + documents.size());
  if (!said.empty()) {
    RH_TRY(PromptParts parts, conversation_.context(view_, false));
    RH_TRY(ContextPart part, conversation_.evaluate_part(std::move(parts), std::move(said)));
    view_.before.push_back(std::move(part));
  }
  if (documents.empty()) return {};
  RH_TRY(const std::vector<int32_t> opening, opening_tokens());
  documents.insert(documents.begin(), opening.begin(), opening.end());
  reply_.usage.evaluated_tokens += static_cast<int>(opening.size());
  RH_TRY(PromptParts parts, conversation_.context(view_, true));
  RH_TRY(ContextPart part, conversation_.evaluate_part(std::move(parts), std::move(documents)));
  view_.behind.push_back(std::move(part));
  return {};
}

void ConversationTurn::report(std::vector<Chosen>& chosen) {
  const bool stored = reply_.policy == ReadPolicy::kReuse;
  view_.names = to_string(reply_.policy);
  for (Chosen& one : chosen) {
    RecalledPassage recalled;
    recalled.tokens = static_cast<int>(one.tokens.size());
    recalled.conversation = one.conversation;
    recalled.as_computed = stored && one.spill.has_value();
    (stored ? recalled.reading.approximate_tokens : recalled.reading.exact_tokens) = recalled.tokens;
    recalled.reading.miss = stored ? one.miss : "it is evaluated as text";
    view_.contents.insert(one.content);
    view_.names += fmt::format(";{}", one.found.passage.id);
    if (recalled.as_computed) {
      view_.leaned_on[one.found.passage.id] = one.spill->fingerprint;
      view_.names += one.spill->fingerprint;
    }
    recalled.found = std::move(one.found);
    reply_.recalled.push_back(std::move(recalled));
  }
}

}  // namespace rhapsode
