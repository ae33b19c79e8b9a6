// Delimiter-separated values: RFC 4180 quoting, a line end inside quotes belongs to its row.
#include <algorithm>
#include <array>

#include "rhapsode/result.h"
#include "text/readers.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

struct Row {
  size_t end = 0;  // behind the line end
  int cells = 1;
  bool sound = true;  // every quote is closed, right before a delimiter or line end
};

// The row that begins at `begin`. A quote opens only at the start of a cell.
Row row_at(std::string_view text, size_t begin, char delimiter) {
  Row row;
  bool quoted = false, at_start = true;
  size_t i = begin;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') continue;
      if (i + 1 < text.size() && text[i + 1] == '"') {
        ++i;
      } else {
        quoted = false;
        const char next = i + 1 < text.size() ? text[i + 1] : '\n';
        if (next != delimiter && next != '\n' && next != '\r') row.sound = false;
      }
      continue;
    }
    if (c == '\n') break;
    if (c == '"' && at_start) quoted = true;
    at_start = c == delimiter;
    if (c == delimiter) ++row.cells;
  }
  row.end = std::min(i + 1, text.size());
  row.sound = row.sound && !quoted;
  return row;
}

}  // namespace

char table_delimiter(std::string_view text) {
  text.remove_prefix(mark_bytes(text));
  constexpr int kRows = 8;
  constexpr size_t kMostBytes = 256 << 10;
  text = text.substr(0, kMostBytes);
  char best = '\0';
  int best_cells = 1;
  for (const char delimiter : {',', '\t', ';', '|'}) {
    int cells = 0, rows = 0;
    bool same = true;
    for (size_t at = 0; at < text.size() && rows < kRows && same;) {
      const Row row = row_at(text, at, delimiter);
      const bool blank = trim(text.substr(at, row.end - at)).empty();
      // What the limit cut off is not judged.
      const bool whole = row.end < text.size() || text.size() < kMostBytes;
      at = row.end;
      if (blank || !whole) continue;
      if (cells == 0) cells = row.cells;
      same = row.sound && row.cells == cells;
      ++rows;
    }
    if (same && rows >= 2 && cells > best_cells) {
      best = delimiter;
      best_cells = cells;
    }
  }
  return best;
}

Result<Document> read_table(std::string name, std::string text) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kTable;
  document.text = std::move(text);
  const std::string_view all = document.text;
  char delimiter = table_delimiter(all);
  if (delimiter == '\0') delimiter = document.name.ends_with(".tsv") ? '\t' : ',';
  RowBlock block;
  block.begin = mark_bytes(all);
  size_t at = block.begin;
  while (at < all.size() && line_at(all, at).blank) at = line_at(all, at).next;
  const size_t head_begin = at;
  const int columns = at < all.size() ? row_at(all, at, delimiter).cells : 0;
  for (bool head = true; at < all.size(); head = false) {
    Row row = row_at(all, at, delimiter);
    if (!row.sound && row.end != line_at(all, at).next) {
      // A stray quote would swallow many rows, or the rest of the file.
      if (document.warnings.empty()) {
        document.warnings.push_back("a quote in the row at byte " + std::to_string(at) +
                                    " is not closed as it should be: the line is taken as the row");
      }
      row.end = line_at(all, at).next;
    }
    if (head) {
      block.lead = trim(all.substr(head_begin, row.end - head_begin));
    } else if (!line_at(all, at).blank) {
      block.rows.push_back(at);
    }
    at = row.end;
  }
  if (columns == 1) block.lead.clear();  // a list of lines has no head worth repeating
  block.end = all.size();
  if (block.end > block.begin) document.row_blocks.push_back(std::move(block));
  return document;
}

}  // namespace rhapsode::text
