// Cutting a document into passages: consecutive text filled towards 512 tokens (640 at most, header
// included), cut at the strongest structure near there, never inside a word or code point.
//
// The passages' ranges, joined, are the document's text: nothing is lost, nothing stands twice. What a part
// needs from before its own range (section path, a table's header row) stands in its header.
// Errors: kInvalidArgument for text that is no UTF-8 or a limit too small for a header. Cost: O(text), one
// token count a candidate piece. Threads: any.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/result.h"
#include "text/document.h"

namespace rhapsode::text {

struct Passage {
  size_t begin = 0;  // bytes of Document::text
  size_t end = 0;
  std::string header;  // one line (more with a repeated table head), without a line feed at its end
  int line = 1;        // of `begin`, from 1
  int page = 0;        // from 1; 0: the document has no pages
};

struct PassageLimits {
  int aim_tokens = 512;
  int most_tokens = 640;  // of header and text
};

// Tokens of a piece of text in the model that will read it.
using TokenCounter = std::function<int(std::string_view)>;

Result<std::vector<Passage>> cut_passages(const Document& document, const TokenCounter& count_tokens,
                                          const PassageLimits& limits = {});

// Where the sentences of `text` begin (ascending, the first is 0): the unit of citations. Ends at full stops
// and their like in any script, at list items, table rows and lines of code; not at abbreviations, decimals
// or inside e-mail addresses and URLs.
std::vector<size_t> sentence_starts(std::string_view text, DocumentKind kind);

}  // namespace rhapsode::text
