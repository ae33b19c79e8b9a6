// sentence_starts(): one pass over lines, one over the characters of each line of prose.
#include <algorithm>
#include <array>

#include "text/passage.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

// Words that end in a full stop inside a sentence, in lower case, ascending.
constexpr std::array<std::string_view, 66> kAbbreviations = {
    "adj",  "al",  "approx", "apr",  "art",  "assn", "aug", "ave", "bd",  "bros",   "bzw",
    "ca",   "cap", "capt",   "cf",   "ch",   "chap", "cit", "co",  "col", "corp",   "dec",
    "dept", "dr",  "ed",     "eds",  "eq",   "eqs",  "esq", "etc", "feb", "fig",    "figs",
    "gen",  "gov", "hon",    "ibid", "jan",  "jr",   "lt",  "ltd", "maj", "messrs", "mr",
    "mrs",  "ms",  "mt",     "no",   "nos",  "nov",  "nr",  "oct", "op",  "pp",     "prof",
    "ref",  "rev", "sec",    "sen",  "sept", "sgt",  "sr",  "st",  "vol", "vols",   "vs"};

bool is_abbreviation(std::string_view word) {
  while (!word.empty() && !is_identifier_byte(word.front())) word.remove_prefix(1);
  if (word.size() == 1) return is_ascii_letter(word[0]) && word != "I";
  // "e.g", "U.S", "Ph.D": short parts around dots.
  if (word.find('.') != std::string_view::npos) {
    size_t part = 0;
    for (const char c : word) {
      part = c == '.' ? 0 : part + 1;
      if (part > 2 || is_ascii_digit(c)) return false;
    }
    return true;
  }
  return std::binary_search(kAbbreviations.begin(), kAbbreviations.end(), ascii_lower(word));
}

// Ends a sentence whatever follows: the stops of scripts whose next sentence may follow without a space.
bool is_hard_stop(uint32_t point) {
  switch (point) {
    case 0x3002:  // 。
    case 0xFF01:  // ！
    case 0xFF1F:  // ？
    case 0xFF61:  // ｡
    case 0x0964:  // danda
    case 0x0965:
    case 0x06D4:  // Arabic full stop
    case 0x061F:  // Arabic question mark
    case 0x0589:  // Armenian full stop
    case 0x1362:  // Ethiopic full stop
    case 0x104B:  // Myanmar section
    case 0x17D4:  // Khmer khan
      return true;
    default:
      return false;
  }
}

bool is_soft_stop(uint32_t point) {
  return point == '.' || point == '!' || point == '?' || point == 0x2026 ||
         (point >= 0x203C && point <= 0x203D) || (point >= 0x2047 && point <= 0x2049) || point == 0xFF0E;
}

bool is_closer(uint32_t point) {
  if (point < 0x80)
    return std::string_view("\"')]}*_`").find(static_cast<char>(point)) != std::string_view::npos;
  return point == 0x2019 || point == 0x201D || point == 0xBB ||
         (point >= 0x3009 && point <= 0x3011 && point % 2) || point == 0xFF09 || point == 0x300D ||
         point == 0x300F;
}

// Bytes of a list item's sign at the start of a line's content ("- ", "* ", "12. ", "a) "), else 0.
size_t list_sign(std::string_view content) {
  if (content.size() < 2) return 0;
  if (content.starts_with("•")) return 3;
  if (std::string_view("-*+").find(content[0]) != std::string_view::npos && content[1] == ' ') return 1;
  size_t digits = 0;
  while (digits < content.size() && digits < 4 && is_ascii_digit(content[digits])) ++digits;
  if (digits == 0 && is_ascii_lower(content[0]) && content[1] == ')') digits = 1;
  if (digits == 0 || digits + 1 >= content.size()) return 0;
  const bool sign = content[digits] == '.' || content[digits] == ')';
  return sign && content[digits + 1] == ' ' ? digits + 1 : 0;
}

bool is_fence(std::string_view content) {
  return content.starts_with("```") || content.starts_with("~~~");
}

// "Python-Version: 3.12": one word and a colon, as in the head of a letter or proposal.
bool is_field(std::string_view content) {
  constexpr size_t kLongestKey = 24;
  const size_t colon = content.substr(0, kLongestKey).find(':');
  if (colon == std::string_view::npos || colon < 2 || !is_ascii_upper(content[0])) return false;
  const auto key = content.substr(0, colon);
  const bool word =
      std::all_of(key.begin(), key.end(), [](char c) { return is_ascii_letter(c) || c == '-'; });
  return word && (colon + 1 == content.size() || content[colon + 1] == ' ');
}

