#include "text/mentions.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMostNameWords = 5;
constexpr size_t kMostPhraseWords = 8;
constexpr size_t kMostKeyBytes = 200;
constexpr size_t kFewestWordBytes = 4;  // of a single word or title: "The", "May" name nothing
constexpr size_t kFewestSymbolBytes = 5;

// Capitalised at the start of a sentence without being a name.
constexpr std::array<std::string_view, 68> kStarters = {
    "a",     "after",   "all",  "also",  "although", "an",   "and",   "another", "any",   "are",
    "as",    "at",      "but",  "by",    "during",   "each", "first", "for",     "from",  "he",
    "her",   "here",    "his",  "how",   "however",  "i",    "if",    "in",      "is",    "it",
    "its",   "many",    "most", "my",    "no",       "not",  "of",    "on",      "one",   "or",
    "our",   "several", "she",  "since", "so",       "some", "such",  "that",    "the",   "their",
    "there", "these",   "they", "this",  "those",    "to",   "two",   "under",   "until", "was",
    "we",    "what",    "when", "where", "while",    "who",  "with",  "you"};
constexpr std::array<std::string_view, 10> kConnectors = {"and", "da", "de",  "del", "di",
                                                          "la",  "of", "the", "van", "von"};

template <size_t n>
bool is_one_of(const std::array<std::string_view, n>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_word_point(uint32_t point) {
  if (point < 0x80)
    return is_ascii_letter(static_cast<char>(point)) || is_ascii_digit(static_cast<char>(point));
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
      return true;
    default:
      return false;
  }
}

// What may stand inside a word: O'Neill, Jean-Luc, U.S., AT&T.
bool is_joint(uint32_t point) {
  return point == '\'' || point == 0x2019 || point == '-' || point == '.' || point == '&';
}

std::string lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    append_utf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))), out);
    at += point.bytes;
  }
  return out;
}

struct Word {
  std::string key;
  bool capitalised = false;
  bool first = false;  // more than a blank lies between it and the word before: a run begins
};

// Words and where runs break: at anything but one blank between two words.
class Words {
 public:
  explicit Words(std::string_view text) {
    bool joined = false;
    bool initial = false;  // the word before is one capital
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      if (!is_word_point(point.value)) {
        // The full stop of an initial stays inside a run: George W. Bush.
        joined = joined && (point.value == ' ' || point.value == '\n' || (point.value == '.' && initial));
        initial = false;
        at += point.bytes;
        continue;
      }
      const size_t end = end_of_word(text, at);
      const bool breaks = add(text.substr(at, end - at), !joined);
      initial = words_.back().capitalised && words_.back().key.size() == 1;
      joined = !breaks;
      at = end;
    }
  }
  const std::vector<Word>& all() const { return words_; }

 private:
  static size_t end_of_word(std::string_view text, size_t at) {
    size_t end = at;
    while (end < text.size()) {
      const CodePoint point = code_point_at(text, end);
      if (is_joint(point.value)) {
        const size_t next = end + point.bytes;
        if (next >= text.size() || !is_word_point(code_point_at(text, next).value)) break;
      } else if (!is_word_point(point.value)) {
        break;
      }
      end += point.bytes;
    }
    return end;
  }

  // Whether a run ends with the word: "Ada's Notes" is two names.
  bool add(std::string_view word, bool first) {
    bool breaks = false;
    Word made;
    const auto upper = code_point_at(word, 0).value;
    made.capitalised = utf8proc_tolower(static_cast<utf8proc_int32_t>(upper)) != static_cast<int32_t>(upper);
    made.key = lower(word);
    for (const std::string_view possessive : {"'s", "\xE2\x80\x99s"}) {
      if (made.key.size() > possessive.size() && made.key.ends_with(possessive)) {
        made.key.resize(made.key.size() - possessive.size());
        breaks = true;
      }
    }
    made.first = first;
    words_.push_back(std::move(made));
    return breaks;
  }

  std::vector<Word> words_;
};

class Finder {
 public:
  void title(std::string_view text) {
    text = trim(text);
    while (text.size() > 3 && (equals_ignoring_case(text.substr(0, 3), "re:") ||
                               equals_ignoring_case(text.substr(0, 3), "fw:") ||
                               (text.size() > 4 && equals_ignoring_case(text.substr(0, 4), "fwd:")))) {
      text = trim(text.substr(text.find(':') + 1));
    }
    const size_t bracket = text.rfind(" (");
    if (bracket != std::string_view::npos && text.ends_with(')')) text = text.substr(0, bracket);
    add_title(text);
    add_title(text.substr(0, text.find(',')));
  }

  void names(std::string_view text) {
    const Words words(text);
    const std::vector<Word>& all = words.all();
    for (size_t i = 0; i < all.size();) {
      if (!all[i].capitalised || is_one_of(kStarters, all[i].key)) {
        ++i;
        continue;
      }
      const size_t end = end_of_run(all, i);
      add_run(all, i, end);
      i = end;
    }
  }

