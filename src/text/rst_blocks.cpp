#include "text/rst_blocks.h"

#include <string>

namespace rhapsode::text {
namespace {

// "=====  ===" of a simple table; two columns at least.
bool is_border(std::string_view content) {
  return content.find_first_not_of("= ") == std::string_view::npos && content.starts_with("==") &&
         content.ends_with('=') && content.find(' ') != std::string_view::npos;
}

// "+-----+-----+" or "+=====+=====+" of a grid table.
bool is_grid(std::string_view content) {
  return content.size() > 2 && content.front() == '+' && content.back() == '+' &&
         content.find_first_not_of("+-=") == std::string_view::npos;
}

// Indented lines below `opening`; what stands between them is blank. A directive is the head of its lines.
std::optional<RowBlock> literal_block(std::string_view text, const Line& opening) {
  RowBlock block;
  for (size_t at = opening.next; at < text.size();) {
    const Line line = line_at(text, at);
    at = line.next;
    if (line.blank) continue;
    if (line.indent <= opening.indent) break;
    if (block.rows.empty()) block.begin = line.begin;
    block.rows.push_back(line.begin);
    block.end = line.next;
  }
  if (block.rows.size() < 2) return std::nullopt;
  const std::string_view content = trim(view(text, opening));
  if (content.starts_with("..")) {
    block.begin = opening.begin;
    block.lead = std::string(content);
  }
  return block;
}

// From border to border; the last one has a blank line below. What stands above the second of three is the
// head.
std::optional<RowBlock> simple_table(std::string_view text, const Line& top) {
  RowBlock block{top.begin, top.next, {}, {}};
  size_t head_end = 0;
  for (size_t at = top.next; at < text.size();) {
    const Line line = line_at(text, at);
    const std::string_view content = trim(view(text, line));
    at = line.next;
    if (line.blank) continue;  // rows may stand apart
    if (line.indent < top.indent) return std::nullopt;
    if (!is_border(content)) {
      block.rows.push_back(line.begin);
      continue;
    }
    const bool last = line.next >= text.size() || line_at(text, line.next).blank;
    if (last) {
      block.end = line.next;
      block.lead = std::string(trim(text.substr(top.begin, head_end > 0 ? head_end - top.begin : 0)));
      std::erase_if(block.rows, [head_end](size_t row) { return row < head_end; });
      return block;
    }
    if (head_end > 0) return std::nullopt;
    head_end = line.next;
  }
  return std::nullopt;
}

std::optional<RowBlock> grid_table(std::string_view text, const Line& top) {
  RowBlock block{top.begin, top.next, {}, {}};
  for (size_t at = top.next; at < text.size();) {
    const Line line = line_at(text, at);
    const std::string_view content = trim(view(text, line));
    if (content.empty() || (content[0] != '|' && content[0] != '+')) break;
    at = block.end = line.next;
    if (!is_grid(content)) continue;
    const bool head = content.find('=') != std::string_view::npos;
    if (head) block.lead = std::string(trim(text.substr(top.begin, line.next - top.begin)));
    if (head) block.rows.clear();
    block.rows.push_back(line.next);
  }
  if (block.rows.size() < 2) return std::nullopt;
  block.rows.pop_back();  // behind the last border
  return block;
}

}  // namespace

std::optional<RowBlock> rst_block_at(std::string_view text, const Line& line) {
  const std::string_view content = trim(view(text, line));
  if (is_border(content)) return simple_table(text, line);
  if (is_grid(content)) return grid_table(text, line);
  const bool directive = content.starts_with("..");
  const bool code = directive && (content.find("code") != std::string_view::npos ||
                                  content.find("sourcecode::") != std::string_view::npos ||
                                  content.find("literal") != std::string_view::npos);
  const bool opens =
      directive ? code && content.find("::") != std::string_view::npos : content.ends_with("::");
  return opens ? literal_block(text, line) : std::nullopt;
}

}  // namespace rhapsode::text
