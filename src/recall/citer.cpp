#include "recall/citer.h"

#include <algorithm>

#include "text/logits.h"
#include "text/passage.h"

namespace rhapsode::recall {

using kernels::kPageTokens;

namespace {

// References to a passage's pages with the slots of tokens [begin, end) cleared.
void add_masked(const ReadPassage& passage, int begin, int end,
                std::vector<kernels::PageReference>& references) {
  const size_t first = references.size();
  add_references(passage.pages, static_cast<int>(passage.tokens->tokens.size()), passage.shift, references);
  for (int token = begin; token < end; ++token) {
    references[first + token / kPageTokens].mask &= ~(1ull << (token % kPageTokens));
  }
  std::erase_if(references, [](const kernels::PageReference& reference) { return reference.mask == 0; });
}

}  // namespace

std::vector<std::pair<int, int>> token_ranges(const text::Tokenizer& tokenizer, const PassageTokens& tokens,
                                              std::string_view text, std::span<const size_t> starts) {
  // Where each token begins, scaled when a vocabulary's pieces are not exactly the text's bytes.
  std::vector<size_t> offsets{0};
  for (int i = 0; i < tokens.text_tokens; ++i) {
    offsets.push_back(offsets.back() + tokenizer.piece(tokens.tokens[tokens.header_tokens + i]).size());
  }
  const size_t surplus = offsets.back() > text.size() ? offsets.back() - text.size() : 0;
  std::vector<int> firsts;
  for (size_t start : starts) {
    const auto found = start == 0 ? offsets.begin()
                                  : std::upper_bound(offsets.begin(), offsets.end() - 1, start + surplus) - 1;
    firsts.push_back(tokens.header_tokens + static_cast<int>(found - offsets.begin()));
  }
  std::vector<std::pair<int, int>> ranges;
  for (size_t i = 0; i < firsts.size(); ++i) {
    const int last = i + 1 < firsts.size() ? firsts[i + 1] : tokens.header_tokens + tokens.text_tokens;
    ranges.emplace_back(firsts[i], std::max(firsts[i], last));
  }
  return ranges;
}

Result<std::vector<double>> Citer::likelihoods(const AnsweredPrompt& prompt,
                                               std::span<const Variant> variants, Citing& citing) {
  std::vector<int32_t> tokens(prompt.tail.begin(), prompt.tail.end());
  tokens.insert(tokens.end(), prompt.answer.begin(), prompt.answer.end());
  // The last token predicts nothing that was said.
  const std::span<const int32_t> rows(tokens.data(), tokens.size() - 1);
  const int first = static_cast<int>(prompt.tail.size()) - 1;
  std::vector<Stream> streams(variants.size());
  for (size_t i = 0; i < variants.size(); ++i) {
    Stream& stream = streams[i];
    stream.context = prompt.prefix;
    for (size_t p = 0; p < prompt.passages.size(); ++p) {
      const auto cut = std::find_if(variants[i].begin(), variants[i].end(),
                                    [&](const Cut& c) { return c.passage == static_cast<int>(p); });
      const bool masked = cut != variants[i].end();
      add_masked(prompt.passages[p], masked ? cut->begin : 0, masked ? cut->end : 0, stream.context);
    }
    stream.tokens = rows;
    stream.position = prompt.tail_position;
    stream.output_begin = first;
    stream.output_end = static_cast<int>(rows.size());
    stream.keep_pages = false;
  }
  std::vector<double> sums(variants.size(), 0.0);
  Status scored;
  const auto score = [&](int stream, int token, std::span<const float> logits) {
    auto logprob = text::log_softmax_of(logits, tokens[token + 1]);
    if (logprob.ok())
      sums[stream] += logprob.value();
    else
      scored = logprob.error();
  };
  RH_TRY(const uint64_t evaluated, feed(runner_, streams, model::PassGoal::kLogits, score));
  RH_TRY_STATUS(scored);
  citing.probe_tokens += evaluated;
  return sums;
}

Status Citer::find_sentence(const AnsweredPrompt& prompt, const CiteOptions& options, Support& support,
                            Citing& citing) {
  const ReadPassage& passage = prompt.passages[support.passage];
  std::vector<size_t> starts = text::sentence_starts(passage.text, passage.kind);
  if (starts.empty()) starts.push_back(0);
  const auto ranges = token_ranges(runner_.tokenizer(), *passage.tokens, passage.text, starts);
  const auto count = static_cast<int>(starts.size());
  const Variant others = support.alone ? all_but(prompt, support.passage) : Variant{};
  const auto without = [&](int begin, int end) {
    Variant variant = others;
    variant.push_back({support.passage, ranges[begin].first, ranges[end - 1].second});
    return variant;
  };
  int low = 0;
  int high = count;
  if (count > 2 * options.group) {
    std::vector<Variant> groups;
    for (int begin = 0; begin < count; begin += options.group) {
      groups.push_back(without(begin, std::min(count, begin + options.group)));
    }
    RH_TRY(const std::vector<double> sums, likelihoods(prompt, groups, citing));
    const auto worst = std::min_element(sums.begin(), sums.end());
    low = static_cast<int>(worst - sums.begin()) * options.group;
    high = std::min(count, low + options.group);
  }
  std::vector<Variant> singles;
  for (int i = low; i < high; ++i) singles.push_back(without(i, i + 1));
  RH_TRY(const std::vector<double> sums, likelihoods(prompt, singles, citing));
  const auto worst = std::min_element(sums.begin(), sums.end());
  const int best = low + static_cast<int>(worst - sums.begin());
  support.begin = starts[best];
  support.end = best + 1 < count ? starts[best + 1] : passage.text.size();
  const double with = support.alone ? citing.closed_nats + support.passage_nats : citing.answer_nats;
  support.sentence_nats = with - *worst;
  return {};
}

Citer::Variant Citer::all_but(const AnsweredPrompt& prompt, int passage) {
  Variant others;
  for (int p = 0; p < static_cast<int>(prompt.passages.size()); ++p) {
    if (p != passage) others.push_back({p, 0, static_cast<int>(prompt.passages[p].tokens->tokens.size())});
  }
  return others;
}

Status Citer::find_sufficient(const AnsweredPrompt& prompt, const CiteOptions& options, Citing& citing) {
  if (citing.answer_nats - citing.closed_nats < options.least_nats) return {};
  std::vector<Variant> alone;
  for (int p = 0; p < static_cast<int>(prompt.passages.size()); ++p) alone.push_back(all_but(prompt, p));
  RH_TRY(const std::vector<double> sums, likelihoods(prompt, alone, citing));
  const auto best = std::max_element(sums.begin(), sums.end());
  Support support;
  support.passage = static_cast<int>(best - sums.begin());
  support.passage_nats = *best - citing.closed_nats;
  support.alone = true;
  if (support.passage_nats >= options.least_nats) citing.supports.push_back(support);
  return {};
}

Status Citer::run_tail(AnsweredPrompt& prompt, const CiteOptions& options, Citing& citing) {
  const int before = static_cast<int>(prompt.tail.size()) - std::max(1, options.tail_tokens);
  if (before <= 0) return {};
  Stream stream;
  stream.context = prompt.prefix;
  for (const ReadPassage& passage : prompt.passages) add_masked(passage, 0, 0, stream.context);
  stream.tokens = prompt.tail.first(before);
  stream.position = prompt.tail_position;
  RH_TRY(const uint64_t rows, feed(runner_, std::span(&stream, 1), model::PassGoal::kEncode,
                                   [](int, int, std::span<const float>) {}));
  citing.probe_tokens += rows;
  tail_pages_ = std::move(stream.pages);
  add_references(tail_pages_, before, prompt.tail_position, prompt.prefix);
  prompt.tail = prompt.tail.subspan(before);
  prompt.tail_position += before;
  return {};
}

Result<Citing> Citer::cite(AnsweredPrompt prompt, const CiteOptions& options) {
  Citing citing;
  if (prompt.answer.empty() || prompt.passages.empty() || prompt.tail.empty()) return citing;
  RH_TRY_STATUS(run_tail(prompt, options, citing));
  std::vector<Variant> variants{{}, all_but(prompt, -1)};  // nothing and everything masked
  for (int p = 0; p < static_cast<int>(prompt.passages.size()); ++p) {
    variants.push_back({{p, 0, static_cast<int>(prompt.passages[p].tokens->tokens.size())}});
  }
  RH_TRY(const std::vector<double> sums, likelihoods(prompt, variants, citing));
  citing.answer_nats = sums[0];
  citing.closed_nats = sums[1];
  for (size_t p = 0; p < prompt.passages.size(); ++p) {
    Support support;
    support.passage = static_cast<int>(p);
    support.passage_nats = citing.answer_nats - sums[p + 2];
    citing.supports.push_back(support);
  }
  std::stable_sort(citing.supports.begin(), citing.supports.end(),
                   [](const Support& a, const Support& b) { return a.passage_nats > b.passage_nats; });
  const double best = citing.supports.front().passage_nats;
  const double least = std::max(options.least_nats, options.least_share * best);
  std::erase_if(citing.supports, [&](const Support& s) { return s.passage_nats < least; });
  if (static_cast<int>(citing.supports.size()) > options.most_citations) {
    citing.supports.resize(options.most_citations);
  }
  if (citing.supports.empty()) RH_TRY_STATUS(find_sufficient(prompt, options, citing));
  for (Support& support : citing.supports) RH_TRY_STATUS(find_sentence(prompt, options, support, citing));
  // A passage none of whose sentences matters alone is cited only as the first.
  if (citing.supports.size() > 1) {
    const auto weak = [&](const Support& support) { return support.sentence_nats < least; };
    citing.supports.erase(std::remove_if(citing.supports.begin() + 1, citing.supports.end(), weak),
                          citing.supports.end());
  }
  return citing;
}

}  // namespace rhapsode::recall
