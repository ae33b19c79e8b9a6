#include "cli/heat_map.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/result.h"
#include "cli/snippet.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr int kWidest = 120;
constexpr int kPerCentColumns = 6;  // " 12.3 "
constexpr std::array<const char*, 5> kShades = {" ", "░", "▒", "▓", "█"};
constexpr std::array<const char*, 5> kAsciiShades = {" ", ".", ":", "+", "#"};

// Tokens that make whole characters together.
struct Cell {
  std::string text;
  int width = 0;
  size_t routing = 0;
  int tokens = 0;
  std::vector<double> passages;  // shares on each of the routing's places; sums until divided
  double question = 0;
  double answer = 0;
};

// Bytes at the end that begin a character and do not finish it.
bool ends_inside_character(std::string_view text) {
  for (size_t back = 1; back <= 4 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte >= 0xC0) return back < (byte >= 0xF0 ? 4u : byte >= 0xE0 ? 3u : 2u);
    if (byte < 0x80) return false;
  }
  return false;
}

class HeatMap {
 public:
  HeatMap(const AnswerTrace& trace, const Terminal& terminal)
      : trace_(trace),
        terminal_(terminal),
        utf8_(terminal.traits().utf8),
        columns_(terminal.traits().out_is_terminal ? std::min(terminal.traits().columns, kWidest) : 80),
        label_columns_(std::clamp(columns_ / 4, 10, 28)) {}

  std::string render() {
    make_cells();
    if (cells_.empty()) return "";
    for (const Cell& cell : cells_) {
      for (const double share : cell.passages) full_ = std::max(full_, share);
    }
    std::string text;
    const int room = columns_ - label_columns_ - kPerCentColumns;
    for (size_t begin = 0; begin < cells_.size();) {
      if (begin > 0 && cells_[begin].routing != cells_[begin - 1].routing) {
        text += change(trace_.routings[cells_[begin].routing]);
      }
      size_t end = begin;
      int used = 0;
      while (end < cells_.size() && cells_[end].routing == cells_[begin].routing &&
             used + cells_[end].width <= room) {
        used += cells_[end++].width;
      }
      text += band(std::span(cells_).subspan(begin, end - begin)) + "\n";
      begin = end;
    }
    // What joined before the answer's end, where no word came after it.
    for (size_t later = cells_.back().routing + 1; later < trace_.routings.size(); ++later) {
      if (!trace_.routings[later].places.empty()) text += change(trace_.routings[later]);
    }
    return text + terminal_.paint(Style::kDim, legend()) + "\n";
  }

 private:
  void make_cells() {
    const int widest = columns_ - label_columns_ - kPerCentColumns;
    bool open = false;
    for (const TracedToken& token : trace_.tokens) {
      const bool known = static_cast<size_t>(token.routing) < trace_.routings.size();
      if (token.text.empty() || !known) continue;
      if (!open) cells_.emplace_back().routing = static_cast<size_t>(token.routing);
      Cell& cell = cells_.back();
      cell.text += token.text;
      cell.passages.resize(trace_.routings[cell.routing].places.size());
      for (size_t i = 0; i < std::min(cell.passages.size(), token.passages.size()); ++i) {
        cell.passages[i] += static_cast<double>(token.passages[i]);
      }
      cell.question += static_cast<double>(token.question);
      cell.answer += static_cast<double>(token.answer);
      ++cell.tokens;
      open = ends_inside_character(cell.text);
    }
    for (Cell& cell : cells_) {
      for (double& share : cell.passages) share /= cell.tokens;
      cell.question /= cell.tokens;
      cell.answer /= cell.tokens;
      cell.text = fitting(shown(cell.text), widest);
      cell.width = display_width(cell.text);
    }
    std::erase_if(cells_, [](const Cell& cell) { return cell.width == 0; });
  }