class SentenceScanner {
 public:
  SentenceScanner(std::string_view text, DocumentKind kind) : text_(text), kind_(kind) {}

  std::vector<size_t> scan() {
    starts_.push_back(0);
    for (size_t at = mark_bytes(text_); at < text_.size();) {
      const Line line = line_at(text_, at);
      at = line.next;
      if (line.blank) {
        after_blank_ = !quoted_ || kind_ != DocumentKind::kTable;
        continue;
      }
      if (kind_ == DocumentKind::kTable) {
        read_row(line);
      } else if (kind_ == DocumentKind::kCode) {
        add(line.begin);
      } else {
        read_prose(line);
      }
      after_blank_ = false;
    }
    return std::move(starts_);
  }

 private:
  void add(size_t offset) {
    if (offset > starts_.back()) starts_.push_back(offset);
  }

  // A row of a table ends at a line end outside of quotes.
  void read_row(const Line& line) {
    if (!quoted_) add(line.begin);
    const auto row = view(text_, line);
    if (std::count(row.begin(), row.end(), '"') % 2 == 1) quoted_ = !quoted_;
  }

  void read_prose(const Line& line) {
    size_t content = line.begin;
    while (is_ascii_space(text_[content]) || text_[content] == '\0') ++content;
    const std::string_view rest = text_.substr(content, line.end - content);
    if (is_fence(rest)) {
      in_fence_ = !in_fence_;
      add(content);
      after_heading_ = true;
      return;
    }
    if (in_fence_) return add(line.begin);
    const bool heading = rest[0] == '#' && kind_ != DocumentKind::kPlain;
    const size_t sign = list_sign(rest);
    const bool field = line.indent == 0 && is_field(rest);
    const bool next_field = field && in_fields_ && !after_blank_;
    in_fields_ = field || (in_fields_ && !after_blank_ && line.indent > 0);
    const bool ended = pending_stop_ && !(pending_soft_ && is_ascii_lower(rest[0]));
    if (after_blank_ || after_heading_ || heading || sign > 0 || rest[0] == '|' || ended || next_field)
      add(content);
    after_heading_ = heading || rest[0] == '|';
    pending_stop_ = false;
    if (rest[0] != '|') read_characters(content, content + sign, line.end);
  }

  void read_characters(size_t content, size_t at, size_t end) {
    while (at < end) {
      const CodePoint point = code_point_at(text_, at);
      const bool hard = is_hard_stop(point.value);
      const bool soft = !hard && is_soft_stop(point.value);
      const size_t stop = at;
      at += point.bytes;
      if (!hard && !soft) continue;
      at = skip_stops(at, end);
      if (point.value == '.' && at == stop + 1 && is_abbreviation(word_before(content, stop))) continue;
      const size_t after = skip_spaces(at, end);
      if (soft && after == at && at < end) continue;  // "3.14", "a@b.org", "x.y()"
      if (after >= end) {
        pending_stop_ = true;
        pending_soft_ = soft;
        return;
      }
      if (!(soft && is_ascii_lower(text_[after]))) add(after);
      at = after;
    }
  }

  // Over repeated stops ("?!", "...") and closing signs.
  size_t skip_stops(size_t at, size_t end) const {
    while (at < end) {
      const CodePoint point = code_point_at(text_, at);
      if (!is_hard_stop(point.value) && !is_soft_stop(point.value) && !is_closer(point.value)) break;
      at += point.bytes;
    }
    return at;
  }

  size_t skip_spaces(size_t at, size_t end) const {
    while (at < end) {
      const CodePoint point = code_point_at(text_, at);
      if (!is_space(point.value)) break;
      at += point.bytes;
    }
    return at;
  }

  std::string_view word_before(size_t content, size_t stop) const {
    constexpr size_t kLongest = 16;
    size_t begin = stop;
    while (begin > content && stop - begin < kLongest && !is_ascii_space(text_[begin - 1])) --begin;
    return text_.substr(begin, stop - begin);
  }

  std::string_view text_;
  DocumentKind kind_;
  std::vector<size_t> starts_;
  bool after_blank_ = true;
  bool after_heading_ = false;
  bool in_fence_ = false;
  bool in_fields_ = false;
  bool quoted_ = false;
  bool pending_stop_ = false;  // the line before ended with a stop
  bool pending_soft_ = false;
};

}  // namespace

std::vector<size_t> sentence_starts(std::string_view text, DocumentKind kind) {
  return SentenceScanner(text, kind).scan();
}

}  // namespace rhapsode::text
