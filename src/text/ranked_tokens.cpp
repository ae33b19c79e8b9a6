#include "text/ranked_tokens.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace rhapsode::text {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr size_t kFirstGroup = 256;  // sorted at once; later groups are larger
constexpr size_t kSamples = 1024;

bool before(const llama_token_data& a, const llama_token_data& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

double exp_of(float logit, double unit) {
  return std::exp(static_cast<double>(logit) - unit);
}

// As llama.cpp's `dist`, so that a seed gives the tokens it gives there.
int32_t draw_of(std::span<llama_token_data> tokens, float highest, float temperature, std::mt19937& random) {
  double sum = 0;
  for (llama_token_data& token : tokens) {
    token.p = std::exp(token.logit / temperature - highest / temperature);
    sum += token.p;
  }
  const double target = sum * std::uniform_real_distribution<double>(0, 1)(random);
  double running = 0;
  for (const llama_token_data& token : tokens) {
    running += token.p;
    if (running >= target) return token.id;
  }
  return tokens.back().id;
}

}  // namespace

void RankedTokens::assign(std::span<const float> row) {
  tokens_.clear();
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != kImpossible) tokens_.push_back({static_cast<int32_t>(i), row[i], 0.0f});
  }
  sorted_ = 0;
  all_ = from_row_ = true;
}

void RankedTokens::assign(const Candidates& candidates, const std::unordered_map<int32_t, int>& penalties,
                          float penalty) {
  const size_t count = candidates.tokens.size();
  tokens_.clear();
  from_row_ = false;
  all_ = candidates.all;
  unit_ = candidates.logits.front();
  error_ = kMassError * candidates.exp_sum;
  double raw = 0;
  size_t fallen = 0;
  for (size_t i = 0; i < count; ++i) {
    llama_token_data token{candidates.tokens[i], candidates.logits[i], 0.0f};
    raw += exp_of(token.logit, unit_);
    if (penalty != 1 && penalties.contains(token.id)) {
      token.logit = penalised(token.logit, penalty);
      ++fallen;
    }
    if (token.logit != kImpossible) tokens_.push_back(token);
  }
  const llama_token_data last{candidates.tokens.back(), candidates.logits.back(), 0.0f};
  const double others = all_ ? 0 : std::max(0.0, candidates.exp_sum - raw);
  const double unknown_falls = penalty == 1 ? 0 : static_cast<double>(penalties.size() - fallen);
  rest_ = {std::max(0.0, others - unknown_falls * exp_of(last.logit, unit_)), others};
  if (fallen > 0) std::sort(tokens_.begin(), tokens_.end(), before);
  // Others of the row may stand before what fell behind the last candidate's place.
  while (!all_ && !tokens_.empty() && before(last, tokens_.back())) {
    const double behind = exp_of(tokens_.back().logit, unit_);
    rest_ = {rest_.low + behind, rest_.high + behind};
    tokens_.pop_back();
  }
  sorted_ = tokens_.size();
}

void RankedTokens::keep_allowed(llama_sampler* grammar) {
  const bool in_order = sorted_ == tokens_.size();
  llama_token_data_array list{tokens_.data(), tokens_.size(), -1, false};
  llama_sampler_apply(grammar, &list);
  std::erase_if(tokens_, [](const llama_token_data& token) { return token.logit == kImpossible; });
  sorted_ = in_order ? tokens_.size() : 0;
  rest_.low = 0;
}

const llama_token_data* RankedTokens::at(size_t n) {
  if (n >= tokens_.size()) return nullptr;
  if (n >= sorted_) sort_to(std::max({n + 1, kFirstGroup, sorted_ * 16}));
  return &tokens_[n];
}

