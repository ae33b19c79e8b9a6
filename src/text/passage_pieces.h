// The smallest parts that a cutter puts together: a document's text between all places where a cut may be.
//
// The pieces, joined, are the text. A piece never begins inside a character, nor inside a word unless the
// word alone is longer than a piece may be. Ownership: a value. Threads: any. Cost: O(text) plus one token
// count a piece.
#pragma once

#include <cstddef>
#include <vector>

#include "text/document.h"
#include "text/passage.h"

namespace rhapsode::text {

struct Piece {
  size_t begin = 0;
  float worth = 0;  // of a cut at `begin`: 0 for a word's start, higher is better, below 0 is to be avoided
  int tokens = 0;
  int block = -1;  // index of the row block that `begin` lies strictly inside of, else -1
};

struct PieceLimits {
  int most_tokens = 64;       // of a piece of running text
  int most_row_tokens = 512;  // a row above this is cut at weaker breaks
};

std::vector<Piece> cut_pieces(const Document& document, const TokenCounter& count_tokens,
                              const PieceLimits& limits);

// The end of the longest part of text[begin, end) that is at most about `bytes` long and ends before a word;
// before a character if the first word alone is longer. Always above begin, never above end.
size_t word_floor(std::string_view text, size_t begin, size_t end, size_t bytes);

}  // namespace rhapsode::text
