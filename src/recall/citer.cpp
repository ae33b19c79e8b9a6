#include "recall/citer.h"

#include <algorithm>
#include <iterator>

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
    stream.targets = std::span<const int32_t>(tokens).subspan(1);
    stream.position = prompt.tail_position;
    stream.output_begin = first;
    stream.output_end = static_cast<int>(rows.size());
    stream.keep_pages = false;
  }
  std::vector<double> sums(variants.size(), 0.0);
  const auto add = [&](int stream, int, std::span<const float> logprob) { sums[stream] += logprob.front(); };
  RH_TRY(const uint64_t evaluated, feed(runner_, streams, model::PassGoal::kLogits, add));
  citing.probe_tokens += evaluated;
  return sums;
}

// The search for one passage's sentence: which of them are still candidates, and the variants that try them.
struct Citer::Search {
  Support* support = nullptr;
  std::vector<size_t> starts;
  std::vector<std::pair<int, int>> ranges;  // tokens of each sentence
  Variant others;                           // masked in every variant
  int low = 0;                              // candidates: sentences [low, high)
  int high = 0;

  int count() const { return static_cast<int>(starts.size()); }
  Variant without(int begin, int end) const {
    Variant variant = others;
    variant.push_back({support->passage, ranges[begin].first, ranges[end - 1].second});
    return variant;
  }
};

Citer::Search Citer::begin_search(const AnsweredPrompt& prompt, Support& support) const {
  const ReadPassage& passage = prompt.passages[support.passage];
  Search search;
  search.support = &support;
  search.starts = text::sentence_starts(passage.text, passage.kind);
  if (search.starts.empty()) search.starts.push_back(0);
  search.ranges = token_ranges(runner_.tokenizer(), *passage.tokens, passage.text, search.starts);
  if (support.alone) search.others = all_but(prompt, support.passage);
  search.high = search.count();
  return search;
}

// One round for all searches together, so that it costs one pass and not one each: masks `step` sentences at
// a time and keeps, of each search, those whose loss is greatest.
Status Citer::narrow(const AnsweredPrompt& prompt, std::span<Search> searches, int step, Citing& citing) {
  std::vector<Variant> variants;
  for (const Search& search : searches) {
    for (int begin = search.low; begin < search.high; begin += step) {
      variants.push_back(search.without(begin, std::min(search.high, begin + step)));
    }
  }
  RH_TRY(const std::vector<double> sums, likelihoods(prompt, variants, citing));
  auto sum = sums.begin();
  for (Search& search : searches) {
    const int tried = (search.high - search.low + step - 1) / step;
    const auto worst = std::min_element(sum, sum + tried);
    search.low += static_cast<int>(worst - sum) * step;
    search.high = std::min(search.high, search.low + step);
    const Support& support = *search.support;
    const double with = support.alone ? citing.closed_nats + support.passage_nats : citing.answer_nats;
    search.support->sentence_nats = with - *worst;
    sum += tried;
  }
  return {};
}

Status Citer::find_sentences(const AnsweredPrompt& prompt, const CiteOptions& options, Citing& citing) {
  std::vector<Search> small;
  std::vector<Search> large;
  for (Support& support : citing.supports) {
    Search search = begin_search(prompt, support);
    (search.count() > 2 * options.group ? large : small).push_back(std::move(search));
  }
  if (!large.empty()) RH_TRY_STATUS(narrow(prompt, large, options.group, citing));
  std::move(large.begin(), large.end(), std::back_inserter(small));
  if (!small.empty()) RH_TRY_STATUS(narrow(prompt, small, 1, citing));
  for (const Search& search : small) {
    const int best = search.low;
    search.support->begin = search.starts[best];
    search.support->end = best + 1 < search.count() ? search.starts[best + 1]
                                                    : prompt.passages[search.support->passage].text.size();
  }
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
  RH_TRY_STATUS(find_sentences(prompt, options, citing));
  // A passage none of whose sentences matters alone is cited only as the first.
  if (citing.supports.size() > 1) {
    const auto weak = [&](const Support& support) { return support.sentence_nats < least; };
    citing.supports.erase(std::remove_if(citing.supports.begin() + 1, citing.supports.end(), weak),
                          citing.supports.end());
  }
  return citing;
}

}  // namespace rhapsode::recall
