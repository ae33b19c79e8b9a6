// Citations of one ask().
#include <algorithm>

#include "engine/asking.h"

namespace rhapsode {

namespace {

// Text of the passage without the white space at its ends, and how much was cut in front.
std::pair<size_t, size_t> trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n\f\v");
  if (first == std::string_view::npos) return {0, 0};
  return {first, text.find_last_not_of(" \t\r\n\f\v") + 1};
}

int line_of(std::string_view text, size_t offset, int first_line) {
  return first_line + static_cast<int>(std::count(text.begin(), text.begin() + offset, '\n'));
}

}  // namespace

void Memory::Asking::add_citation(const recall::Support& support) {
  const FoundPassage& passage = reading_.passages[support.passage];
  const std::string_view sentence =
      std::string_view(passage.text).substr(support.begin, support.end - support.begin);
  const auto [first, last] = trimmed(sentence);
  Citation citation;
  citation.n = static_cast<int>(answer_.citations.size()) + 1;
  citation.source = passage.passage.source;
  citation.version = passage.passage.version;
  citation.start_byte = passage.passage.start_byte + support.begin + first;
  citation.end_byte = passage.passage.start_byte + support.begin + last;
  citation.line = line_of(passage.text, support.begin + first, passage.passage.line);
  citation.page = passage.passage.page;
  citation.quote = std::string(sentence.substr(first, last - first));
  citation.support = support.sentence_nats;
  answer_.citations.push_back(std::move(citation));
}

Status Memory::Asking::cite(const Response& response) {
  const int64_t begin = now_ns();
  if (reading_.pages.empty()) {
    // Under full and prefix the passages' KV is part of the request's own pages; citing reads it from the
    // tier.
    const uint64_t before = memory_.encoder->evaluated_tokens();
    RH_TRY_STATUS(load_pages());
    RH_TRY_STATUS(reading_.coming->finish());
    answer_.usage.probe_tokens += static_cast<int>(memory_.encoder->evaluated_tokens() - before);
  }
  std::vector<recall::ReadPassage> read;
  for (size_t i = 0; i < reading_.passages.size(); ++i) {
    recall::ReadPassage passage;
    passage.pages = reading_.pages[i];
    passage.tokens = &reading_.tokens[i];
    passage.text = reading_.passages[i].text;
    passage.kind = reading_.kinds[i];
    passage.shift = reading_.shifts[i];
    read.push_back(passage);
  }
  std::vector<int32_t> answer = options_.begin;
  for (const GeneratedToken& token : response.tokens) {
    if (!memory_.passes->tokenizer().is_end_of_generation(token.token)) answer.push_back(token.token);
  }
  recall::AnsweredPrompt prompt;
  RH_TRY(const std::span<const store::PagePin> prefix, memory_.encoder->prefix_pages());
  recall::add_references(prefix, static_cast<int>(memory_.frame->prefix().size()), 0, prompt.prefix);
  prompt.passages = read;
  prompt.tail = reading_.tail;
  prompt.answer = answer;
  prompt.tail_position = reading_.tail_position;
  recall::Citer citer(*memory_.passes);
  RH_TRY(const recall::Citing citing, citer.cite(prompt));
  for (const recall::Support& support : citing.supports) add_citation(support);
  answer_.usage.probe_tokens += static_cast<int>(citing.probe_tokens);
  answer_.timing.cite_ms = ms_between(begin, now_ns());
  return {};
}

}  // namespace rhapsode
