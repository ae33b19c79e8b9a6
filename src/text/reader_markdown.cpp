// Markdown by lines, as CommonMark and GitHub read blocks: headings, fences, tables, front matter.
#include <algorithm>
#include <array>

#include "rhapsode/result.h"
#include "text/document_fields.h"
#include "text/readers.h"
#include "text/section_stack.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

// 1-6 for "## Title", with the title; else 0.
int atx_level(std::string_view content, std::string_view& title) {
  size_t level = 0;
  while (level < content.size() && content[level] == '#') ++level;
  if (level == 0 || level > 6) return 0;
  if (level < content.size() && content[level] != ' ' && content[level] != '\t') return 0;
  title = trim(content.substr(level));
  const size_t last = title.find_last_not_of('#');
  if (last == std::string_view::npos) {
    title = {};
  } else if (last + 1 < title.size() && title[last] == ' ') {
    title = trim(title.substr(0, last));
  }
  return static_cast<int>(level);
}

// The length of the run that opens or closes a fence, else 0. Backticks allow none behind them.
size_t fence_run(std::string_view content) {
  if (content.empty() || (content[0] != '`' && content[0] != '~')) return 0;
  const size_t run = std::min(content.find_first_not_of(content[0]), content.size());
  const bool inline_code = content[0] == '`' && content.find('`', run) != std::string_view::npos;
  return run >= 3 && !inline_code ? run : 0;
}

// "| --- | :-: |": the line below a table's head.
bool is_delimiter_row(std::string_view content) {
  bool bar = false, dash = false;
  for (const char c : content) {
    if (c == '|') bar = true;
    if (c == '-') dash = true;
    if (c != '|' && c != '-' && c != ':' && c != ' ' && c != '\t') return false;
  }
  return bar && dash;
}

bool is_setext(std::string_view content) {
  if (content.empty() || (content[0] != '=' && content[0] != '-')) return false;
  return trim(content).find_first_not_of(content[0]) == std::string_view::npos;
}

// Headings as people say them: without emphasis, code signs and link targets.
std::string plain_title(std::string_view title) {
  std::string out;
  for (size_t i = 0; i < title.size(); ++i) {
    const char c = title[i];
    if (c == '*' || c == '`') continue;
    if (c == '!' && i + 1 < title.size() && title[i + 1] == '[') continue;
    if (c == '[') continue;
    if (c == ']') {
      const bool target = i + 1 < title.size() && title[i + 1] == '(';
      const size_t end = target ? title.find(')', i) : std::string_view::npos;
      if (end != std::string_view::npos) i = end;
      continue;
    }
    if (c == '\\' && i + 1 < title.size()) ++i;
    out += title[i];
  }
  return out;
}

class MarkdownReader {
 public:
  explicit MarkdownReader(Document document) : document_(std::move(document)), text_(document_.text) {}

  Document read() && {
    size_t at = read_front_matter(mark_bytes(text_));
    while (at < text_.size()) {
      const Line line = line_at(text_, at);
      at = line.blank ? line.next : read_block_line(line);
      before_blank_ = line.blank;
    }
    return std::move(document_);
  }

 private:
  // Returns where the next line begins: behind a whole block for fences and tables.
  size_t read_block_line(const Line& line) {
    const std::string_view content = trim(view(text_, line));
    const bool shallow = line.indent < 4;
    std::string_view title;
    if (fence_run(content) > 0) return end_paragraph(read_fence(line, content));
    if (const int level = shallow ? atx_level(content, title) : 0; level > 0) {
      add_heading(line.begin, level, title);
      return end_paragraph(line.next);
    }
    const bool has_next = line.next < text_.size();
    const Line below = has_next ? line_at(text_, line.next) : Line{};
    const std::string_view next = has_next ? trim(view(text_, below)) : std::string_view();
    if (has_next && content.find('|') != std::string_view::npos && is_delimiter_row(next)) {
      return end_paragraph(read_table(line, below));
    }
    // A title of one line; longer ones are rare, and a rule below a paragraph is common.
    if (has_next && shallow && !below.blank && below.indent < 4 && !in_paragraph_ && is_setext(next) &&
        !is_setext(content)) {
      add_heading(line.begin, next[0] == '=' ? 1 : 2, content);
      return end_paragraph(below.next);
    }
    in_paragraph_ = !has_next || !below.blank;
    return line.next;
  }

  size_t end_paragraph(size_t next) {
    in_paragraph_ = false;
    return next;
  }

