#include "text/code_outline.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view first_word(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && (is_identifier_byte(text[end]))) ++end;
  return text.substr(0, end);
}

// "def parse(self):" to "parse()", "class Parser < Base" to "class Parser"; empty: no symbol begins here.
std::string symbol_of(std::string_view content, std::string_view language) {
  if (language == "shell") {
    if (content.starts_with("function ")) content = trim(content.substr(9));
    const std::string_view name = content.substr(0, content.find_first_of(" \t({;"));
    const std::string_view rest = trim(content.substr(name.size()));
    const bool plain = !name.empty() && name.find_first_of("=$\"'`[&|<>") == std::string_view::npos;
    return plain && (rest.starts_with("()") || (rest == "{" && name != "{")) ? std::string(name) + "()" : "";
  }
  std::string_view word = first_word(content);
  while (is_one_of(word, {"async", "local", "private", "public", "pub", "export"})) {
    content = trim(content.substr(word.size()));
    word = first_word(content);
  }
  const bool is_class = is_one_of(word, {"class", "module", "defmodule", "struct", "type"});
  const bool is_function =
      is_one_of(word, {"def", "defp", "defmacro", "function", "macro", "proc", "func", "template", "method"});
  if (!is_class && !is_function) return {};
  const std::string_view rest = trim(content.substr(word.size()));
  if (content.size() == word.size() || !is_ascii_space(content[word.size()])) return {};
  std::string_view name = rest.substr(0, rest.find_first_of(is_class ? "(:<; \t{" : "(; \t{"));
  if (name.ends_with(':')) name.remove_suffix(1);
  if (name.empty() || !(is_identifier_byte(name[0]))) return {};
  return is_class ? std::string(word == "defmodule" ? "module" : word) + " " + std::string(name)
                  : std::string(name) + "()";
}

bool closes(std::string_view content) {
  return std::string_view(")]}").find(content[0]) != std::string_view::npos ||
         is_one_of(first_word(content),
                   {"end", "fi", "done", "esac", "else", "elsif", "rescue", "ensure", "when"});
}

// Follows Python's long strings over lines.
class LongStrings {
 public:
  // True if the line begins inside of a string.
  bool next(std::string_view line) {
    const bool inside = quote_ != '\0';
    for (size_t i = 0; i < line.size();) {
      const bool triple = i + 2 < line.size() && (line[i] == '"' || line[i] == '\'') &&
                          line[i + 1] == line[i] && line[i + 2] == line[i];
      if (quote_ != '\0') {
        if (line[i] == '\\') ++i;
        const bool ends = triple && line[i] == quote_;
        if (ends) quote_ = '\0';
        i += ends ? 3 : 1;
      } else if (triple) {
        quote_ = line[i];
        i += 3;
      } else if (line[i] == '#') {
        break;
      } else if (line[i] == '"' || line[i] == '\'') {
        i = end_of_string(line, i);
      } else {
        ++i;
      }
    }
    return inside;
  }

 private:
  static size_t end_of_string(std::string_view line, size_t i) {
    const char quote = line[i++];
    while (i < line.size() && line[i] != quote) i += line[i] == '\\' ? 2 : 1;
    return i + 1;
  }

  char quote_ = '\0';
};

}  // namespace

void OutlineBuilder::enter(size_t line_begin, int level, std::string_view label) {
  stack_.enter(level, label);
  last_begin_ = with_comments(line_begin);
  add(last_begin_);
  const bool outer = stack_.path().find(" > ") == std::string::npos;
  document_.breaks.push_back({last_begin_, outer ? BreakStrength::kSection : BreakStrength::kBlock});
}

void OutlineBuilder::leave(size_t next, int level) {
  stack_.leave(level);
  const std::string_view text = document_.text;
  auto& sections = document_.sections;
  const bool entered_last = !sections.empty() && sections.back().begin == last_begin_;
  constexpr size_t kLongestLine = 2000;
  const bool near = next > last_begin_ && next - last_begin_ < kLongestLine;
  if (entered_last && near && line_at(text, last_begin_).next == next) {
    sections.pop_back();
    document_.breaks.back().strength = BreakStrength::kLine;
  } else if (next < text.size()) {
    add(next);
  }
  closed_until_ = next;
}

