// Plain text and reStructuredText: fields at the top, headings, tables drawn with "===" stay running text.
#include <algorithm>
#include <vector>

#include "rhapsode/result.h"
#include "text/document_fields.h"
#include "text/readers.h"
#include "text/rst_blocks.h"
#include "text/section_stack.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

// The sign of a line like "=====", else '\0'.
char underline_sign(std::string_view line) {
  line = trim(line);
  constexpr std::string_view kSigns = "=-~^\"'`#*+.:_<>";
  if (line.size() < 3 || kSigns.find(line[0]) == std::string_view::npos) return '\0';
  return line.find_first_not_of(line[0]) == std::string_view::npos ? line[0] : '\0';
}

bool is_number(std::string_view word) {
  while (!word.empty() && (word.back() == '.' || word.back() == ':')) word.remove_suffix(1);
  if (word.empty()) return false;
  return word.find_first_not_of("0123456789") == std::string_view::npos ||
         word.find_first_not_of("IVXLCDM") == std::string_view::npos;
}

// The level of a line that stands alone and looks like "CHAPTER IV. The Whale" (1-2), "PREFACE" (2) or
// "2.1 Scope" (1 + its dots); 0: no heading.
int chapter_level(std::string_view line) {
  constexpr size_t kLongest = 80;
  line = trim(line);
  if (line.size() < 3 || line.size() > kLongest) return 0;
  const size_t space = std::min(line.find(' '), line.size());
  const std::string_view first = line.substr(0, space);
  const std::string_view rest = trim(line.substr(space));
  const std::string word = ascii_lower(first);
  const std::string_view second = rest.substr(0, rest.find(' '));
  if (word == "part" || word == "book" || word == "volume" || word == "act") return is_number(second) ? 1 : 0;
  if (word == "chapter" || word == "section" || word == "letter" || word == "scene" || word == "appendix") {
    return is_number(second) || (word == "appendix" && second.size() <= 2) ? 2 : 0;
  }
  if (is_ascii_digit(first[0]) && first.find_first_not_of("0123456789.") == std::string_view::npos) {
    const bool title = !rest.empty() && is_ascii_upper(rest[0]) &&
                       std::string_view(".,;:?!").find(rest.back()) == std::string_view::npos;
    const auto dots = std::count(first.begin(), first.end(), '.') - (first.back() == '.' ? 1 : 0);
    return title && first.size() <= 8 ? 2 + static_cast<int>(dots) : 0;
  }
  const auto letters = std::count_if(line.begin(), line.end(), is_ascii_letter);
  const bool capitals = std::none_of(line.begin(), line.end(), is_ascii_lower);
  return capitals && letters >= 4 && letters * 2 > static_cast<std::ptrdiff_t>(line.size()) ? 2 : 0;
}

class PlainReader {
 public:
  explicit PlainReader(Document document)
      : document_(std::move(document)),
        text_(document_.text),
        drawn_only_(document_.name.ends_with(".rst")) {}

  Document read() && {
    size_t at = read_fields(mark_bytes(text_));
    while (at < text_.size()) {
      const Line line = line_at(text_, at);
      at = line.next;
      if (!line.blank) read_line(line);
      before_ = line;
      const size_t block_end = drawn_only_ && !line.blank ? read_block(line) : 0;
      if (block_end > at) {
        at = block_end;
        before_.blank = true;  // no title of a line drawn below the block
      }
      has_before_ = true;
    }
    return std::move(document_);
  }

