#include "eval/citation_score.h"

#include "eval/metrics.h"
#include "text/passage.h"

namespace rhapsode::eval {

std::optional<CitedText> first_sentence_with(const std::vector<PlacedPassage>& passages,
                                             std::string_view answer) {
  const std::vector<std::string> wanted{std::string(answer)};
  for (const PlacedPassage& passage : passages) {
    const std::vector<size_t> starts = text::sentence_starts(passage.text, text::DocumentKind::kPlain);
    for (size_t i = 0; i < starts.size(); ++i) {
      const size_t end = i + 1 < starts.size() ? starts[i + 1] : passage.text.size();
      std::string sentence = passage.text.substr(starts[i], end - starts[i]);
      if (subspan_match(sentence, wanted) == 0) continue;
      const size_t base = passage.span.begin;
      return CitedText{std::move(sentence), {passage.span.document, base + starts[i], base + end}};
    }
  }
  return std::nullopt;
}

}  // namespace rhapsode::eval