// A bound that about as many reach as are wanted is guessed from samples: sorting what reaches it is faster
// than keeping a heap of many in a row of very many.
void RankedTokens::sort_to(size_t wanted) {
  const auto begin = tokens_.begin() + static_cast<ptrdiff_t>(sorted_);
  const size_t left = tokens_.size() - sorted_;
  const size_t more = std::min(wanted - sorted_, left);
  const size_t place = more * kSamples / left + kSamples / 128;
  if (more > kFirstGroup && place < kSamples) {
    std::vector<float> samples;
    for (size_t i = 0; i < kSamples; ++i)
      samples.push_back(begin[static_cast<ptrdiff_t>(i * left / kSamples)].logit);
    const auto bound = samples.begin() + static_cast<ptrdiff_t>(place);
    std::nth_element(samples.begin(), bound, samples.end(), std::greater<>());
    const auto end =
        std::partition(begin, tokens_.end(), [&](const auto& token) { return token.logit >= *bound; });
    std::sort(begin, end, before);
    sorted_ = static_cast<size_t>(end - tokens_.begin());
    if (sorted_ >= wanted) return;
  }
  const size_t target = std::min(std::max(wanted, sorted_), tokens_.size());
  std::partial_sort(tokens_.begin() + static_cast<ptrdiff_t>(sorted_),
                    tokens_.begin() + static_cast<ptrdiff_t>(target), tokens_.end(), before);
  sorted_ = target;
}

float RankedTokens::highest() const {
  if (sorted_ > 0) return tokens_.front().logit;
  return std::max_element(tokens_.begin(), tokens_.end(),
                          [](const auto& a, const auto& b) { return a.logit < b.logit; })
      ->logit;
}

RankedTokens::Bounds RankedTokens::mass(int top_k) {
  const auto unit = static_cast<double>(highest());
  const size_t most = top_k > 0 ? static_cast<size_t>(top_k) : std::numeric_limits<size_t>::max();
  const size_t count = std::min(most, tokens_.size());
  if (top_k > 0) at(count - 1);
  double listed = 0;
  for (size_t i = 0; i < count; ++i) listed += exp_of(tokens_[i].logit, unit);
  // A sum over the first k is the same wherever they come from; one over all depends on their order.
  if (from_row_ || (top_k > 0 && (count == most || all_))) return {listed, listed};
  const double scale = std::exp(unit_ - unit);
  const double low = top_k > 0 ? 0 : rest_.low;
  return {listed + (low - error_) * scale, listed + (rest_.high + error_) * scale};
}

std::optional<size_t> RankedTokens::kept(const SamplingOptions& options) {
  const float least = options.min_p > 0 ? highest() + std::log(options.min_p) : kImpossible;
  const double share = options.top_p;
  const Bounds whole = share < 1 ? mass(options.top_k) : Bounds{};
  double sum = 0;
  for (size_t n = 0;; ++n) {
    if (options.top_k > 0 && n == static_cast<size_t>(options.top_k)) return n;
    if (share < 1 && n > 0 && sum >= share * whole.high) return n;
    const llama_token_data* token = at(n);
    if (!token) return all_ ? std::optional(n) : std::nullopt;
    if (n > 0 && token->logit < least) return n;
    if (share < 1 && n > 0 && !(sum < share * whole.low)) return std::nullopt;
    if (share < 1) sum += exp_of(token->logit, highest());
  }
}

std::optional<int32_t> RankedTokens::draw(const SamplingOptions& options, std::mt19937& random) {
  if (tokens_.empty()) return std::nullopt;
  const float top = highest();
  // Where nothing needs an order, tokens keep that of their ids, as in llama.cpp.
  const bool by_id = options.top_k == 0 && options.top_p >= 1;
  size_t count = 0;
  if (by_id && from_row_) {
    const float least = options.min_p > 0 ? top + std::log(options.min_p) : kImpossible;
    std::erase_if(tokens_, [&](const llama_token_data& token) { return token.logit < least; });
    count = tokens_.size();
  } else {
    const std::optional<size_t> first = kept(options);
    if (!first) return std::nullopt;
    count = *first;
  }
  const auto chosen = std::span(tokens_).first(count);
  if (by_id && !from_row_) {
    std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    sorted_ = 0;
  }
  return draw_of(chosen, top, options.temperature, random);
}

}  // namespace rhapsode::text