void OutlineBuilder::add(size_t begin) {
  auto& sections = document_.sections;
  while (!sections.empty() && sections.back().begin >= begin) sections.pop_back();
  sections.push_back({begin, stack_.path()});
}

size_t OutlineBuilder::with_comments(size_t line_begin) const {
  const std::string_view text = document_.text;
  constexpr int kMostLines = 60;
  const size_t least =
      std::max(closed_until_, document_.sections.empty() ? 0 : document_.sections.back().begin + 1);
  size_t begin = line_begin;
  for (int i = 0; i < kMostLines && begin > least; ++i) {
    const size_t feed = begin >= 2 ? text.rfind('\n', begin - 2) : std::string_view::npos;
    const size_t above = feed == std::string_view::npos ? 0 : feed + 1;
    const std::string_view content = trim(text.substr(above, begin - above));
    const bool belongs = content.starts_with("//") || content.starts_with("/*") || content.starts_with("*") ||
                         content.starts_with("#") || content.starts_with("@") || content.starts_with("--");
    if (!belongs || above < least || content.starts_with("#include") || content.starts_with("#endif")) break;
    begin = above;
  }
  return begin;
}

void outline_indent(const CodeLanguage& language, Document& document) {
  const std::string_view text = document.text;
  OutlineBuilder builder(document);
  std::vector<size_t> open;  // indentation of the symbols around
  LongStrings strings;
  size_t content_end = 0;  // behind the last line of code: comments below belong to what comes next
  const bool python = language.name == "python";
  const std::string_view comment = language.name == "lua" ? "--" : "#";
  for (size_t at = mark_bytes(text); at < text.size();) {
    const Line line = line_at(text, at);
    at = line.next;
    const std::string_view content = trim(view(text, line));
    const bool in_string = python && strings.next(view(text, line));
    if (in_string) content_end = line.next;
    if (line.blank || in_string || content.starts_with(comment)) continue;
    const bool closing = closes(content);
    size_t left = open.size();
    while (left > 0 && line.indent <= open[left - 1] && !(closing && line.indent == open[left - 1])) --left;
    if (left < open.size()) {
      builder.leave(content_end, static_cast<int>(left) + 1);
      open.resize(left);
    }
    content_end = line.next;
    const std::string symbol = closing ? std::string() : symbol_of(content, language.name);
    constexpr size_t kMostDepth = 64;
    if (symbol.empty() || open.size() >= kMostDepth) continue;
    open.push_back(line.indent);
    builder.enter(line.begin, static_cast<int>(open.size()), symbol);
  }
}

void outline_sql(Document& document) {
  const std::string_view text = document.text;
  OutlineBuilder builder(document);
  bool fresh = true, in_symbol = false;
  for (size_t at = mark_bytes(text); at < text.size();) {
    const Line line = line_at(text, at);
    at = line.next;
    const std::string_view content = trim(view(text, line));
    if (line.blank || content.starts_with("--")) continue;
    const bool creates = line.indent == 0 && equals_ignoring_case(first_word(content), "create");
    if (creates) {
      if (in_symbol) builder.leave(line.begin, 1);
      builder.enter(line.begin, 1, content.substr(0, content.find_first_of("(;")));
      in_symbol = true;
    } else if (fresh && line.indent == 0) {
      if (in_symbol) builder.leave(line.begin, 1);
      in_symbol = false;
      document.breaks.push_back({line.begin, BreakStrength::kBlock});
    }
    fresh = content.ends_with(';');
  }
}

void outline_data(Document& document) {
  const std::string_view text = document.text;
  OutlineBuilder builder(document);
  bool after_blank = false;
  for (size_t at = mark_bytes(text); at < text.size();) {
    const Line line = line_at(text, at);
    at = line.next;
    const std::string_view content = trim(view(text, line));
    constexpr size_t kLongestName = 80;
    // "[section]" of TOML and its like.
    const bool table = line.indent == 0 && content.size() > 2 && content.size() < kLongestName &&
                       content[0] == '[' && content.back() == ']' &&
                       content.find(',') == std::string_view::npos;
    if (table) {
      builder.enter(line.begin, 1, content);
    } else if (after_blank && !line.blank && line.indent == 0) {
      document.breaks.push_back({line.begin, BreakStrength::kBlock});
    }
    after_blank = line.blank;
  }
}

}  // namespace rhapsode::text
