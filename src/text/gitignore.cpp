#include "text/gitignore.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace rhapsode::text {
namespace {

bool is_wildcard(char c) {
  return c == '*' || c == '?' || c == '[' || c == '\\';
}

// Unescaped spaces at the end do not count; a backslash keeps the one behind it.
std::string_view without_trailing_spaces(std::string_view line) {
  size_t end = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\') {
      if (++i == line.size()) return line;
      end = i + 1;
    } else if (line[i] != ' ') {
      end = i + 1;
    }
  }
  return line.substr(0, end);
}

struct NamedClass {
  std::string_view name;
  int (*holds)(int);
};
constexpr std::array<NamedClass, 12> kNamedClasses = {{{"alnum", std::isalnum},
                                                       {"alpha", std::isalpha},
                                                       {"blank", std::isblank},
                                                       {"cntrl", std::iscntrl},
                                                       {"digit", std::isdigit},
                                                       {"graph", std::isgraph},
                                                       {"lower", std::islower},
                                                       {"print", std::isprint},
                                                       {"punct", std::ispunct},
                                                       {"space", std::isspace},
                                                       {"upper", std::isupper},
                                                       {"xdigit", std::isxdigit}}};

// Adds the bytes of "[:name:]"; false: no such class. Classes are about ASCII only.
bool add_named(std::string_view name, std::bitset<256>& bytes) {
  for (const NamedClass& known : kNamedClasses) {
    if (known.name != name) continue;
    for (int c = 0; c < 128; ++c) {
      if (known.holds(c) != 0) bytes.set(static_cast<size_t>(c));
    }
    return true;
  }
  return false;
}

}  // namespace

GlobPattern::GlobPattern(std::string_view pattern, bool path) {
  for (size_t at = 0; at < pattern.size() && possible_;) {
    const char c = pattern[at];
    if (c == '*') {
      add_stars(pattern, at, path);
    } else if (c == '?') {
      Token token;
      token.bytes.set();
      token.bytes.set('/', !path);
      tokens_.push_back(token);
      ++at;
    } else if (c == '[') {
      possible_ = add_class(pattern, at, path);
    } else {
      if (c == '\\' && ++at == pattern.size()) possible_ = false;  // a lone backslash equals nothing
      if (possible_) add_byte(static_cast<unsigned char>(pattern[at++]));
    }
  }
}

void GlobPattern::add_byte(unsigned char byte) {
  Token token;
  token.bytes.set(byte);
  tokens_.push_back(token);
}

void GlobPattern::add_stars(std::string_view pattern, size_t& at, bool path) {
  const size_t begin = at;
  while (at < pattern.size() && pattern[at] == '*') ++at;
  const std::string_view after = pattern.substr(at);
  const bool whole_name = (begin == 0 || pattern[begin - 1] == '/') &&
                          (after.empty() || after[0] == '/' || after.starts_with("\\/"));
  Token token;
  token.kind = Kind::kStar;
  if (!path) {
    token.kind = Kind::kAnything;
  } else if (at - begin >= 2 && whole_name) {
    const bool folders = after.starts_with('/');
    token.kind = folders ? Kind::kFolders : Kind::kAnything;
    if (folders) ++at;
  }
  tokens_.push_back(token);
}

bool GlobPattern::add_class(std::string_view pattern, size_t& at, bool path) {
  Token token;
  size_t i = at + 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  int previous = -1;  // the byte before a '-', if a range may begin with it
  for (bool first = true;; first = false, ++i) {
    if (i >= pattern.size()) return false;
    auto c = static_cast<unsigned char>(pattern[i]);
    if (c == ']' && !first) break;
    if (c == '[' && i + 1 < pattern.size() && pattern[i + 1] == ':') {
      const size_t close = pattern.find(']', i + 2);
      if (close == std::string_view::npos) return false;
      if (close > i + 2 && pattern[close - 1] == ':') {
        if (!add_named(pattern.substr(i + 2, close - 1 - (i + 2)), token.bytes)) return false;
        i = close;
        previous = -1;
        continue;
      }
    }
    if (c == '-' && previous >= 0 && i + 1 < pattern.size() && pattern[i + 1] != ']') {
      c = static_cast<unsigned char>(pattern[++i]);
      if (c == '\\') {
        if (++i >= pattern.size()) return false;
        c = static_cast<unsigned char>(pattern[i]);
      }
      for (int b = previous; b <= c; ++b) token.bytes.set(static_cast<size_t>(b));
      previous = -1;
      continue;
    }
    if (c == '\\') {
      if (++i >= pattern.size()) return false;
      c = static_cast<unsigned char>(pattern[i]);
    }
    token.bytes.set(c);
    previous = c;
  }
  if (negated) token.bytes.flip();
  if (path) token.bytes.reset('/');
  tokens_.push_back(token);
  at = i + 1;
  return true;
}

