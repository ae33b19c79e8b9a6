// How the chosen passages become context: placed, brought into memory, blended.
#include <algorithm>
#include <cmath>

#include "engine/asking.h"
#include "engine/page_difference.h"
#include "engine/runner_options.h"
#include "engine/verdict.h"

namespace rhapsode {

using recall::PassageTokens;

// What was asked for by name, else what the model's verdict allows.
void Memory::Asking::choose_policy() {
  blend_options_ = options_.blend;
  if (options_.policy != ReadPolicy::kAuto) {
    answer_.policy = options_.policy;
    answer_.policy_reason = "asked for";
    return;
  }
  const engine::FoundVerdict& verdict = memory_.verdict();
  if (verdict.readings.empty()) {
    answer_.policy = ReadPolicy::kPrefix;
    answer_.policy_reason = verdict.missing;
    return;
  }
  std::vector<model::MeasuredReading> readings = verdict.readings;
  if (options_.order == ReadOrder::kParallel) {
    std::erase_if(readings, [](const auto& row) { return row.policy != to_string(ReadPolicy::kReuse); });
  }
  const auto passages = std::max<int>(1, static_cast<int>(reading_.passages.size()));
  engine::PolicyChoice choice = engine::choose_reading(
      readings, {reading_.memory_tokens / passages, engine::storage_name(memory_.stored_kv), options_.max_kl,
                 options_.max_f1_loss});
  answer_.policy = choice.policy;
  answer_.policy_reason = std::move(choice.reason);
  if (choice.policy == ReadPolicy::kBlend) blend_options_ = choice.blend;
}

Status Memory::Asking::place() {
  choose_policy();
  if (answer_.policy == ReadPolicy::kReorder) reorder();
  if (options_.order == ReadOrder::kParallel && answer_.policy == ReadPolicy::kBlend) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "passages that share positions cannot be blended: read them in sequence, or reuse them");
  }
  if (options_.order == ReadOrder::kParallel && answer_.policy != ReadPolicy::kReuse) {
    return make_error(ErrorKind::kInvalidArgument,
                      "passages can share positions only when their KV is reused; the policy is {}",
                      to_string(answer_.policy));
  }
  return set_places();
}

Status Memory::Asking::set_places() {
  RH_TRY(reading_.tail, memory_.frame->tail(options_.question, options_.history));
  const auto start = static_cast<int32_t>(memory_.frame->prefix().size());
  int32_t position = start;
  for (const PassageTokens& tokens : reading_.tokens) {
    const auto count = static_cast<int32_t>(tokens.tokens.size());
    const bool parallel = options_.order == ReadOrder::kParallel;
    reading_.shifts.push_back(parallel ? start : position);
    position = parallel ? std::max(position, start + count) : position + count;
  }
  reading_.tail_position = position;
  const int64_t needed = static_cast<int64_t>(start) + reading_.memory_tokens +
                         static_cast<int64_t>(reading_.tail.size() + options_.begin.size()) +
                         options_.max_tokens;
  if (needed > memory_.engine->context_tokens) {
    return make_error(ErrorKind::kTooLarge,
                      "{} tokens of memory, {} of question and history and {} for the answer do not fit the "
                      "context of {}: read less with --budget, or raise --context",
                      start + reading_.memory_tokens, reading_.tail.size(), options_.max_tokens,
                      memory_.engine->context_tokens);
  }
  return {};
}

// The same passages, so that the longest known beginning of a prompt is met: greedily, the one whose KV is
// cached behind those already placed; the rest as they were, the best one last.
void Memory::Asking::reorder() {
  std::vector<int32_t> placed = memory_.frame->prefix();
  const auto with = [&](const PassageTokens& passage) {
    std::vector<int32_t> tokens = placed;
    tokens.insert(tokens.end(), passage.tokens.begin(), passage.tokens.end());
    return tokens;
  };
  const size_t count = reading_.tokens.size();
  for (size_t next = 0; next < count; ++next) {
    size_t best = count;
    int longest = static_cast<int>(placed.size());
    for (size_t i = next; i < count; ++i) {
      const int cached = memory_.engine->scheduler->cached_prefix({}, with(reading_.tokens[i]));
      if (cached > longest) {
        longest = cached;
        best = i;
      }
    }
    if (best == count) return;
    const auto to_front = [&](auto& values) {
      std::rotate(values.begin() + next, values.begin() + best, values.begin() + best + 1);
    };
    to_front(reading_.passages);
    to_front(reading_.tokens);
    to_front(reading_.kinds);
    placed = with(reading_.tokens[next]);
  }
}

bool Memory::Asking::reads_stored() const {
  return answer_.policy == ReadPolicy::kReuse || answer_.policy == ReadPolicy::kBlend;
}

