#include "text/gbnf.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "base/result.h"
#include "text/utf8_gate.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int kMaxDepth = 100;
constexpr uint64_t kMaxRepetition = 2000;  // libllama's own limit
constexpr size_t kMaxSymbols = 20000;

class Checker {
 public:
  Checker(std::string_view grammar, const std::function<bool(std::string_view)>& is_token)
      : text_(grammar), is_token_(is_token) {}

  Status run() {
    skip_space(true);
    while (pos_ < text_.size()) RH_TRY_STATUS(rule());
    if (!rules_.contains("root")) {
      return make_error(ErrorKind::kInvalidArgument, "grammar: there is no rule named 'root'");
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        pos_ = rule.first_use;
        return error(fmt::format("rule '{}' is used but never defined", name));
      }
    }
    return {};
  }

 private:
  struct Rule {
    bool defined = false;
    size_t first_use = 0;
  };
  // What a repetition would repeat.
  struct Item {
    bool exists = false;
    uint64_t weight = 1;  // rules it takes; libllama limits weight times repetitions
  };

  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

  Status error(const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(pos_, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return make_error(ErrorKind::kInvalidArgument, "grammar, line {}, column {}: {}", line,
                      before.size() - line_start + 1, what);
  }

  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void skip_space(bool newlines) {
    while (pos_ < text_.size()) {
      const char c = peek();
      if (c == '#') {
        while (pos_ < text_.size() && peek() != '\n' && peek() != '\r') ++pos_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  std::string word() {
    const size_t begin = pos_;
    while (is_word(peek())) ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }

  Status rule() {
    const size_t begin = pos_;
    const std::string name = word();
    if (name.empty()) return error("expected the name of a rule (letters, digits and '-')");
    skip_space(false);
    if (text_.substr(pos_, 3) != "::=") return error("expected '::='");
    pos_ += 3;
    symbol(name, begin).defined = true;
    skip_space(true);
    RH_TRY_STATUS(alternates(false));
    if (pos_ < text_.size() && peek() != '\n' && peek() != '\r') return error("expected the end of the rule");
    skip_space(true);
    return {};
  }

  Rule& symbol(const std::string& name, size_t begin) {
    const auto [it, is_new] = rules_.try_emplace(name, Rule{false, begin});
    if (is_new) ++symbols_;
    return it->second;
  }

  Status alternates(bool nested) {
    RH_TRY_STATUS(sequence(nested));
    while (peek() == '|') {
      ++pos_;
      skip_space(true);
      RH_TRY_STATUS(sequence(nested));
    }
    return {};
  }

  Status sequence(bool nested) {
    Item item;
    while (pos_ < text_.size()) {
      const char c = peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') {
        RH_TRY_STATUS(repetition(nested, item));
      } else if (c == '"' || c == '[' || c == '<' || c == '!' || c == '(' || c == '.' || is_word(c)) {
        RH_TRY_STATUS(symbol_item(item));
      } else {
        break;
      }
      if (symbols_ > kMaxSymbols)
        return error(fmt::format("over {} rules: simplify the grammar", kMaxSymbols));
      skip_space(nested);
    }
    return {};
  }

  Status symbol_item(Item& item) {
    item = {true, 1};
    switch (peek()) {
      case '"':
        return literal(item);
      case '[':
        return char_class(item);
      case '!':
      case '<':
        return token();
      case '(':
        return group(item);
      case '.':
        ++pos_;
        return {};
      default: {
        const size_t begin = pos_;
        symbol(word(), begin);
        return {};
      }
    }
  }

  Status literal(Item& item) {
    ++pos_;
    item.exists = peek() != '"';
    while (peek() != '"') RH_TRY_STATUS(character());
    ++pos_;
    return {};
  }

  Status char_class(Item& item) {
    ++pos_;
    if (peek() == '^') ++pos_;
    item.exists = peek() != ']';
    while (peek() != ']') {
      RH_TRY_STATUS(character());
      if (peek() == '-' && peek(1) != ']') {
        ++pos_;
        RH_TRY_STATUS(character());
      }
    }
    ++pos_;
    return {};
  }

  Status character() {
    if (pos_ >= text_.size()) return error("the grammar ends inside a string or a [class]");
    if (peek() != '\\') {
      ++pos_;
      while (pos_ < text_.size() && (static_cast<unsigned char>(peek()) & 0xC0) == 0x80) ++pos_;
      return {};
    }
    const char kind = peek(1);
    const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits == 0 &&
        (kind == '\0' || std::string_view("trn\\\"[]-").find(kind) == std::string_view::npos)) {
      return error("unknown escape: only \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\- are known");
    }
    pos_ += 2;
    for (int i = 0; i < digits; ++i, ++pos_) {
      if (!std::isxdigit(static_cast<unsigned char>(peek())))
        return error(fmt::format("expected {} hex digits", digits));
    }
    return {};
  }

  // <[42]> or <|name|>.
  Status token() {
    if (peek() == '!') ++pos_;
    if (peek() != '<') return error("expected '<'");
    ++pos_;
    if (peek() == '[') {
      ++pos_;
      RH_TRY(const uint64_t id, number());
      if (id > std::numeric_limits<int32_t>::max()) return error("the token id is too large");
      if (peek() != ']' || peek(1) != '>') return error("expected ']>'");
      pos_ += 2;
      return {};
    }
    const size_t begin = pos_ - 1;
    while (pos_ < text_.size() && peek() != '>') ++pos_;
    if (pos_ >= text_.size()) return error("expected '>'");
    ++pos_;
    const std::string_view name = text_.substr(begin, pos_ - begin);
    return is_token_(name) ? Status() : error(fmt::format("'{}' is not one token of this model", name));
  }

  Status group(Item& item) {
    if (++depth_ > kMaxDepth) return error(fmt::format("groups nest deeper than {}", kMaxDepth));
    ++pos_;
    skip_space(true);
    const size_t symbols_before = symbols_;
    ++symbols_;
    RH_TRY_STATUS(alternates(true));
    if (peek() != ')') return error("expected ')'");
    ++pos_;
    --depth_;
    item.weight = std::max<uint64_t>(1, symbols_ - symbols_before);
    return {};
  }

  Result<uint64_t> number() {
    if (!is_digit(peek())) return error("expected a number").error();
    uint64_t value = 0;
    for (; is_digit(peek()); ++pos_) {
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), uint64_t{1} << 40);
    }
    return value;
  }

  Status repetition(bool nested, Item& item) {
    const char kind = peek();
    const size_t begin = pos_++;
    uint64_t least = kind == '+' ? 1 : 0;
    uint64_t most = kind == '?' ? 1 : kUnlimited;
    if (kind == '{') RH_TRY_STATUS(bounds(nested, least, most));
    const size_t end = pos_;
    pos_ = begin;
    if (!item.exists) return error("there is nothing to repeat before this");
    const uint64_t times = most != kUnlimited && most > 0 ? most : std::max<uint64_t>(least, 1);
    if (least > kMaxRepetition || item.weight * times > kMaxRepetition) {
      return error(fmt::format("over {} repetitions: repeat less, or use '*'", kMaxRepetition));
    }
    pos_ = end;
    symbols_ += most == kUnlimited ? 1 : static_cast<size_t>(most - least);
    item.weight *= times;
    item.exists = least > 0 || most > 0;
    return {};
  }

  Status bounds(bool nested, uint64_t& least, uint64_t& most) {
    skip_space(nested);
    RH_TRY(least, number());
    most = least;
    skip_space(nested);
    if (peek() == ',') {
      ++pos_;
      skip_space(nested);
      most = kUnlimited;
      if (is_digit(peek())) {
        RH_TRY(most, number());
        if (most < least) return error("the upper bound is below the lower one");
        if (most > kMaxRepetition) most = kUnlimited;
      }
      skip_space(nested);
    }
    if (peek() != '}') return error("expected '}'");
    ++pos_;
    return {};
  }

  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

  std::string_view text_;
  const std::function<bool(std::string_view)>& is_token_;
  size_t pos_ = 0;
  int depth_ = 0;
  size_t symbols_ = 0;  // named rules and those that libllama makes for groups and repetitions
  std::map<std::string, Rule> rules_;
};

}  // namespace

Status check_gbnf(std::string_view grammar, const std::function<bool(std::string_view)>& is_token) {
  if (grammar.size() > kMaxBytes) {
    return make_error(ErrorKind::kTooLarge, "the grammar has {} bytes; at most {} are supported",
                      grammar.size(), kMaxBytes);
  }
  if (grammar.find('\0') != std::string_view::npos || !is_valid_utf8(grammar)) {
    return make_error(ErrorKind::kInvalidArgument, "the grammar is not text in UTF-8");
  }
  return Checker(grammar, is_token).run();
}

}  // namespace rhapsode::text
