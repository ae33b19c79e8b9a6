// Languages with braces: the text before a '{' says whether a class, a function or only a block opens.
#include <algorithm>
#include <string>
#include <vector>

#include "text/code_outline.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMostStatement = 600;  // bytes of a statement that are looked at
constexpr size_t kMostLabel = 70;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What opens with a '{'.
struct Opening {
  enum class Kind { kBlock, kContainer, kFunction } kind = Kind::kBlock;
  std::string label;
};

// A statement on one line, its strings emptied, up to its '{'.
class Statement {
 public:
  Statement(std::string_view text, std::string_view language)
      : text_(without_labels(trim(text))), language_(language) {}

  Opening opening() const {
    const size_t paren = text_.find('(');
    const size_t assign = find_assignment();
    const std::string_view head = text_.substr(0, std::min(paren, assign));
    Opening opening = container(head, paren);
    if (opening.kind != Opening::Kind::kBlock) return opening;
    if (text_.ends_with("=>")) return named(name_before(assign));
    if (const size_t at = keyword_end(head, {"fn", "func", "function", "fun", "def", "sub"}); at > 0) {
      return keyword_function(at);
    }
    if (assign < paren || paren == std::string_view::npos || paren == 0) return {};
    return called(paren);
  }

 private:
  static Opening named(std::string_view name) {
    name = trim(name);
    if (name.empty()) return {};
    return {Opening::Kind::kFunction, std::string(name) + "()"};
  }

