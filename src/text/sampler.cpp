#include "text/sampler.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "base/result.h"
#include "text/gbnf.h"
#include "text/json_schema.h"
#include "text/library_log.h"
#include "text/logits.h"

namespace rhapsode::text {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kLowestTemperature = 1e-3f;  // below, logits divided by it may overflow

Error out_of_range(const char* name, double value, const char* range) {
  return make_error(ErrorKind::kInvalidArgument, "{} is {}; it must be {}", name, value, range);
}

Error dead_end() {
  return make_error(ErrorKind::kUnsupported,
                    "no token of the vocabulary can continue the text as the grammar asks");
}

Error choice_failed(const std::exception& exception) {
  return make_error(ErrorKind::kInternal, "choosing a token failed: {}", exception.what());
}

Status check(const SamplingOptions& options) {
  const float temperature = options.temperature;
  if (temperature != 0 && !(temperature >= kLowestTemperature && temperature <= 1000)) {
    return out_of_range("temperature", temperature, "0 (greedy) or from 0.001 to 1000");
  }
  if (options.top_k < 0) return out_of_range("top_k", options.top_k, "0 (off) or more");
  if (!(options.top_p > 0 && options.top_p <= 1))
    return out_of_range("top_p", options.top_p, "above 0, at most 1 (off)");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    return out_of_range("min_p", options.min_p, "from 0 (off) to 1");
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 1000)) {
    return out_of_range("repetition_penalty", options.repetition_penalty, "above 0, at most 1000; 1 is off");
  }
  if (options.repetition_window < -1)
    return out_of_range("repetition_window", options.repetition_window, "-1 (all) or more");
  if (!options.grammar.empty() && !options.json_schema.empty()) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a grammar and a JSON schema exclude each other: give one");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Sampler>> Sampler::make(const Tokenizer& tokenizer, const SamplingOptions& options) {
  RH_TRY_STATUS(check(options));
  std::unique_ptr<Sampler> sampler(new Sampler(tokenizer.shared_from_this(), options));
  if (!options.grammar.empty() || !options.json_schema.empty()) RH_TRY_STATUS(sampler->make_grammar());
  return sampler;
}

Sampler::Sampler(std::shared_ptr<const Tokenizer> tokenizer, const SamplingOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options), random_(options.seed) {}

Status Sampler::make_grammar() {
  std::string gbnf = options_.grammar;
  if (!options_.json_schema.empty()) {
    RH_TRY(gbnf, grammar_of_json_schema(options_.json_schema));
  }
  RH_TRY_STATUS(check_gbnf(gbnf, [this](std::string_view name) {
    auto ids = tokenizer_->encode(name, {.parse_special = true});
    return ids.ok() && ids->size() == 1;
  }));
  const LibraryLog log;
  try {
    grammar_.reset(llama_sampler_init_grammar(tokenizer_->vocab(), gbnf.c_str(), "root"));
  } catch (const std::exception& exception) {
    return make_error(ErrorKind::kInvalidArgument, "grammar: {}", exception.what());
  }
  if (grammar_) return {};
  return make_error(ErrorKind::kInvalidArgument, "grammar: {}", log.last_complaint());
}

std::unique_ptr<Sampler> Sampler::clone() const {
  std::unique_ptr<Sampler> copy(new Sampler(tokenizer_, options_));
  if (grammar_) copy->grammar_.reset(llama_sampler_clone(grammar_.get()));
  copy->window_ = window_;
  copy->counts_ = counts_;
  copy->random_ = random_;
  return copy;
}

Result<int32_t> Sampler::sample(std::span<const float> logits) {
  const auto vocabulary = static_cast<size_t>(tokenizer_->size());
  if (logits.size() < vocabulary) {
    return make_error(ErrorKind::kInvalidArgument, "{} logits for a vocabulary of {} tokens", logits.size(),
                      vocabulary);
  }
  const std::span<const float> row = penalised_row(logits.first(vocabulary));
  RH_TRY(const int32_t likeliest, argmax(row));
  try {
    if (options_.temperature == 0 && (!grammar_ || grammar_allows(likeliest))) return likeliest;
    const std::optional<int32_t> token = choose([&] { ranked_.assign(row); });
    return token ? Result<int32_t>(*token) : dead_end();
  } catch (const std::exception& exception) {
    return choice_failed(exception);
  }
}

