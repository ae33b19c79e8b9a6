#include "recall/document_cutter.h"

#include <algorithm>

#include "text/search_terms.h"

namespace rhapsode::recall {

namespace {

std::string_view body_of(const text::Document& document, const text::Passage& passage) {
  return std::string_view(document.text).substr(passage.begin, passage.end - passage.begin);
}

std::vector<int32_t> unique_text_tokens(const PassageTokens& passage) {
  const auto begin = passage.tokens.begin() + passage.header_tokens;
  std::vector<int32_t> unique(begin, begin + passage.text_tokens);
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  return unique;
}

}  // namespace

Result<std::vector<text::Passage>> DocumentCutter::passages_of(const text::Document& document) const {
  Status counted;
  const auto count = [&](std::string_view piece) {
    auto tokens = tokenizer_.encode(piece);
    if (!tokens.ok()) counted = tokens.error();
    return tokens.ok() ? static_cast<int>(tokens->size()) : 0;
  };
  RH_TRY(std::vector<text::Passage> passages, text::cut_passages(document, count));
  RH_TRY_STATUS(counted);
  return passages;
}

Result<CutDocument> DocumentCutter::cut(text::Document document) const {
  CutDocument cut;
  RH_TRY(const std::vector<text::Passage> passages, passages_of(document));
  for (const text::Passage& passage : passages) {
    const std::string_view body = body_of(document, passage);
    RH_TRY(PassageTokens tokens, frame_.passage(passage.header, body));
    store::PassagePlace place;
    place.begin = passage.begin;
    place.end = passage.end;
    place.header = passage.header;
    place.line = passage.line;
    place.page = passage.page;
    place.tokens = static_cast<int>(tokens.tokens.size());
    place.terms = text::search_terms(passage.header + "\n" + std::string(body));
    place.unique_tokens = unique_text_tokens(tokens);
    cut.content.passages.push_back(std::move(place));
    cut.passages.push_back(std::move(tokens));
  }
  cut.content.kind = cut.source.kind = text::to_string(document.kind);
  cut.content.title = cut.source.title = document.title;
  cut.source.author = document.author;
  cut.source.event_time = document.date;
  cut.source.identifier = document.identifier;
  for (const std::string& older : document.supersedes) cut.source.supersessions.push_back({false, older});
  for (const std::string& newer : document.superseded_by) cut.source.supersessions.push_back({true, newer});
  cut.content.text = std::move(document.text);
  cut.warnings = std::move(document.warnings);
  return cut;
}

Result<CutDocument> DocumentCutter::cut_source(text::SourceBytes source, const std::string& read_as,
                                               const AddOptions& options) const {
  const uint64_t bytes = source.bytes.size();
  RH_TRY(text::Document document, text::read_document(read_as, std::move(source.bytes)));
  RH_TRY(CutDocument made, cut(std::move(document)));
  made.source.name = source.name;
  made.content.named_after = read_as;
  made.source.bytes = bytes;
  made.source.tags = options.tags;
  made.source.user = options.user;
  for (const std::string& older : options.supersedes) {
    made.source.supersessions.push_back({.reverse = false, .reference = older, .by_user = true});
  }
  if (!options.event_time.empty()) made.source.event_time = options.event_time;
  return made;
}

Result<std::vector<int>> DocumentCutter::count_source(text::SourceBytes source,
                                                      const std::string& read_as) const {
  RH_TRY(const text::Document document, text::read_document(read_as, std::move(source.bytes)));
  RH_TRY(const std::vector<text::Passage> passages, passages_of(document));
  std::vector<int> counts;
  for (const text::Passage& passage : passages) {
    RH_TRY(const PassageTokens tokens, frame_.passage(passage.header, body_of(document, passage)));
    counts.push_back(static_cast<int>(tokens.tokens.size()));
  }
  return counts;
}

}  // namespace rhapsode::recall