 private:
  // Groups of "Key: value" lines at the top; their continuations are indented. Returns where they end.
  size_t read_fields(size_t begin) {
    size_t at = begin, fields_end = begin;
    std::string_view key;
    std::string value;
    std::string number;
    const auto take = [&] {
      if (!key.empty()) {
        take_field(key, value, document_);
        const bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
        if (number.empty() && digits && std::all_of(key.begin(), key.end(), is_ascii_upper)) {
          number = std::string(key) + " " + value;  // "PEP: 8", "RFC: 2822"
        }
      }
      key = {};
    };
    constexpr int kMostLines = 60;
    for (int i = 0; i < kMostLines && at < text_.size(); ++i) {
      const Line line = line_at(text_, at);
      std::string_view name, rest;
      if (!line.blank && line.indent > 0 && !key.empty()) {
        value.append(" ").append(trim(view(text_, line)));
      } else if (!line.blank && line.indent == 0 && split_field(view(text_, line), ':', name, rest)) {
        take();
        key = name;
        value = rest;
      } else {
        take();
        if (!line.blank) break;
      }
      at = line.next;
      if (!line.blank) fields_end = at;
    }
    take();
    if (document_.title.empty() && document_.author.empty() && document_.date.empty()) {
      document_.supersedes.clear();
      document_.superseded_by.clear();
      return begin;
    }
    if (!number.empty() && !document_.title.empty()) document_.title = number + ": " + document_.title;
    document_.identifier = number;
    complete_references(std::string_view(number).substr(0, number.find(' ')), document_);
    return fields_end;
  }

  void read_line(const Line& line) {
    const std::string_view content = trim(view(text_, line));
    const char sign = underline_sign(content);
    if (sign != '\0' && is_title(before_, line)) {
      const bool overlined = is_overlined(sign);
      add_heading(overlined ? overline_.begin : before_.begin, drawn_level(sign, overlined),
                  trim(view(text_, before_)));
    } else if (sign != '\0' && (!has_before_ || before_.blank)) {
      overline_ = line;
    } else if (!drawn_only_ && stands_alone(line)) {
      const int level = chapter_level(content);
      if (level > 0) add_heading(line.begin, kChapterLevels + level, content);
    }
    earlier_blank_ = !has_before_ || before_.blank;
  }

  // Returns where to go on: behind the block that the line opens.
  size_t read_block(const Line& line) {
    auto block = rst_block_at(text_, line);
    if (!block) return 0;
    const size_t end = block->end;
    document_.row_blocks.push_back(std::move(*block));
    return end;
  }

  // `title` is a line of text that the line below is drawn under.
  bool is_title(const Line& title, const Line& below) const {
    if (!has_before_ || title.blank || below.indent > 0) return false;
    const std::string_view content = trim(view(text_, title));
    if (underline_sign(content) != '\0') return false;
    const bool over = overline_.next == title.begin && overline_.next > 0;
    if (!over && (title.indent > 0 || !earlier_blank_)) return false;
    // Writers are off by a character or two.
    return characters(content) <= characters(trim(view(text_, below))) + 2;
  }

  bool is_overlined(char sign) const {
    return overline_.next == before_.begin && overline_.next > 0 &&
           underline_sign(view(text_, overline_)) == sign;
  }

  bool stands_alone(const Line& line) const {
    if (has_before_ && !before_.blank) return false;
    return line.next >= text_.size() || line_at(text_, line.next).blank;
  }

  // Levels of drawn headings follow from the order in which their styles appear.
  int drawn_level(char sign, bool overlined) {
    const std::pair<char, bool> style(sign, overlined);
    const auto at = std::find(styles_.begin(), styles_.end(), style);
    if (at == styles_.end()) {
      styles_.push_back(style);
      return static_cast<int>(styles_.size());
    }
    return static_cast<int>(at - styles_.begin()) + 1;
  }

  void add_heading(size_t begin, int level, std::string_view marked) {
    std::string title(marked);
    if (drawn_only_) std::erase(title, '`');
    if (document_.sections.empty() && document_.title.empty() && drawn_only_)
      document_.title = one_line(title);
    stack_.enter(level, title);
    document_.sections.push_back({begin, stack_.path()});
    document_.breaks.push_back({begin, BreakStrength::kSection});
  }

  static constexpr int kChapterLevels = 100;  // below all drawn ones

  Document document_;
  std::string_view text_;
  bool drawn_only_;
  SectionStack stack_;
  std::vector<std::pair<char, bool>> styles_;
  Line before_;
  Line overline_;
  bool has_before_ = false;
  bool earlier_blank_ = true;  // the line above `before_` is blank
};

}  // namespace

Result<Document> read_plain(std::string name, std::string text) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kPlain;
  document.text = std::move(text);
  return PlainReader(std::move(document)).read();
}

}  // namespace rhapsode::text