Result<std::optional<int32_t>> Sampler::sample(const Candidates& candidates) {
  const bool decide = !candidates.broken && !candidates.tokens.empty() && options_.repetition_penalty >= 1;
  if (!decide) return std::optional<int32_t>();
  if (options_.temperature == 0 && !grammar_ && counts_.empty())
    return std::optional(candidates.tokens.front());
  // Only a refused draw is spent before the whole row turns out to be needed.
  const std::optional<std::mt19937> before = grammar_ ? std::optional(random_) : std::nullopt;
  try {
    const std::optional<int32_t> token =
        choose([&] { ranked_.assign(candidates, counts_, options_.repetition_penalty); });
    if (!token && before) random_ = *before;
    return token;
  } catch (const std::exception& exception) {
    return choice_failed(exception);
  }
}

bool Sampler::takes_candidates(size_t count) const {
  if (options_.repetition_penalty < 1) return false;
  const bool cuts = options_.top_p < 1 || options_.min_p > 0;
  return options_.temperature == 0 || cuts ||
         (options_.top_k > 0 && static_cast<size_t>(options_.top_k) <= count);
}

std::span<const float> Sampler::penalised_row(std::span<const float> logits) {
  if (options_.repetition_penalty == 1 || counts_.empty()) return logits;
  penalised_.assign(logits.begin(), logits.end());
  for (const auto& [token, count] : counts_) {
    float& logit = penalised_[static_cast<size_t>(token)];
    logit = penalised(logit, options_.repetition_penalty);
  }
  return penalised_;
}

std::optional<int32_t> Sampler::choose(const std::function<void()>& rank) {
  rank();
  if (options_.temperature == 0) return best_allowed();
  const std::optional<int32_t> drawn = ranked_.draw(options_, random_);
  if (!drawn || !grammar_ || grammar_allows(*drawn)) return drawn;
  rank();
  ranked_.keep_allowed(grammar_.get());
  return ranked_.draw(options_, random_);
}

bool Sampler::grammar_allows(int32_t token) const {
  llama_token_data one{token, 0.0f, 0.0f};
  llama_token_data_array list{&one, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &list);
  return one.logit != kImpossible;
}

bool Sampler::may_end() const {
  if (!grammar_) return true;
  for (const int32_t end : {tokenizer_->eot(), tokenizer_->eos()}) {
    if (tokenizer_->is_end_of_generation(end)) return grammar_allows(end);
  }
  return false;
}

// The grammar's cost grows with the number of tokens it looks at, so likely ones are tried first, in growing
// groups.
std::optional<int32_t> Sampler::best_allowed() {
  if (!grammar_) return ranked_.at(0) ? std::optional(ranked_.at(0)->id) : std::nullopt;
  for (size_t begin = 0, most = 1;; begin += group_.size(), most = most == 1 ? 64 : most * 16) {
    group_.clear();
    while (group_.size() < most && ranked_.at(begin + group_.size())) {
      group_.push_back(*ranked_.at(begin + group_.size()));
    }
    if (group_.empty()) return std::nullopt;
    llama_token_data_array list{group_.data(), group_.size(), -1, false};
    llama_sampler_apply(grammar_.get(), &list);
    for (const llama_token_data& token : group_) {
      if (token.logit != kImpossible) return token.id;
    }
  }
}

Status Sampler::accept(int32_t token) {
  if (!tokenizer_->contains(token)) {
    return make_error(ErrorKind::kInvalidArgument, "token {} is outside the vocabulary of {}", token,
                      tokenizer_->size());
  }
  if (grammar_) {
    // libllama ends the process on some refused tokens and throws on others, so ask first.
    if (!grammar_allows(token)) {
      return make_error(ErrorKind::kInvalidArgument, "the grammar does not allow token {} here", token);
    }
    try {
      llama_sampler_accept(grammar_.get(), token);
    } catch (const std::exception& exception) {
      return make_error(ErrorKind::kInternal, "the grammar cannot go on after token {}: {}", token,
                        exception.what());
    }
  }
  remember(token);
  return {};
}

void Sampler::observe(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (tokenizer_->contains(token)) remember(token);
  }
}

void Sampler::remember(int32_t token) {
  const int window = options_.repetition_window;
  if (options_.repetition_penalty == 1 || window == 0) return;
  ++counts_[token];
  if (window < 0) return;
  window_.push_back(token);
  if (window_.size() <= static_cast<size_t>(window)) return;
  const auto oldest = counts_.find(window_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  window_.pop_front();
}

}  // namespace rhapsode::text