  void add_heading(size_t begin, int level, std::string_view marked) {
    constexpr size_t kMostTitle = 1000;
    std::string title = plain_title(marked.substr(0, character_floor(marked, kMostTitle)));
    std::string_view key, value;
    constexpr int kFieldHeadings = 4;
    // Some books say "# Title: Moby-Dick", "## Author: Herman Melville".
    if (headings_++ < kFieldHeadings && split_field(title, ':', key, value) &&
        take_field(key, value, document_)) {
      if (level > 1) return;
      title = std::string(value);
    }
    if (headings_ == 1 && level == 1 && document_.title.empty()) document_.title = one_line(title);
    stack_.enter(level, title);
    document_.sections.push_back({begin, stack_.path()});
    document_.breaks.push_back({begin, level <= 2 ? BreakStrength::kSection : BreakStrength::kBlock});
  }

  size_t read_fence(const Line& opening, std::string_view content) {
    const size_t run = fence_run(content);
    RowBlock block{opening.begin, opening.next, std::string(view(text_, opening)), {}};
    while (block.end < text_.size()) {
      const Line line = line_at(text_, block.end);
      block.end = line.next;
      const std::string_view inside = trim(view(text_, line));
      if (fence_run(inside) >= run && inside[0] == content[0] &&
          inside.find_first_not_of(inside[0]) == std::string_view::npos) {
        break;
      }
      if (!line.blank) block.rows.push_back(line.begin);
    }
    return add_block(std::move(block));
  }

  size_t read_table(const Line& head, const Line& delimiters) {
    RowBlock block{head.begin, delimiters.next, {}, {}};
    block.lead = text_.substr(head.begin, delimiters.end - head.begin);
    while (block.end < text_.size()) {
      const Line line = line_at(text_, block.end);
      if (line.blank || view(text_, line).find('|') == std::string_view::npos) break;
      block.rows.push_back(line.begin);
      block.end = line.next;
    }
    return add_block(std::move(block));
  }

  size_t add_block(RowBlock block) {
    const size_t end = block.end;
    // What stands between a caption and its table is no place for a cut.
    if (before_blank_) document_.breaks.push_back({block.begin, BreakStrength::kParagraph});
    document_.row_blocks.push_back(std::move(block));
    return end;
  }

  // "---" YAML or "+++" TOML at the very start; stays in the text.
  size_t read_front_matter(size_t begin) {
    if (begin >= text_.size()) return begin;
    const Line first = line_at(text_, begin);
    const std::string_view fence = trim(view(text_, first));
    if (fence != "---" && fence != "+++") return begin;
    const char separator = fence == "---" ? ':' : '=';
    constexpr size_t kMostBytes = 64 << 10;
    Document fields;
    size_t at = first.next;
    while (at < text_.size() && at - begin < kMostBytes) {
      const Line line = line_at(text_, at);
      at = line.next;
      const std::string_view content = view(text_, line);
      if (trim(content) == fence) {
        document_.title = fields.title;
        document_.author = fields.author;
        document_.date = fields.date;
        document_.supersedes = std::move(fields.supersedes);
        document_.superseded_by = std::move(fields.superseded_by);
        document_.breaks.push_back({at, BreakStrength::kBlock});
        return at;
      }
      take_front_line(line, content, separator, fields);
    }
    return begin;  // a rule, not front matter
  }

  void take_front_line(const Line& line, std::string_view content, char separator, Document& fields) {
    std::string_view key, value;
    if (line.indent == 0 && split_field(content, separator, key, value)) {
      front_key_ = ascii_lower(key);
      if (!value.empty()) take_field(key, value, fields);
    } else if (const std::string_view item = trim(content); item.starts_with("- ") && !front_key_.empty()) {
      // A list, one a line: of authors, or of documents.
      if (front_key_ != "author" && front_key_ != "authors") {
        if (front_key_.starts_with("supersede") || front_key_.starts_with("replace")) {
          take_field(front_key_, item.substr(2), fields);
        }
        return;
      }
      std::string& author = fields.author;
      const std::string one = clean_author(unquoted(item.substr(2)));
      if (author.size() + one.size() < 400) author += (author.empty() ? "" : ", ") + one;
    }
  }

  Document document_;
  std::string_view text_;
  SectionStack stack_;
  std::string front_key_;
  int headings_ = 0;
  bool in_paragraph_ = false;
  bool before_blank_ = true;
};

}  // namespace

Result<Document> read_markdown(std::string name, std::string text) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kMarkdown;
  document.text = std::move(text);
  return MarkdownReader(std::move(document)).read();
}

}  // namespace rhapsode::text
