#include "cli/table.h"

#include <algorithm>
#include <cassert>

#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr int kGap = 2;

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

std::string Table::render(const Terminal& terminal) const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    int used = 0;
    for (size_t c = 0; c < cells.size(); ++c) {
      const bool last = c + 1 == cells.size();
      std::string cell = cells[c];
      if (last && terminal.traits().out_is_terminal) cell = clip_text(cell, terminal.traits().columns - used);
      line += last && !columns_[c].right ? cell : aligned(cell, columns_[c], widths[c]);
      if (!last) line += std::string(kGap, ' ');
      used += widths[c] + kGap;
    }
    return line;
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
