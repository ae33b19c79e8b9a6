#include "recall/blender.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rhapsode::recall {

namespace {

Status check_sequential(const BlendContext& context) {
  for (size_t p = 1; p < context.passages.size(); ++p) {
    const BlendPassage& before = context.passages[p - 1];
    if (context.passages[p].shift < before.shift + before.size()) {
      return make_error(
          ErrorKind::kInvalidArgument,
          "passages that share positions cannot be blended: read them in sequence, or reuse them "
          "as they are");
    }
  }
  return {};
}

// The tokens of a blend that one round chose, evaluated where they stand: they see what is fresh so far, one
// another, and the rest as it was stored.
Status evaluate(PassRunner& runner, const BlendContext& context, Blend& blend) {
  const std::vector<BlendedToken> rows = std::exchange(blend.tokens, {});
  const auto count = static_cast<int>(rows.size());
  RH_TRY(std::vector<store::PagePin> pages, runner.take_pages(pages_for(count)));
  for (int i = 0; i < count; ++i) {
    pages[i / kernels::kPageTokens]->positions[i % kernels::kPageTokens] = rows[i].position;
    pages[i / kernels::kPageTokens]->consecutive = false;
  }
  const ReadReferences read = read_references(context);
  for (int begin = 0; begin < count;) {
    const int end = std::min(count, begin + runner.most_rows());
    PassBatch batch;
    batch.plan.sequences.push_back({0, end - begin, read.references, {}, {}});
    add_references(pages, end, 0, batch.plan.sequences.front().references);
    for (int i = begin; i < end; ++i) {
      batch.tokens.push_back(rows[i].token);
      batch.plan.positions.push_back(rows[i].position);
      batch.plan.writes.push_back({pages[i / kernels::kPageTokens].get(), i % kernels::kPageTokens});
    }
    RH_TRY_STATUS(runner.run(batch, model::PassGoal::kEncode, [](std::span<const float>) {}));
    set_filled(pages, end);
    begin = end;
  }
  for (store::PagePin& page : pages) blend.fresh.pages.push_back(std::move(page));
  blend.fresh.count += count;
  return {};
}

// Adds the best of a ranking that were not chosen yet; blend.tokens, empty before, holds them by position.
// They are thousands: marks, instead of sorted lists to insert into.
void choose(const BlendContext& context, const Ranking& ranking, size_t wanted, Blend& blend) {
  enum Mark : uint8_t { kFree, kEarlier, kNow };
  std::vector<std::vector<Mark>> marks;
  for (size_t p = 0; p < context.passages.size(); ++p) {
    marks.emplace_back(static_cast<size_t>(context.passages[p].size()), kFree);
    for (const int32_t token : blend.left_out[p]) marks[p][token] = kEarlier;
  }
  for (const auto& [passage, token] : ranking) {
    if (wanted == 0) break;
    if (marks[passage][token] != kFree) continue;
    marks[passage][token] = kNow;
    --wanted;
  }
  for (size_t p = 0; p < context.passages.size(); ++p) {
    const BlendPassage& read = context.passages[p];
    blend.left_out[p].clear();
    for (int token = 0; token < read.size(); ++token) {
      if (marks[p][token] == kFree) continue;
      blend.left_out[p].push_back(token);
      if (marks[p][token] == kNow) blend.tokens.push_back({read.tokens->tokens[token], read.shift + token});
    }
  }
}

Status check_options(const BlendOptions& options) {
  if (!(options.share >= 0 && options.share <= 1)) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a blend of {} of the tokens has no meaning: give a share from 0 to 1", options.share);
  }
  if (options.rounds < 1 || options.rounds > kMostBlendRounds) {
    return make_error(ErrorKind::kInvalidArgument, "a blend cannot be chosen in {} rounds: give 1 to {}",
                      options.rounds, kMostBlendRounds);
  }
  return {};
}

}  // namespace

Result<Blend> blend(PassRunner& runner, const BlendContext& context, TokenSelector& selector,
                    const BlendOptions& options) {
  RH_TRY_STATUS(check_options(options));
  RH_TRY_STATUS(check_sequential(context));
  Blend result;
  result.left_out.resize(context.passages.size());
  const auto total = static_cast<size_t>(context.tokens());
  const auto wanted = static_cast<size_t>(std::llround(options.share * static_cast<double>(total)));
  const auto rounds = wanted == total ? 1 : static_cast<size_t>(options.rounds);
  BlendContext now = context;
  for (size_t round = 0; round < rounds; ++round) {
    const size_t chosen_then = wanted * (round + 1) / rounds;
    const size_t more = chosen_then - wanted * round / rounds;
    if (more == 0) continue;
    if (!result.tokens.empty()) {
      RH_TRY_STATUS(evaluate(runner, now, result));
      now.fresh.clear();
      for (const store::PagePin& page : result.fresh.pages) {
        now.fresh.push_back({page.get(), 0, false, kernels::first_slots(page->count)});
      }
    }
    // Those of earlier rounds may be ranked again.
    RH_TRY(const Ranking ranking, selector.rank(now, chosen_then));
    result.selection.rows += selector.cost().rows;
    result.selection.charged += selector.cost().charged;
    choose(context, ranking, more, result);
    now.left_out = result.left_out;
  }
  return result;
}

}  // namespace rhapsode::recall