bool GlobPattern::matches(std::string_view text) const {
  if (!possible_) return false;
  const size_t count = tokens_.size();
  std::vector<uint8_t> now(count + 1);
  std::vector<uint8_t> next(count + 1);
  // Reaching a wildcard that may stand for nothing reaches what follows it as well.
  const auto enter = [&](std::vector<uint8_t>& states, size_t i) {
    for (states[i] = 1; i < count && tokens_[i].kind != Kind::kOneOf; states[i] = 1) ++i;
  };
  enter(now, 0);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::fill(next.begin(), next.end(), uint8_t{0});
    for (size_t i = 0; i < count; ++i) {
      if (now[i] == 0) continue;
      switch (tokens_[i].kind) {
        case Kind::kOneOf:
          if (tokens_[i].bytes.test(byte)) enter(next, i + 1);
          break;
        case Kind::kStar:
          if (c != '/') enter(next, i);
          break;
        case Kind::kAnything:
          enter(next, i);
          break;
        case Kind::kFolders:  // whole folders only: what follows begins behind a '/'
          next[i] = 1;
          if (c == '/') enter(next, i + 1);
          break;
      }
    }
    std::swap(now, next);
  }
  return now[count] != 0;
}

IgnoreList::IgnoreList(std::string base, std::string label, std::string_view content)
    : base_(std::move(base)), label_(std::move(label)) {
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
  for (int number = 1; !content.empty(); ++number) {
    const size_t end = content.find('\n');
    std::string_view line = content.substr(0, end);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    if (end != std::string_view::npos && line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with('#')) continue;
    add_line(without_trailing_spaces(line.substr(0, line.find('\0'))), number);
  }
}

void IgnoreList::add_line(std::string_view line, int number) {
  const bool negated = line.starts_with('!');
  if (negated) line.remove_prefix(1);
  const bool folders_only = line.ends_with('/');
  if (folders_only) line.remove_suffix(1);
  if (line.empty()) return;
  const bool name_only = line.find('/') == std::string_view::npos;
  if (line[0] == '/') line.remove_prefix(1);
  const auto literal =
      static_cast<size_t>(std::find_if(line.begin(), line.end(), is_wildcard) - line.begin());
  rules_.push_back({.line = number,
                    .negated = negated,
                    .folders_only = folders_only,
                    .name_only = name_only,
                    .literal = std::string(line.substr(0, literal)),
                    .whole = literal == line.size(),
                    .rest = GlobPattern(name_only ? line : line.substr(literal), !name_only)});
}

bool IgnoreList::matches(const Rule& rule, std::string_view relative, std::string_view name) {
  if (rule.name_only) return rule.whole ? name == rule.literal : rule.rest.matches(name);
  if (!relative.starts_with(rule.literal)) return false;
  relative.remove_prefix(rule.literal.size());
  return rule.whole ? relative.empty() : rule.rest.matches(relative);
}

IgnoreList::Match IgnoreList::match(std::string_view path, bool is_folder) const {
  if (!path.starts_with(base_)) return {};
  const std::string_view relative = path.substr(base_.size());
  const size_t slash = relative.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? relative : relative.substr(slash + 1);
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->folders_only && !is_folder) continue;
    if (matches(*rule, relative, name)) {
      return {rule->negated ? Verdict::kKept : Verdict::kIgnored, rule->line};
    }
  }
  return {};
}

IgnoreRules IgnoreRules::with(std::shared_ptr<const IgnoreList> list) const {
  IgnoreRules more = *this;
  more.lists_.push_back(std::move(list));
  return more;
}

std::string IgnoreRules::reason(std::string_view path, bool is_folder) const {
  for (auto list = lists_.rbegin(); list != lists_.rend(); ++list) {
    const IgnoreList::Match match = (*list)->match(path, is_folder);
    if (match.verdict == IgnoreList::Verdict::kKept) return {};
    if (match.verdict == IgnoreList::Verdict::kIgnored) {
      return fmt::format("ignored by {}, line {}", (*list)->label(), match.line);
    }
  }
  return {};
}

}  // namespace rhapsode::text
