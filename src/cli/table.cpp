#include "cli/table.h"

#include <algorithm>
#include <cassert>

#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr int kGap = 2;
constexpr int kNarrowest = 12;  // of a column that shrinks

std::string one_line(std::string_view text) {
  std::string safe = printable(text);
  std::replace(safe.begin(), safe.end(), '\t', ' ');
  for (size_t at = 0; (at = safe.find('\n', at)) != std::string::npos;) safe.replace(at, 1, "⏎");
  return safe;
}

std::string aligned(const std::string& cell, const Column& column, int width) {
  const std::string padding(static_cast<size_t>(std::max(0, width - display_width(cell))), ' ');
  return column.right ? padding + cell : cell + padding;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = one_line(cell);
  rows_.push_back(std::move(cells));
}

void Table::shrink(std::vector<int>& widths, int room) const {
  int total = kGap * (static_cast<int>(widths.size()) - 1);
  for (const int width : widths) total += width;
  for (size_t c = 0; c < widths.size() && total > room; ++c) {
    if (!columns_[c].shrinks) continue;
    const int narrower = std::max(std::min(widths[c], kNarrowest), widths[c] - (total - room));
    total -= widths[c] - narrower;
    widths[c] = narrower;
  }
}

std::string Table::render(const Terminal& terminal) const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  const bool clips = terminal.traits().out_is_terminal;
  if (clips) shrink(widths, terminal.traits().columns);
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) {
      const bool last = c + 1 == cells.size();
      const std::string cell = columns_[c].shrinks ? clip_front(cells[c], widths[c]) : cells[c];
      line += last && !columns_[c].right ? cell : aligned(cell, columns_[c], widths[c]);
      if (!last) line += std::string(kGap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return clips ? clip_text(line, terminal.traits().columns) : line;
  };
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string text = terminal.paint(Style::kBold, line_of(titles)) + "\n";
  for (const auto& row : rows_) text += line_of(row) + "\n";
  return text;
}

std::string render_pairs(const std::vector<std::pair<std::string, std::string>>& pairs,
                         const Terminal& terminal) {
  int width = 0;
  for (const auto& [name, value] : pairs) width = std::max(width, display_width(name));
  std::string text;
  for (const auto& [name, value] : pairs) {
    text += terminal.paint(Style::kDim, aligned(name, {}, width + kGap)) + one_line(value) + "\n";
  }
  return text;
}

}  // namespace rhapsode::cli