  // "public:" and the like before a member, "template <...>" before a declaration.
  static std::string_view without_labels(std::string_view text) {
    while (true) {
      const size_t colon = text.find(':');
      const std::string_view label = trim(text.substr(0, colon));
      const bool access = is_one_of(label, {"public", "private", "protected", "signals", "public slots"});
      if (colon == std::string_view::npos || !access) break;
      text = trim(text.substr(colon + 1));
    }
    if (!text.starts_with("template")) return text;
    int depth = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '<') ++depth;
      if (text[i] == '>' && --depth == 0) return without_template(text.substr(i + 1));
    }
    return text;
  }

  static std::string_view without_template(std::string_view text) {
    text = trim(text);
    return text.starts_with("template") ? text.substr(0, 0) : text;  // two lists are rare
  }

  // A single '=' outside of parentheses; npos: none.
  size_t find_assignment() const {
    int depth = 0;
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '(' || c == '<') ++depth;
      if (c == ')' || (c == '>' && i > 0 && text_[i - 1] != '=' && text_[i - 1] != '-')) --depth;
      const char before = i > 0 ? text_[i - 1] : ' ';
      const char after = i + 1 < text_.size() ? text_[i + 1] : ' ';
      const bool compound =
          after == '=' || after == '>' || !(is_ascii_space(before) || is_identifier_byte(before));
      if (c == '=' && depth <= 0 && !compound && !text_.substr(0, i).ends_with("operator")) return i;
    }
    return std::string_view::npos;
  }

  // Where the text behind the first of the words begins; 0: none of them stands there. `begin`: the word's.
  static size_t keyword_end(std::string_view text, std::initializer_list<std::string_view> words,
                            size_t* begin = nullptr) {
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && is_identifier_byte(text[end])) ++end;
      if (end > i && is_one_of(text.substr(i, end - i), words)) {
        if (begin) *begin = i;
        return end;
      }
      i = std::max(end, i + 1);
    }
    return 0;
  }

  Opening container(std::string_view head, size_t paren) const {
    size_t leaf_begin = std::string_view::npos, begin = std::string_view::npos;
    const size_t leaf = keyword_end(head, {"enum"}, &leaf_begin);
    const size_t end = keyword_end(head,
                                   {"class", "struct", "interface", "union", "trait", "impl", "mod", "module",
                                    "object", "protocol", "extension", "record", "actor", "contract"},
                                   &begin);
    if ((end == 0 && leaf == 0) || keyword_end(head, {"namespace"}) > 0) return {};
    // "struct stat read_it(int x) {" is a function of C.
    const bool c = language_ == "c" || language_ == "cpp";
    if (c && paren != std::string_view::npos && text_.ends_with(')')) return {};
    // In Go the word follows the name.
    if (language_ == "go") return {Opening::Kind::kContainer, container_label(head)};
    if (trim(head.substr(std::max(end, leaf))).empty()) return {};
    head = head.substr(std::min(begin, leaf_begin));
    return {leaf > 0 ? Opening::Kind::kFunction : Opening::Kind::kContainer, container_label(head)};
  }

  // "class Parser extends Base" to "class Parser".
  std::string container_label(std::string_view head) const {
    for (const std::string_view stop : {" extends ", " implements ", " where ", " final :", " : ", ": "}) {
      const size_t at = head.find(stop);
      if (at != std::string_view::npos && at > 0) head = trim(head.substr(0, at));
    }
    std::string label(head);
    const size_t attribute = label.find("[[");
    const size_t end = label.find("]]");
    if (attribute != std::string::npos && end != std::string::npos && end > attribute) {
      label.erase(attribute, end + 2 - attribute);
    }
    // "class Walker<T extends Options>" lost its end with "extends".
    if (std::count(label.begin(), label.end(), '<') > std::count(label.begin(), label.end(), '>')) {
      label.resize(label.find('<'));
    }
    return shortened(one_line(label), kMostLabel);
  }

  Opening keyword_function(size_t at) const {
    std::string_view rest = trim(text_.substr(at));
    if (rest.starts_with('*')) rest = trim(rest.substr(1));
    std::string receiver;
    if (language_ == "go" && rest.starts_with('(')) {
      const size_t close = rest.find(')');
      if (close == std::string_view::npos) return {};
      receiver = std::string(rest.substr(0, close + 1)) + " ";
      rest = trim(rest.substr(close + 1));
    }
    std::string_view name = rest.substr(0, rest.find_first_of("(<[{ "));
    if (name.empty()) name = name_before(find_assignment());  // "const f = function() {"
    if (name.empty()) return {};
    return named(shortened(receiver + std::string(name), kMostLabel));
  }

  // "const parse = async (x) =>" to "parse", "parse: (x) =>" too.
  std::string_view name_before(size_t assign) const {
    std::string_view head = text_.substr(0, assign);
    const size_t colon = head.find(':');
    if (colon != std::string_view::npos) head = head.substr(0, colon);
    if (assign == std::string_view::npos && colon == std::string_view::npos) return {};
    head = trim(head);
    size_t begin = head.size();
    while (begin > 0 &&
           (is_identifier_byte(head[begin - 1]) || head[begin - 1] == '.' || head[begin - 1] == '$')) {
      --begin;
    }
    return head.substr(begin);
  }

  // "Status Parser::parse(text_view text) const" to "Parser::parse()".
  Opening called(size_t paren) const {
    size_t end = paren;
    while (end > 0 && is_ascii_space(text_[end - 1])) --end;
    size_t begin = end;
    const size_t op = text_.substr(0, end).rfind("operator");
    if (op != std::string_view::npos && end - op < 14) begin = op;
    if (begin == end && text_[end - 1] == '>') begin = end = before_angles(end);
    while (begin > 0 && (is_identifier_byte(text_[begin - 1]) || text_[begin - 1] == ':' ||
                         text_[begin - 1] == '~' || text_[begin - 1] == '$')) {
      --begin;
    }
    std::string_view name = text_.substr(begin, end - begin);
    while (name.starts_with(':')) name.remove_prefix(1);
    const bool control =
        is_one_of(name, {"if",       "for",     "while",    "switch", "catch",  "return", "synchronized",
                         "using",    "lock",    "foreach",  "with",   "match",  "when",   "guard",
                         "repeat",   "sizeof",  "else",     "do",     "unless", "elseif", "constexpr",
                         "requires", "alignas", "decltype", "unsafe", "fixed",  "new",    "until"});
    if (name.empty() || control) return {};
    // A macro such as TEST(Parser, Reads) is named by what it is given.
    const bool capitals = std::none_of(name.begin(), name.end(), is_ascii_lower);
    if (capitals && begin == 0 && name.size() > 2)
      return {Opening::Kind::kFunction, shortened(text_, kMostLabel)};
    return named(shortened(name, kMostLabel));
  }

  size_t before_angles(size_t end) const {
    int depth = 0;
    while (end > 0) {
      const char c = text_[--end];
      if (c == '>') ++depth;
      if (c == '<' && --depth == 0) return end;
    }
    return 0;
  }

  std::string_view text_;
  std::string_view language_;
};

