#include "text/search_terms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

// Function words of English, ascending.
constexpr std::array<std::string_view, 92> kFunctionWords = {
    "a",    "about", "after", "all",  "also",   "am",    "an",   "and",    "any",   "are",   "as",    "at",
    "be",   "been",  "but",   "by",   "can",    "could", "did",  "do",     "does",  "for",   "from",  "had",
    "has",  "have",  "he",    "her",  "him",    "his",   "how",  "i",      "if",    "in",    "into",  "is",
    "it",   "its",   "just",  "many", "me",     "more",  "most", "much",   "my",    "no",    "not",   "of",
    "on",   "or",    "our",   "out",  "please", "s",     "she",  "should", "so",    "some",  "such",  "t",
    "tell", "than",  "that",  "the",  "their",  "them",  "then", "there",  "these", "they",  "this",  "those",
    "to",   "up",    "us",    "was",  "we",     "were",  "what", "when",   "where", "which", "while", "who",
    "whom", "whose", "why",   "will", "with",   "would", "you",  "your"};

bool is_ignored(uint32_t point) {
  return point == 0xAD || point == 0x34F || point == 0x61C || (point >= 0x200B && point <= 0x200F) ||
         (point >= 0x202A && point <= 0x202E) || (point >= 0x2060 && point <= 0x2064) || point == 0xFEFF ||
         (point >= 0xFE00 && point <= 0xFE0F);
}

enum class Kind { kOther, kLower, kUpper, kDigit };

// Letters, digits and marks make words; letters know their case for CamelCase.
Kind kind_of(uint32_t point) {
  if (point < 0x80) {
    const char c = static_cast<char>(point);
    return is_ascii_digit(c)   ? Kind::kDigit
           : is_ascii_upper(c) ? Kind::kUpper
           : is_ascii_lower(c) ? Kind::kLower
                               : Kind::kOther;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return Kind::kUpper;
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return Kind::kLower;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Kind::kDigit;
    default:
      return Kind::kOther;
  }
}

// Compatibility decomposition, case folded, without accents; marks of scripts without spaces stay, as they
// are part of the spelling there.
void append_folded(uint32_t point, std::vector<uint32_t>& out) {
  if (point < 0x80) {
    out.push_back(is_ascii_upper(static_cast<char>(point)) ? point + 32 : point);
    return;
  }
  constexpr auto kOptions =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD);
  std::array<utf8proc_int32_t, 32> folded{};
  int last_class = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), folded.data(),
                                             folded.size(), kOptions, &last_class);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(folded.size())) {
    out.push_back(point);
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto one = static_cast<uint32_t>(folded[static_cast<size_t>(i)]);
    const bool accent = utf8proc_category(folded[static_cast<size_t>(i)]) == UTF8PROC_CATEGORY_MN;
    // Kana's voiced marks tell words apart, accents of spaced scripts are often left out.
    if (accent && !is_unspaced(point)) continue;
    out.push_back(one);
  }
}

class TermMaker {
 public:
  std::vector<std::string> make(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      at += point.bytes;
      if (!is_ignored(point.value)) take(point.value);
    }
    end_word();
    return std::move(terms_);
  }

 private:
  void take(uint32_t point) {
    const bool unspaced = is_unspaced(point);
    const Kind kind = kind_of(point);
    // "full_name" is one word; '_' alone is none.
    const bool joins = point == '_' && !word_.empty() && !in_run_;
    if (kind == Kind::kOther && !joins) return end_word();
    if (!word_.empty() && unspaced != in_run_) end_word();
    constexpr size_t kLongestWord = 256;
    if (!in_run_ && word_.size() >= kLongestWord) end_word();
    in_run_ = unspaced;
    if (joins) {
      word_.push_back(point);
      starts_part_ = true;
    } else {
      take_part_start(kind);
      append_folded(point, word_);
    }
    last_ = joins ? Kind::kOther : kind;
  }

  // Parts of "fullName", "HTMLParser", "sha256sum", "full_name" begin at these places of word_.
  void take_part_start(Kind kind) {
    const bool hump = kind == Kind::kUpper && (last_ == Kind::kLower || last_ == Kind::kDigit);
    if (word_.empty() || starts_part_ || hump) {
      part_starts_.push_back(word_.size());
    } else if (kind == Kind::kLower && last_ == Kind::kUpper && word_.size() - part_starts_.back() > 1) {
      part_starts_.push_back(word_.size() - 1);  // the P of HTMLParser
    }
    starts_part_ = false;
  }

  void end_word() {
    while (!word_.empty() && word_.back() == '_') word_.pop_back();
    if (in_run_) {
      add_bigrams();
    } else if (!word_.empty()) {
      add(0, word_.size());
      if (part_starts_.size() > 1) add_parts();
    }
    word_.clear();
    part_starts_.clear();
    starts_part_ = false;
    in_run_ = false;
    last_ = Kind::kOther;
  }

  void add(size_t begin, size_t end) {
    std::string term;
    for (size_t i = begin; i < end; ++i) append_utf8(word_[i], term);
    if (!term.empty()) terms_.push_back(std::move(term));
  }

  void add_parts() {
    for (size_t i = 0; i < part_starts_.size(); ++i) {
      const size_t begin = std::min(part_starts_[i], word_.size());
      size_t end = i + 1 < part_starts_.size() ? std::min(part_starts_[i + 1], word_.size()) : word_.size();
      while (end > begin && word_[end - 1] == '_') --end;
      if (end > begin && end - begin < word_.size()) add(begin, end);
    }
  }

  void add_bigrams() {
    // Decomposed Hangul and voiced Kana become one character again.
    std::vector<utf8proc_int32_t> points(word_.begin(), word_.end());
    const auto count =
        utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (count > 0) word_.assign(points.begin(), points.begin() + count);
    if (word_.empty()) return;
    if (word_.size() == 1) return add(0, 1);
    for (size_t i = 0; i + 1 < word_.size(); ++i) add(i, i + 2);
  }

  std::vector<std::string> terms_;
  std::vector<uint32_t> word_;
  std::vector<size_t> part_starts_;
  Kind last_ = Kind::kOther;
  bool starts_part_ = false;
  bool in_run_ = false;
};

}  // namespace

std::vector<std::string> search_terms(std::string_view text) {
  return TermMaker().make(text);
}

std::vector<std::string> question_terms(std::string_view text) {
  std::vector<std::string> all = search_terms(text);
  std::unordered_set<std::string_view> seen;
  std::vector<std::string> unique;
  for (const std::string& term : all) {
    if (seen.insert(term).second) unique.push_back(term);
  }
  std::vector<std::string> telling;
  for (const std::string& term : unique) {
    if (!std::binary_search(kFunctionWords.begin(), kFunctionWords.end(), term)) telling.push_back(term);
  }
  return telling.empty() ? unique : telling;
}

}  // namespace rhapsode::text
