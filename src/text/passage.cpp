#include "text/passage.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/result.h"
#include "text/passage_header.h"
#include "text/passage_pieces.h"
#include "text/text_scan.h"
#include "text/utf8_gate.h"

namespace rhapsode::text {
namespace {

constexpr int kLeastTokens = 16;  // a limit below leaves no room for a header
constexpr int kMostHeaderTokens = 60;
constexpr int kJoinTokens = 2;  // between header and text

struct Budget {
  int header_line;
  int lead;
  PieceLimits pieces;
};

Budget budget_of(const PassageLimits& limits) {
  Budget budget{};
  budget.header_line = std::min(kMostHeaderTokens, limits.most_tokens / 4);
  budget.lead = limits.most_tokens * 3 / 10;
  budget.pieces.most_tokens = std::max(1, limits.most_tokens / 8);
  budget.pieces.most_row_tokens = 0;  // depends on the longest lead, see below
  return budget;
}

class PassageCutter {
 public:
  PassageCutter(const Document& document, const TokenCounter& count_tokens, const PassageLimits& limits)
      : document_(document),
        text_(document.text),
        count_(count_tokens),
        limits_(limits),
        budget_(budget_of(limits)),
        headers_(document, count_tokens, budget_.header_line, budget_.lead) {}

  std::vector<Passage> cut() {
    budget_.pieces.most_row_tokens = most_row_tokens();
    pieces_ = cut_pieces(document_, count_, budget_.pieces);
    for (size_t next = 0; next < pieces_.size();) next = add_passage(next);
    return std::move(passages_);
  }

 private:
  // What is left for a row beside the longest header that there can be.
  int most_row_tokens() const {
    constexpr size_t kMostLeadBytes = 4096;
    int lead = 0;
    for (const RowBlock& block : document_.row_blocks) {
      const int tokens = block.lead.size() > kMostLeadBytes ? budget_.lead : count_(block.lead);
      lead = std::max(lead, std::min(budget_.lead, tokens));
    }
    return std::max(1, limits_.most_tokens - budget_.header_line - lead - 2 * kJoinTokens);
  }

  // Returns the piece that the next passage begins with.
  size_t add_passage(size_t first) {
    Passage passage;
    passage.begin = pieces_[first].begin;
    passage.header = headers_.header_at(passage.begin, pieces_[first].block);
    const int header = count_(passage.header) + kJoinTokens;
    int most = std::max(1, limits_.most_tokens - header);
    const int aim = std::max(1, limits_.aim_tokens - header);
    size_t last = best_end(first, aim, most);
    // Sums of pieces are estimates: the whole is counted, and shrinks where they were too low.
    for (int over = excess(passage, last); over > 0; over = excess(passage, last)) {
      if (last == first + 1) return add_part(std::move(passage), first);
      most = std::max(1, std::min(most, sum(first, last)) - over);
      last = std::min(last - 1, best_end(first, std::min(aim, most), most));
    }
    passage.end = offset_of(last);
    finish(std::move(passage));
    return last;
  }

  size_t offset_of(size_t piece) const {
    return piece < pieces_.size() ? pieces_[piece].begin : text_.size();
  }

  int sum(size_t first, size_t last) const {
    int tokens = 0;
    for (size_t i = first; i < last; ++i) tokens += pieces_[i].tokens;
    return tokens;
  }

  int excess(const Passage& passage, size_t last) const {
    return count_with(passage, offset_of(last)) - limits_.most_tokens;
  }

  int count_with(const Passage& passage, size_t end) const {
    std::string whole = passage.header;
    whole += '\n';
    whole.append(text_.substr(passage.begin, end - passage.begin));
    return count_(whole);
  }

  // The piece before which a passage from `first` best ends: above `first`, at most pieces_.size().
  size_t best_end(size_t first, int aim, int most) const {
    size_t best = first + 1;
    float best_score = -1e30F;
    int tokens = 0;
    for (size_t i = first; i < pieces_.size(); ++i) {
      tokens += pieces_[i].tokens;
      if (tokens > most && i > first) return best;
      if (i + 1 == pieces_.size()) break;
      const float score = pieces_[i + 1].worth - distance_cost(tokens, aim);
      if (score >= best_score) {
        best_score = score;
        best = i + 1;
      }
    }
    return pieces_.size();  // all that is left fits
  }

  // Full passages answer best, and a strong break is worth some tokens: a section's start wins over a
  // paragraph's down to about half of the aim, a paragraph's over a sentence's down to 60 %.
  static float distance_cost(int tokens, int aim) {
    const float fill = static_cast<float>(tokens) / static_cast<float>(aim);
    const float cost = 5.0F * std::abs(1.0F - fill);
    return fill < 0.5F ? cost + 16.0F * (0.5F - fill) : cost;
  }

  // A single piece that is too long with its header after all: as much of it as fits, the rest comes next.
  size_t add_part(Passage passage, size_t piece) {
    const size_t end = offset_of(piece + 1);
    size_t stop = end;
    for (int tokens = count_with(passage, stop); tokens > limits_.most_tokens;) {
      const size_t bytes = stop - passage.begin;
      const size_t goal = bytes * static_cast<size_t>(limits_.most_tokens) / static_cast<size_t>(tokens);
      const size_t less = word_floor(text_, passage.begin, stop, std::min(bytes * 9 / 10, goal));
      if (less >= stop) break;  // one character
      stop = less;
      tokens = count_with(passage, stop);
    }
    passage.end = stop;
    finish(std::move(passage));
    if (stop == end) return piece + 1;
    Piece& rest = pieces_[piece];
    rest.begin = stop;
    rest.tokens = count_(text_.substr(stop, end - stop));
    return piece;
  }

  void finish(Passage passage) {
    passage.line = line_;
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(passage.begin),
                                         text_.begin() + static_cast<std::ptrdiff_t>(passage.end), '\n'));
    size_t content = passage.begin;
    while (content + 1 < passage.end && is_ascii_space(text_[content])) ++content;
    const auto& pages = document_.page_starts;
    passage.page = static_cast<int>(std::upper_bound(pages.begin(), pages.end(), content) - pages.begin());
    passages_.push_back(std::move(passage));
  }

  const Document& document_;
  std::string_view text_;
  const TokenCounter& count_;
  PassageLimits limits_;
  Budget budget_;
  PassageHeaders headers_;
  std::vector<Piece> pieces_;
  std::vector<Passage> passages_;
  int line_ = 1;
};

}  // namespace

Result<std::vector<Passage>> cut_passages(const Document& document, const TokenCounter& count_tokens,
                                          const PassageLimits& limits) {
  if (limits.most_tokens < kLeastTokens || limits.aim_tokens < 1 || limits.aim_tokens > limits.most_tokens) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "{}: passages of {} tokens aimed at and {} at most cannot be made: give at least {} and "
        "an aim that is not above it",
        document.name, limits.aim_tokens, limits.most_tokens, kLeastTokens);
  }
  if (!is_valid_utf8(document.text)) {
    return make_error(ErrorKind::kInvalidArgument, "{}: the text is not UTF-8: convert it before it is cut",
                      document.name);
  }
  return PassageCutter(document, count_tokens, limits).cut();
}

}  // namespace rhapsode::text
