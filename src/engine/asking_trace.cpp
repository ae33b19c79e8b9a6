// Where attention went while one ask() was answered.
#include <algorithm>
#include <map>

#include "engine/asking.h"

namespace rhapsode {

using kernels::kPageTokens;

// Groups: each passage, then what stands before them, what stands behind, and the answer. Shared pages belong
// to what they were read for; the rows of the request itself, blended ones among them, to what stands at
// their positions.
recall::MeteredContext Memory::Asking::metered(const State& state) const {
  recall::MeteredContext context;
  context.references = state.sequence.references();
  const auto passages = static_cast<int32_t>(reading_.passages.size());
  context.group_count = passages + 3;
  std::map<const kernels::Page*, int32_t> shared;
  if (reads_stored()) {
    for (size_t i = 0; i < reading_.passages.size(); ++i) {
      for (const store::PagePin& page : reading_.pages[i]) shared[page.get()] = static_cast<int32_t>(i);
    }
  }
  const auto answer = reading_.tail_position + static_cast<int32_t>(reading_.tail.size());
  const auto group_at = [&](int32_t position) {
    if (position >= answer) return passages + 2;
    if (position >= reading_.tail_position) return passages + 1;
    for (int32_t i = passages - 1; i >= 0; --i) {
      if (position >= reading_.shifts[static_cast<size_t>(i)]) return i;
    }
    return passages;
  };
  context.groups.reserve(context.references.size() * kPageTokens);
  for (const kernels::PageReference& reference : context.references) {
    const auto owner = shared.find(reference.page);
    for (int slot = 0; slot < kPageTokens; ++slot) {
      const int32_t position = reference.shift + reference.page->positions[slot];
      context.groups.push_back(owner != shared.end() ? owner->second : group_at(position));
    }
  }
  return context;
}

Status Memory::Asking::measure(const State& state, const std::vector<GeneratedToken>& told) {
  const int64_t begin = now_ns();
  const size_t before_answer = state.tokens.size() - told.size();
  const size_t before_tail = before_answer - options_.begin.size() - reading_.tail.size();
  std::vector<recall::MeteredRow> rows;
  for (size_t i = trace_.tokens.size(); i < told.size(); ++i) {
    // The row before a token chose it.
    const size_t row = before_answer + i - 1;
    if (static_cast<int>(row) >= state.sequence.tokens()) break;
    rows.push_back({state.tokens[row], reading_.tail_position + static_cast<int32_t>(row - before_tail)});
  }
  RH_TRY(const auto shares, recall::attention_shares(*memory_.passes, metered(state), rows));
  const size_t passages = reading_.passages.size();
  reading_.attention.resize(passages);
  for (const std::vector<float>& share : shares) {
    TracedToken token;
    token.token = told[trace_.tokens.size()].token;
    token.text = memory_.passes->tokenizer().piece(token.token);
    token.routing = static_cast<int>(reading_.routing);
    token.passages.assign(share.begin(), share.begin() + static_cast<int64_t>(passages));
    token.prefix = share[passages];
    token.question = share[passages + 1];
    token.answer = share[passages + 2];
    for (size_t i = 0; i < passages; ++i) reading_.attention[i] += share[i];
    trace_.tokens.push_back(std::move(token));
  }
  answer_.usage.probe_tokens += static_cast<int>(rows.size());
  trace_.probe_tokens += static_cast<int>(rows.size());
  trace_.probe_ms += ms_between(begin, now_ns());
  return {};
}

void Memory::Asking::finish_trace(const State& state, const Response& response) {
  if (const Status measured = measure(state, response.tokens); !measured.ok()) {
    // The answer has been told; its trace ends where it could not be measured.
    problems_.push_back("attention could not be measured to the end: " + measured.error().message);
  }
  const std::vector<double>& entropies = watch_.entropies();
  for (size_t i = 0; i < trace_.tokens.size() && i < entropies.size(); ++i) {
    trace_.tokens[i].entropy = entropies[i];
  }
}

}  // namespace rhapsode
