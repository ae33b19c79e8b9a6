#include "text/passage_pieces.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr float kWordWorth = 0.0F;
constexpr float kWrappedLineWorth = 0.2F;  // a line end in the middle of a sentence
constexpr float kRowWorth = 1.5F;
constexpr float kGlued = -10.0F;  // would part a heading from what it heads
constexpr float kInRow = -8.0F;   // would part a row
constexpr float kInWord = -30.0F;
constexpr size_t kPieceBytes = 192;  // running text without a better place is cut at words about here

float worth_of(BreakStrength strength) {
  constexpr std::array<float, 7> kWorth = {kWordWorth, 2.0F, 2.5F, 4.0F, 5.0F, 6.5F, 6.5F};
  return kWorth[std::min<size_t>(static_cast<size_t>(strength), kWorth.size() - 1)];
}

// A mark that belongs to the character before it, or a joiner.
bool is_attached(uint32_t point) {
  if (point < 0x300) return false;
  if (point == 0x200D || (point >= 0xFE00 && point <= 0xFE0F) || (point >= 0x1F3FB && point <= 0x1F3FF))
    return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(point));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

// A cut at `offset` parts no word: white space stands before, or one side is of a script without spaces and
// what follows is no mark.
bool is_word_start(std::string_view text, size_t offset) {
  if (offset == 0 || offset >= text.size()) return true;
  const uint32_t before = code_point_at(text, previous_start(text, offset)).value;
  const uint32_t after = code_point_at(text, offset).value;
  if (is_space(before)) return !is_space(after);
  if (!is_unspaced(before) && !is_unspaced(after)) return false;
  // Closing signs and small kana do not begin a line, nor does an opening sign end one.
  return is_unspaced(after) && !is_attached(after) &&
         !(before == 0x300C || before == 0x300E || before == 0xFF08);
}

size_t character_before(std::string_view text, size_t begin, size_t end, size_t offset) {
  constexpr int kMostMarks = 16;
  size_t at = character_floor(text, offset);
  for (int i = 0; i < kMostMarks && at > begin && at < end && is_attached(code_point_at(text, at).value);
       ++i) {
    at = previous_start(text, at);
  }
  if (at > begin) return at;
  return std::min(end, begin + code_point_at(text, begin).bytes);
}

struct Candidate {
  size_t offset;
  float worth;
};

// Where cuts may be, before token counts: the reader's breaks and rows, lines and sentences.
class CandidateFinder {
 public:
  explicit CandidateFinder(const Document& document)
      : document_(document), text_(document.text), sentences_(sentence_starts(text_, document.kind)) {}

  std::vector<Candidate> find() {
    out_.push_back({0, worth_of(BreakStrength::kSection)});
    bool after_blank = false, after_colon = false;
    for (size_t at = 0; at < text_.size();) {
      const Line line = line_at(text_, at);
      at = line.next;
      if (!line.blank) {
        take_line(line, after_blank, after_colon);
        const char last = text_[line.end - 1];
        after_colon = last == ':';
      }
      after_blank = line.blank;
    }
    return std::move(out_);
  }

 private:
  void take_line(const Line& line, bool after_blank, bool after_colon) {
    const size_t content = first_content(line);
    const bool sentence = skip_to(sentences_, next_sentence_, line.begin, content);
    float worth = after_blank ? worth_of(BreakStrength::kParagraph)
                  : sentence  ? worth_of(BreakStrength::kLine)
                              : kWrappedLineWorth;
    worth = std::max(worth, strongest_break(content));
    const bool glued = is_glued(line, after_blank, worth);
    if (after_colon || closes_code(content)) worth = std::min(worth, kWrappedLineWorth);
    if (glued) worth += kGlued;
    add(line.begin, worth);
    take_inside(line.next);
  }

  // Sentences and the reader's breaks inside of a line, merged.
  void take_inside(size_t end) {
    const auto& breaks = document_.breaks;
    while (true) {
      const bool sentence = next_sentence_ < sentences_.size() && sentences_[next_sentence_] < end;
      const bool point = next_break_ < breaks.size() && breaks[next_break_].offset < end;
      if (!sentence && !point) return;
      if (sentence && (!point || sentences_[next_sentence_] <= breaks[next_break_].offset)) {
        add(sentences_[next_sentence_++], worth_of(BreakStrength::kSentence));
      } else {
        const BreakPoint& inner = breaks[next_break_++];
        if (character_floor(text_, inner.offset) == inner.offset) add(inner.offset, worth_of(inner.strength));
      }
    }
  }