// Brings the KV of every passage, and notes why it had to be made where it was not there.
Status Memory::Asking::load_pages() {
  std::vector<recall::KvWanted> wanted;
  for (size_t i = 0; i < reading_.passages.size(); ++i) {
    const PassageInfo& info = reading_.passages[i].passage;
    wanted.push_back({info.id, &reading_.tokens[i]});
    const bool absent = info.tier == KvTier::kText;
    reading_.misses.push_back(absent ? "no KV of it was stored: made from its text" : "");
  }
  recall::KvUpkeep upkeep = memory_.upkeep();
  const auto quarantine = std::move(upkeep.quarantine);
  upkeep.quarantine = [&](int64_t passage) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].passage == passage) reading_.misses[i] = "its stored KV is damaged: made from its text";
    }
    if (quarantine) quarantine(passage);
  };
  upkeep.outrun = [&](int64_t passage) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].passage == passage) {
        reading_.misses[i] = "made from its text, which was faster than reading its stored KV";
      }
    }
  };
  RH_TRY(recall::LoadedKv loaded, memory_.tier->begin_load(*memory_.catalog, wanted, upkeep));
  reading_.pages = std::move(loaded.pages);
  reading_.coming = std::make_shared<recall::LoadedKv>(std::move(loaded));
  return {};
}

Status Memory::Asking::load() {
  if (!reads_stored()) return {};
  const int64_t begin = now_ns();
  const uint64_t before = memory_.encoder->evaluated_tokens();
  RH_TRY_STATUS(load_pages());
  // What had to be made from text was evaluated for this answer, and is not counted as cached again.
  reading_.made_tokens = static_cast<int>(memory_.encoder->evaluated_tokens() - before);
  answer_.timing.load_ms += ms_between(begin, now_ns());
  return {};
}

// The first passage stands where it was encoded: nothing but the prefix is in front of it.
bool Memory::Asking::first_is_exact() const {
  return options_.order == ReadOrder::kSequential && memory_.stored_kv == memory_.passes->kv_shape().type;
}

// Inverse frequency of tokens over the memory's passages, as routing weighs them.
Result<std::vector<double>> Memory::Asking::rarity(std::span<const int32_t> tokens) const {
  RH_TRY(const store::TokenFrequencies frequencies, memory_.catalog->token_frequencies(tokens));
  std::vector<double> rarities;
  for (const auto count : frequencies.counts) {
    rarities.push_back(
        recall::inverse_frequency(static_cast<double>(frequencies.passages), static_cast<double>(count)));
  }
  return rarities;
}

Status Memory::Asking::blend() {
  if (answer_.policy != ReadPolicy::kBlend) return {};
  const int64_t begin = now_ns();
  RH_TRY(const std::vector<int32_t> question, memory_.frame->routing_question(options_.question));
  RH_TRY(const std::span<const store::PagePin> prefix, memory_.encoder->prefix_pages());
  std::vector<recall::BlendPassage> passages;
  for (size_t i = 0; i < reading_.tokens.size(); ++i) {
    passages.push_back(
        {reading_.pages[i], &reading_.tokens[i], reading_.shifts[i], i == 0 && first_is_exact()});
  }
  recall::BlendContext context;
  recall::add_references(prefix, static_cast<int>(memory_.frame->prefix().size()), 0, context.prefix);
  context.passages = passages;
  context.question = question;
  context.question_position = reading_.tail_position;
  const auto selector = recall::make_selector(
      blend_options_.selector,
      {memory_.passes.get(), [this](auto tokens) { return rarity(tokens); }, blend_options_.seed});
  RH_TRY(reading_.blend, recall::blend(*memory_.passes, context, *selector, blend_options_));
  answer_.usage.probe_tokens += static_cast<int>(reading_.blend.selection.rows);
  answer_.timing.blend_ms += ms_between(begin, now_ns());
  return {};
}

std::vector<int32_t> Memory::Asking::prompt() const {
  std::vector<int32_t> tokens = memory_.frame->prefix();
  for (const PassageTokens& passage : reading_.tokens) {
    tokens.insert(tokens.end(), passage.tokens.begin(), passage.tokens.end());
  }
  tokens.insert(tokens.end(), reading_.tail.begin(), reading_.tail.end());
  tokens.insert(tokens.end(), options_.begin.begin(), options_.begin.end());
  return tokens;
}

// A request that reads what was chosen, the way that was chosen.
Result<std::shared_ptr<Generation::State>> Memory::Asking::reader(Request request) {
  auto state = std::make_shared<State>(std::move(request), *memory_.engine->pool);
  state->submitted_ns = now_ns();
  state->use_prefix_cache = answer_.policy != ReadPolicy::kFull;
  RH_TRY_STATUS(read_into(*state));
  return state;
}