  void symbols_and_addresses(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      if (!is_identifier_byte(text[at])) {
        ++at;
        continue;
      }
      const size_t end = end_of_chain(text, at);
      const std::string_view chain = text.substr(at, end - at);
      if (chain == "http" || chain == "https" || chain.starts_with("www.")) {
        const size_t address_end = end_of_address(text, at);
        address(text.substr(at, address_end - at));
        at = address_end;
      } else {
        if (is_symbol(chain)) add(std::string(chain), MentionKind::kSymbol);
        at = end;
      }
    }
  }

  std::vector<Mention> take() {
    std::vector<Mention> mentions;
    for (auto& [key, kind] : found_) mentions.push_back({key, kind});
    return mentions;
  }

 private:
  void add(std::string key, MentionKind kind) {
    if (key.empty() || key.size() > kMostKeyBytes) return;
    const auto [place, fresh] = found_.emplace(std::move(key), kind);
    if (!fresh) place->second = std::min(place->second, kind);
  }

  void add_title(std::string_view text) {
    std::string key;
    const Words words(text);
    for (const Word& word : words.all()) key += (key.empty() ? "" : " ") + word.key;
    if (key.size() >= kFewestWordBytes) add(std::move(key), MentionKind::kTitle);
  }

  static size_t end_of_run(const std::vector<Word>& words, size_t begin) {
    size_t end = begin + 1;
    while (end < words.size() && !words[end].first) {
      if (words[end].capitalised) {
        ++end;
        continue;
      }
      size_t next = end;  // up to two small words between capitalised ones: "of the"
      while (next < words.size() && next < end + 2 && !words[next].first &&
             is_one_of(kConnectors, words[next].key)) {
        ++next;
      }
      if (next == end || next >= words.size() || words[next].first || !words[next].capitalised) break;
      end = next + 1;
    }
    return end;
  }

  void add_run(const std::vector<Word>& words, size_t begin, size_t end) {
    for (size_t from = begin; from < end; ++from) {
      if (!words[from].capitalised) continue;
      std::string key = words[from].key;
      if (key.size() >= kFewestWordBytes) add(key, MentionKind::kWord);
      for (size_t to = from + 1; to < std::min(end, from + kMostNameWords); ++to) {
        key += " " + words[to].key;
        if (words[to].capitalised) add(key, MentionKind::kName);
      }
    }
  }

  // Identifiers joined by ., :: or ->.
  static size_t end_of_chain(std::string_view text, size_t at) {
    size_t end = at;
    while (end < text.size()) {
      if (is_identifier_byte(text[end])) {
        ++end;
        continue;
      }
      const std::string_view rest = text.substr(end);
      const size_t joint = rest.starts_with("::") || rest.starts_with("->") ? 2 : rest[0] == '.' ? 1 : 0;
      if (joint == 0 || joint >= rest.size() || !is_identifier_byte(rest[joint])) break;
      end += joint;
    }
    return end;
  }

  static bool is_symbol(std::string_view chain) {
    if (chain.size() < kFewestSymbolBytes || is_ascii_digit(chain[0])) return false;
    if (chain.find("::") != std::string_view::npos || chain.find("->") != std::string_view::npos) return true;
    const size_t line = chain.find('_', 1);
    if (line != std::string_view::npos && line + 1 < chain.size()) return true;
    int humps = 0;
    for (size_t i = 1; i < chain.size(); ++i) {
      if (is_ascii_upper(chain[i]) && is_ascii_lower(chain[i - 1])) ++humps;
    }
    return humps > 0;
  }

  static size_t end_of_address(std::string_view text, size_t at) {
    size_t end = at;
    while (end < text.size() && static_cast<unsigned char>(text[end]) > ' ' &&
           std::string_view("<>\"'`|{}[]\\").find(text[end]) == std::string_view::npos) {
      ++end;
    }
    while (end > at && std::string_view(".,;:!?)").find(text[end - 1]) != std::string_view::npos) --end;
    return end;
  }

  void address(std::string_view text) {
    const size_t scheme = text.find("://");
    if (scheme == std::string_view::npos && !text.starts_with("www.")) return;
    if (scheme != std::string_view::npos) text = text.substr(scheme + 3);
    if (text.starts_with("www.")) text = text.substr(4);
    text = text.substr(0, text.find('#'));
    if (text.ends_with('/')) text.remove_suffix(1);
    if (text.find('.') != std::string_view::npos) add(ascii_lower(text), MentionKind::kAddress);
  }

  std::map<std::string, MentionKind> found_;
};

}  // namespace

std::vector<Mention> find_mentions(std::string_view text, std::string_view title) {
  Finder finder;
  finder.title(title);
  finder.names(text);
  finder.symbols_and_addresses(text);
  return finder.take();
}

std::vector<std::string> phrase_keys(std::string_view question) {
  const Words words(question);
  const std::vector<Word>& all = words.all();
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (size_t from = 0; from < all.size(); ++from) {
    std::string key;
    for (size_t to = from; to < std::min(all.size(), from + kMostPhraseWords); ++to) {
      key += (to == from ? "" : " ") + all[to].key;
      const bool common = to == from && (key.size() < kFewestWordBytes || is_one_of(kStarters, key));
      if (!common && key.size() <= kMostKeyBytes && seen.insert(key).second) keys.push_back(key);
    }
  }
  return keys;
}

}  // namespace rhapsode::text