  // The last line of a block of code belongs to it.
  bool closes_code(size_t content) const {
    if (document_.kind != DocumentKind::kCode) return false;
    const std::string_view rest = text_.substr(content, 4);
    return rest[0] == '}' || rest[0] == ')' || rest[0] == ']' ||
           (rest.starts_with("end") && rest.size() < 4) || rest == "end\n" || rest == "end\r";
  }

  size_t first_content(const Line& line) const {
    size_t at = line.begin;
    while (at < line.end && (is_ascii_space(text_[at]) || text_[at] == '\0')) ++at;
    return at;
  }

  static bool skip_to(const std::vector<size_t>& offsets, size_t& next, size_t begin, size_t content) {
    bool found = false;
    for (; next < offsets.size() && offsets[next] <= content; ++next) found |= offsets[next] >= begin;
    return found;
  }

  // Of those at the line's start or in the blank lines before it.
  float strongest_break(size_t content) {
    float worth = 0;
    const auto& breaks = document_.breaks;
    for (; next_break_ < breaks.size() && breaks[next_break_].offset <= content; ++next_break_) {
      worth = std::max(worth, worth_of(breaks[next_break_].strength));
    }
    return worth;
  }

  // True for the rest of a heading and the first line of what it heads. A section begins with a heading if
  // the reader put a strong break there.
  bool is_glued(const Line& line, bool after_blank, float worth) {
    const auto& sections = document_.sections;
    const size_t before = next_section_;
    while (next_section_ < sections.size() && sections[next_section_].begin < line.end) ++next_section_;
    const bool within = heading_lines_ > 0;
    if (next_section_ > before && worth >= worth_of(BreakStrength::kBlock)) {
      // A heading below another one stays with it; its sibling does not.
      const bool nested = within && sections[next_section_ - 1].path.starts_with(sections[heading_].path);
      heading_ = next_section_ - 1;
      heading_lines_ = 1;
      return nested;
    }
    // What is headed has begun: after a blank line, or where the "heading" is long.
    constexpr int kMostHeadingLines = 3;
    if (within) heading_lines_ = after_blank || heading_lines_ >= kMostHeadingLines ? 0 : heading_lines_ + 1;
    return within;
  }

  void add(size_t offset, float worth) {
    if (offset > out_.back().offset) {
      out_.push_back({offset, worth});
    } else if (offset == out_.back().offset && offset > 0) {
      out_.back().worth = std::max(out_.back().worth, worth);
    }
  }

  const Document& document_;
  std::string_view text_;
  std::vector<size_t> sentences_;
  size_t next_sentence_ = 0;
  size_t next_break_ = 0;
  size_t next_section_ = 0;
  size_t heading_ = 0;     // index of its section
  int heading_lines_ = 0;  // read since it began; 0: none is open
  std::vector<Candidate> out_;
};

// Turns candidates into pieces: counts tokens, divides what is too long, keeps rows whole.
class PieceMaker {
 public:
  PieceMaker(const Document& document, const TokenCounter& count_tokens, const PieceLimits& limits)
      : document_(document),
        text_(document.text),
        count_(count_tokens),
        limits_(limits),
        candidates_(CandidateFinder(document).find()) {}

  std::vector<Piece> make() {
    size_t at = 0;
    for (size_t i = 0; i < document_.row_blocks.size(); ++i) {
      const RowBlock& block = document_.row_blocks[i];
      const size_t begin = character_floor(text_, block.begin);
      const size_t end = character_floor(text_, block.end);
      if (begin < at || end <= begin) continue;  // a reader's mistake: cut as running text
      add_between(at, begin);
      add_rows(static_cast<int>(i), begin, end);
      at = end;
    }
    add_between(at, text_.size());
    return std::move(pieces_);
  }

 private:
  // Worth of the candidate at `offset`, or `otherwise` where there is none. Offsets ascend over all calls.
  float worth_at(size_t offset, float otherwise) {
    while (next_ < candidates_.size() && candidates_[next_].offset < offset) ++next_;
    return next_ < candidates_.size() && candidates_[next_].offset == offset ? candidates_[next_].worth
                                                                             : otherwise;
  }

