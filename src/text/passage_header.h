// The headers of a document's passages: where a passage comes from, in one line that a small model reads
// well.
//
//   docs/guide.md, "The guide": Usage > Options (Ada Lovelace, 2024-05-01)
//
// A passage that begins inside a row block repeats the block's lead in the lines below. Ownership: refers to
// the document and the counter. Threads: one at a time. Cost: a few token counts of a line a header.
#pragma once

#include <cstddef>
#include <string>

#include "text/document.h"
#include "text/passage.h"

namespace rhapsode::text {

class PassageHeaders {
 public:
  // Both limits are in tokens: of the first line, and of a repeated lead.
  PassageHeaders(const Document& document, const TokenCounter& count_tokens, int most_line, int most_lead);

  // Of a passage that begins at `begin`, in row block `block` (-1: none). Calls come with ascending begins.
  std::string header_at(size_t begin, int block);

 private:
  std::string line_of(const std::string& path) const;
  std::string fitted(const std::string& text, int most_tokens) const;

  const Document& document_;
  const TokenCounter& count_tokens_;
  int most_line_;
  int most_lead_;
  size_t next_section_ = 0;
  int lead_block_ = -1;
  std::string lead_;
  std::string line_;
  bool has_line_ = false;
};

}  // namespace rhapsode::text