// Walks over the bytes, past comments and strings, and keeps the statement that is being written.
class BraceScanner {
 public:
  BraceScanner(const CodeLanguage& language, Document& document)
      : language_(language), text_(document.text), builder_(document) {}

  void scan() {
    at_ = mark_bytes(text_);
    next_feed_ = text_.find('\n');
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (skip_comment() || skip_string()) continue;
      if (c == '\n') {
        line_has_code_ = false;
        line_ended_ = line_ended_ || (language_.newline_ends && parens_ == 0 && ends_statement());
        append(' ');
        ++at_;
        continue;
      }
      if (!is_ascii_space(c))
        take_code(c);
      else
        append(' ');
      ++at_;
    }
  }

 private:
  struct Frame {
    Opening::Kind kind;
    int parens;  // open around it
  };

  void take_code(char c) {
    const bool goes_on =
        c == '{' || c == '.' || c == '-' || c == ':' || c == '?' || c == '=' || c == '&' || c == '|';
    if (line_ended_ && !goes_on) reset();
    line_ended_ = false;
    line_has_code_ = true;
    if (c == '{') return open();
    if (c == '}') return close();
    if (c == '(' || c == '[') ++parens_;
    if ((c == ')' || c == ']') && parens_ > 0) --parens_;
    if (c == ';' && parens_ == 0) return reset();
    append(c);
  }

  void append(char c) {
    if (statement_.empty()) {
      if (c == ' ') return;
      statement_begin_ = at_;
    }
    if (c == ' ' && statement_.back() == ' ') return;
    if (statement_.size() < kMostStatement) statement_ += c;
  }

  void reset() { statement_.clear(); }

  // A line that does not end in an operator or comma ends its statement.
  bool ends_statement() const {
    if (statement_.empty()) return false;
    const std::string_view text = trim(statement_);
    return text.empty() || std::string_view(",=+-|&?:(<").find(text.back()) == std::string_view::npos;
  }

  void open() {
    Opening opening;
    const bool in_function = !frames_.empty() && in_function_ > 0;
    if (!in_function && parens_ == 0 && !statement_.empty())
      opening = Statement(statement_, language_.name).opening();
    constexpr int kMostDepth = 64;
    if (opening.kind != Opening::Kind::kBlock && symbols_ < kMostDepth) {
      ++symbols_;
      builder_.enter(line_begin_of(statement_begin_), symbols_, opening.label);
    } else {
      opening.kind = Opening::Kind::kBlock;
    }
    if (opening.kind == Opening::Kind::kFunction) ++in_function_;
    frames_.push_back({opening.kind, parens_});
    parens_ = 0;
    reset();
  }

  void close() {
    reset();
    if (frames_.empty()) return;
    const Frame frame = frames_.back();
    frames_.pop_back();
    parens_ = frame.parens;
    if (frame.kind == Opening::Kind::kFunction) --in_function_;
    if (frame.kind == Opening::Kind::kBlock) return;
    builder_.leave(line_end_behind(at_), symbols_);
    --symbols_;
  }

  // Both are asked for ascending offsets: a file of one line is walked over once, not once a symbol.
  size_t line_begin_of(size_t offset) {
    while (next_feed_ < offset) {
      line_begin_ = next_feed_ + 1;
      next_feed_ = text_.find('\n', line_begin_);
    }
    return line_begin_;
  }

  size_t line_end_behind(size_t offset) {
    if (line_end_ <= offset) line_end_ = line_at(text_, offset).next;
    return line_end_;
  }

  bool starts(std::string_view sign) const { return text_.substr(at_, sign.size()) == sign; }

  void skip_to(std::string_view sign) {
    const size_t end = text_.find(sign, at_);
    at_ = end == std::string_view::npos ? text_.size() : end + sign.size();
  }

  void skip_line() {
    const size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
  }

  bool skip_comment() {
    const char c = text_[at_];
    if (c == '/' && starts("//")) return skip_line(), true;
    if (c == '/' && starts("/*")) {
      at_ += 2;
      return skip_to("*/"), true;
    }
    if (c == '#' && language_.hash_comment && !starts("#[")) return skip_line(), true;
    if (c == '#' && language_.preprocessor && !line_has_code_) {
      // A directive, with its continued lines.
      do {
        skip_line();
        const bool continued =
            at_ > 0 && at_ < text_.size() && (text_[at_ - 1] == '\\' || starts_continued());
        if (!continued) break;
        ++at_;
      } while (at_ < text_.size());
      return true;
    }
    return false;
  }

  bool starts_continued() const { return at_ > 1 && text_[at_ - 1] == '\r' && text_[at_ - 2] == '\\'; }

  bool skip_string() {
    const char c = text_[at_];
    if (c == '"' && language_.triple_string && starts("\"\"\"")) {
      at_ += 3;
      return skip_to("\"\"\""), note_string();
    }
    if (c == '"' && language_.name == "cpp" && at_ > 0 && text_[at_ - 1] == 'R')
      return skip_raw(), note_string();
    if (c == '"' && language_.name == "rust" && at_ > 0 && (text_[at_ - 1] == '#' || text_[at_ - 1] == 'r')) {
      return skip_rust_raw(), note_string();
    }
    if (c == '`' && language_.backtick_string)
      return skip_quoted('`', language_.name != "go", true), note_string();
    if (c == '"') return skip_quoted('"', true, false), note_string();
    if (c == '\'' && language_.quote_string) return skip_quoted('\'', true, false), note_string();
    if (c == '\'') return skip_character(), true;
    return false;
  }

  bool note_string() {
    line_has_code_ = true;
    append('"');
    append('"');
    return true;
  }

  void skip_quoted(char quote, bool escapes, bool over_lines) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\\' && escapes) {
        ++at_;
      } else if (c == quote) {
        ++at_;
        break;
      } else if (c == '\n' && !over_lines) {
        break;  // never closed: an apostrophe in a comment of another language, say
      }
    }
    at_ = std::min(at_, text_.size());
  }

  // R"sign( ... )sign".
  void skip_raw() {
    constexpr size_t kLongestSign = 16;
    const size_t sign = text_.substr(at_, kLongestSign + 2).find('(');
    if (sign == std::string_view::npos) {
      ++at_;
      return;
    }
    const std::string end = ")" + std::string(text_.substr(at_ + 1, sign - 1)) + "\"";
    at_ += sign;
    skip_to(end);
  }

  // r#" ... "#, r" ... ".
  void skip_rust_raw() {
    size_t signs = 0;
    while (signs < at_ && text_[at_ - 1 - signs] == '#') ++signs;
    ++at_;
    skip_to("\"" + std::string(signs, '#'));
  }

  // 'x', '\n', '\u{1F600}'; a lifetime of Rust or a digit separator of C++ is none.
  void skip_character() {
    constexpr size_t kLongest = 12;
    size_t end = at_ + 1;
    if (end < text_.size() && text_[end] == '\\') ++end;
    ++end;
    while (end < text_.size() && end - at_ < kLongest && text_[end] != '\'' && text_[end] != '\n') ++end;
    const bool after_digit = at_ > 0 && is_identifier_byte(text_[at_ - 1]);
    const bool is_short = end - at_ <= 6 || text_[at_ + 1] == '\\';
    const bool closed = end < text_.size() && text_[end] == '\'' && !after_digit && is_short;
    if (!closed) append('\'');
    at_ = closed ? end + 1 : at_ + 1;
  }

  const CodeLanguage& language_;
  std::string_view text_;
  OutlineBuilder builder_;
  size_t at_ = 0;
  std::string statement_;
  size_t statement_begin_ = 0;
  size_t line_begin_ = 0;
  size_t next_feed_ = 0;
  size_t line_end_ = 0;
  bool line_ended_ = false;
  bool line_has_code_ = false;
  int parens_ = 0;
  int symbols_ = 0;
  int in_function_ = 0;
  std::vector<Frame> frames_;
};

}  // namespace

void outline_braces(const CodeLanguage& language, Document& document) {
  BraceScanner(language, document).scan();
}

}  // namespace rhapsode::text