  // On one line, in characters that the terminal has.
  std::string shown(std::string_view text) const {
    std::string safe = printable(text);
    std::string line;
    for (std::string_view rest = safe; !rest.empty();) {
      const std::string_view before = rest;
      const char32_t point = next_code_point(rest);
      if (point == '\n' || point == '\r') {
        line += utf8_ ? "⏎" : "/";
      } else if (point == '\t') {
        line += ' ';
      } else if (point < 0x80 || utf8_) {
        line += before.substr(0, before.size() - rest.size());
      } else {
        line += '?';
      }
    }
    return line;
  }

  std::string fitting(const std::string& text, int columns) const {
    if (display_width(text) <= columns) return text;
    return utf8_ ? clip_text(text, columns) : text.substr(0, static_cast<size_t>(columns));
  }

  std::string label(std::string text) const {
    text = shown(text);
    if (display_width(text) > label_columns_) {
      text = utf8_ ? clip_front(text, label_columns_)
                   : text.substr(text.size() - static_cast<size_t>(label_columns_));
    }
    text.append(static_cast<size_t>(std::max(0, label_columns_ - display_width(text))), ' ');
    return text;
  }

  std::string name_of(int64_t passage) const {
    for (const PassageInfo& info : trace_.passages) {
      if (info.id == passage) return place_in_source(info.source, info.line, info.page);
    }
    return fmt::format("passage {}", passage);
  }

  std::string change(const TracedRouting& routing) const {
    std::string text =
        fmt::format("looked again before token {} ({})", routing.token + 1, to_string(routing.cause));
    for (const int64_t id : routing.joined) text += " + " + name_of(id);
    for (const int64_t id : routing.left) text += " - " + name_of(id);
    return terminal_.paint(Style::kYellow, fitting(shown(text), columns_)) + "\n";
  }

  template <typename Share>
  std::string row(const std::string& name, std::span<const Cell> cells, Style style,
                  const Share& share) const {
    double sum = 0;
    std::string shades;
    for (const Cell& cell : cells) {
      sum += share(cell);
      const double part = full_ > 0 ? share(cell) / full_ : 0;
      const auto level = static_cast<size_t>(std::clamp(part * 4 + 0.5, 0.0, 4.0));
      for (int column = 0; column < cell.width; ++column) shades += (utf8_ ? kShades : kAsciiShades)[level];
    }
    const double per_cent = 100 * sum / static_cast<double>(cells.size());
    std::string line = fmt::format("{}{:5.1f} {}", terminal_.paint(style, label(name)), per_cent, shades);
    line.resize(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }

  std::string band(std::span<const Cell> cells) const {
    std::string text = std::string(static_cast<size_t>(label_columns_), ' ') + "    % ";
    for (const Cell& cell : cells) text += cell.text;
    while (text.back() == ' ') text.pop_back();
    text += '\n';
    const std::vector<TracedPlace>& places = trace_.routings[cells.front().routing].places;
    for (size_t i = 0; i < places.size(); ++i) {
      text += row(name_of(places[i].passage), cells, Style::kCyan,
                  [&](const Cell& cell) { return cell.passages[i]; });
    }
    text += row("question", cells, Style::kDim, [](const Cell& cell) { return cell.question; });
    return text + row("answer so far", cells, Style::kDim, [](const Cell& cell) { return cell.answer; });
  }

  std::string legend() const {
    return fmt::format("attention, mean of heads and layers; {} is {:.2f} % or more",
                       (utf8_ ? kShades : kAsciiShades).back(), 100 * full_);
  }

  const AnswerTrace& trace_;
  const Terminal& terminal_;
  const bool utf8_;
  const int columns_;
  const int label_columns_;
  std::vector<Cell> cells_;
  double full_ = 0;  // the share that the darkest shade stands for
};

}  // namespace

std::string heat_map(const AnswerTrace& trace, const Terminal& terminal) {
  return HeatMap(trace, terminal).render();
}

}  // namespace rhapsode::cli