Status Memory::Asking::read_into(State& state) {
  state.runs.clear();
  state.fresh = {};
  state.arrive = nullptr;
  if (!reads_stored()) return {};
  RH_TRY(const std::span<const store::PagePin> prefix, memory_.encoder->prefix_pages());
  const auto add_run = [&](std::span<const store::PagePin> pages, size_t tokens, int32_t shift) {
    engine::ContextRun run{{}, static_cast<int>(tokens), shift, {}};
    for (const store::PagePin& page : pages) run.pages.push_back(page.share());
    state.runs.push_back(std::move(run));
  };
  std::string provenance = memory_.kv_fingerprint;
  add_run(prefix, memory_.frame->prefix().size(), 0);
  for (size_t i = 0; i < reading_.passages.size(); ++i) {
    add_run(reading_.pages[i], reading_.tokens[i].tokens.size(), reading_.shifts[i]);
    if (!reading_.blend.left_out.empty()) state.runs.back().left_out = reading_.blend.left_out[i];
    provenance += fmt::format(";{}@{}", reading_.passages[i].passage.id, reading_.shifts[i]);
  }
  state.blended = reading_.blend.tokens;
  state.fresh.count = reading_.blend.fresh.count;
  for (const store::PagePin& page : reading_.blend.fresh.pages) state.fresh.pages.push_back(page.share());
  state.prefix_key = {"reuse", provenance};
  state.arrive = [coming = reading_.coming] { return coming->finish(); };
  return {};
}

// Every so-manieth passage read is checked, whatever is asked; where counting begins is drawn, so that
// programs that ask once take their share too.
Status Memory::Asking::check_self() {
  if (!reads_stored() || options_.self_check <= 0 || reading_.passages.empty()) return {};
  memory_.unchecked_reads +=
      std::min(options_.self_check, 1.0) * static_cast<double>(reading_.passages.size());
  if (memory_.unchecked_reads < 1) return {};
  memory_.unchecked_reads -= std::floor(memory_.unchecked_reads);
  const size_t index = memory_.self_checks++ % reading_.passages.size();
  const PassageTokens& tokens = reading_.tokens[index];
  SelfCheck& check = answer_.self_check;
  check.passage = reading_.passages[index].passage.id;
  const uint64_t before = memory_.encoder->evaluated_tokens();
  RH_TRY(const std::vector<recall::Encoded> fresh, memory_.encoder->encode(std::span(&tokens, 1), false));
  answer_.usage.probe_tokens += static_cast<int>(memory_.encoder->evaluated_tokens() - before);
  RH_TRY(check.difference,
         engine::page_difference(memory_.passes->kv_shape(), reading_.pages[index], fresh.front().pages,
                                 static_cast<int>(tokens.tokens.size())));
  if (check.difference <= engine::kMostPageDifference) return {};
  check.problem = fmt::format("the KV read of {} at byte {} differs from a fresh one by {:.2f} of its size",
                              reading_.passages[index].passage.source,
                              reading_.passages[index].passage.start_byte, check.difference);
  const recall::KvUpkeep upkeep = memory_.upkeep();
  if (upkeep.quarantine) upkeep.quarantine(check.passage);
  memory_.tier->drop(check.passage);
  return {};
}

void Memory::Asking::account(const Reading& reading, const Usage& spent) {
  AskUsage& usage = answer_.usage;
  const int made = reading.made_tokens;
  usage.prompt_tokens += spent.prompt_tokens;
  usage.cached_tokens += spent.cached_tokens - made;
  usage.recomputed_tokens += reading.blend.recomputed();
  usage.evaluated_tokens += spent.evaluated_tokens + made;
  const bool stored = reads_stored();
  int end = static_cast<int>(memory_.frame->prefix().size());
  const int cached = std::max(spent.cached_tokens, end);
  usage.charged_tokens += stored ? made + reading.blend.recomputed() + reading.blend.selection.charged
                                 : std::max(0, end + reading.memory_tokens - cached);
  TracedRouting& routing = trace_.routings[reading.routing];
  routing.evaluated_tokens = spent.evaluated_tokens + made;
  answer_.readings.clear();
  for (size_t i = 0; i < reading.passages.size(); ++i) {
    const auto tokens = static_cast<int>(reading.tokens[i].tokens.size());
    end += tokens;
    PassageReading how;
    if (stored) {
      const bool exact = i == 0 && first_is_exact();
      const auto& left_out = reading.blend.left_out;
      how.recomputed_tokens = left_out.empty() ? 0 : static_cast<int>(left_out[i].size());
      (exact ? how.exact_tokens : how.approximate_tokens) = tokens - how.recomputed_tokens;
      how.miss = reading.misses[i];
    } else {
      how.exact_tokens = tokens;
      if (answer_.policy == ReadPolicy::kFull) {
        how.miss = "the policy evaluates all text";
      } else if (cached < end) {
        how.miss = fmt::format("what is cached of this prompt ends at its token {}", cached);
      }
    }
    routing.places.push_back({reading.passages[i].passage.id, reading.shifts[i], tokens, how});
    answer_.readings.push_back(std::move(how));
  }
}

}  // namespace rhapsode
