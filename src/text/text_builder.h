// Text under construction for formats that are no text themselves: paragraphs, sections, row blocks.
//
// Words are joined by single blanks, blocks by one empty line, lines by a line feed; what is a good place for
// a cut is recorded on the way. Ownership: holds the text until finish(). Threads: one. Cost: O(text).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/document.h"

namespace rhapsode::text {

class TextBuilder {
 public:
  // White space (ASCII) in `text` collapses to single blanks, also across calls.
  void words(std::string_view text);
  // Kept as it is.
  void verbatim(std::string_view text);
  // What comes next stands on a line of its own, or after an empty line.
  void end_line() { wanted_line_feeds_ = std::max(wanted_line_feeds_, 1); }
  void end_block() { wanted_line_feeds_ = std::max(wanted_line_feeds_, 2); }
  // Writes the line feeds that are due and returns the offset of what comes next, a break of at least that
  // strength.
  size_t start(BreakStrength strength);

  // The text from `begin` to here is a heading; level 1 is the outermost.
  void heading(int level, size_t begin);
  // A part of its own begins here: no section of what came before goes on in it. Returns its offset.
  size_t start_part();
  // The section of a part that began at `begin`, if no heading has begun there meanwhile.
  void name_part(size_t begin, std::string_view title);
  // A run that is cut only at `rows`.
  void row_block(RowBlock block) { row_blocks_.push_back(std::move(block)); }
  void page() { page_starts_.push_back(start(BreakStrength::kPage)); }

  size_t size() const { return text_.size(); }
  std::string_view from(size_t begin) const { return std::string_view(text_).substr(begin); }
  // Nothing but white space so far.
  bool empty() const;

  // Puts a finished text with its structure behind what is there, as a block.
  void document(Document part);

  // Moves everything into the document, without white space at the end; `extracted` is set.
  void finish(Document& document);

 private:
  void flush();
  void add_section(int level, std::string title, size_t begin);

  std::string text_;
  std::vector<BreakPoint> breaks_;
  std::vector<Section> sections_;
  std::vector<RowBlock> row_blocks_;
  std::vector<size_t> page_starts_;
  std::vector<std::pair<int, std::string>> open_sections_;  // level and title, outermost first
  int wanted_line_feeds_ = 0;
  bool wanted_blank_ = false;
};

}  // namespace rhapsode::text