  size_t candidate_after(size_t offset) {
    while (next_ < candidates_.size() && candidates_[next_].offset <= offset) ++next_;
    return next_ < candidates_.size() ? candidates_[next_].offset : text_.size();
  }

  void add_between(size_t from, size_t to) {
    while (from < to) {
      // Without a candidate here this is the white space behind a block: it stays with it.
      const float worth = worth_at(from, kInRow);
      const size_t stop = std::min(to, candidate_after(from));
      add_running(from, stop, worth, -1, kWordWorth);
      from = stop;
    }
  }

  void add_rows(int index, size_t begin, size_t end) {
    const RowBlock& block = document_.row_blocks[static_cast<size_t>(index)];
    size_t row = begin;
    float worth = worth_at(begin, worth_of(BreakStrength::kParagraph));
    for (const size_t offset : block.rows) {
      if (offset <= row || offset >= end || character_floor(text_, offset) != offset) continue;
      add_row(row, offset, worth, index);
      // Between groups of rows (a blank line in code) a cut reads better.
      worth = kRowWorth + (worth_at(offset, 0) >= worth_of(BreakStrength::kParagraph) ? 1.0F : 0.0F);
      // The lead alone is no part: its first row stays with it.
      if (row == begin && offset - begin <= block.lead.size() + 2) worth += kGlued;
      row = offset;
    }
    add_row(row, end, worth, index);
  }

  void add_row(size_t begin, size_t end, float worth, int index) {
    const auto is_first = [&] { return begin == document_.row_blocks[static_cast<size_t>(index)].begin; };
    const int tokens = tokens_of(begin, end, limits_.most_row_tokens);
    if (tokens <= limits_.most_row_tokens) {
      pieces_.push_back({begin, worth, tokens, is_first() ? -1 : index});
      return;
    }
    while (begin < end) {
      const size_t stop = std::min(end, candidate_after(begin));
      const size_t count = pieces_.size();
      add_running(begin, stop, worth, index, kInRow);
      if (is_first()) pieces_[count].block = -1;
      begin = stop;
      worth = std::min(worth_at(begin, 0), worth_of(BreakStrength::kLine)) + kInRow;
    }
  }

  // [begin, end) as one piece, or as several cut before words.
  void add_running(size_t begin, size_t end, float worth, int block, float inner_worth) {
    while (begin < end) {
      size_t stop = end - begin > kPieceBytes * 2 ? word_floor(text_, begin, end, kPieceBytes) : end;
      int tokens = count_(text_.substr(begin, stop - begin));
      while (tokens > limits_.most_tokens && stop - begin > 4) {
        const size_t less = word_floor(text_, begin, stop, (stop - begin) / 2);
        if (less >= stop) break;
        stop = less;
        tokens = count_(text_.substr(begin, stop - begin));
      }
      pieces_.push_back({begin, worth, tokens, block});
      begin = stop;
      worth = is_word_start(text_, stop) ? inner_worth : kInWord;
    }
  }

  // Of a row; no more is counted than it takes to see that it is too long.
  int tokens_of(size_t begin, size_t end, int enough) const {
    constexpr size_t kMostTokenBytes = 64;
    if (end - begin > static_cast<size_t>(enough) * kMostTokenBytes) return enough + 1;
    return count_(text_.substr(begin, end - begin));
  }

  const Document& document_;
  std::string_view text_;
  const TokenCounter& count_;
  PieceLimits limits_;
  std::vector<Candidate> candidates_;
  size_t next_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

size_t word_floor(std::string_view text, size_t begin, size_t end, size_t bytes) {
  if (end - begin <= bytes) return end;
  const size_t goal = character_floor(text, begin + bytes);
  size_t at = goal;
  while (at > begin && !is_word_start(text, at)) at = previous_start(text, at);
  if (at > begin) return at;
  return character_before(text, begin, end, goal);
}

std::vector<Piece> cut_pieces(const Document& document, const TokenCounter& count_tokens,
                              const PieceLimits& limits) {
  if (document.text.empty()) return {};
  return PieceMaker(document, count_tokens, limits).make();
}

}  // namespace rhapsode::text
