#include "text/document_fields.h"

#include <algorithm>

#include "text/dates.h"
#include "text/section_stack.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMostFieldBytes = 400;
constexpr size_t kMostReferences = 100;

// "a.md, 'b.md'", "[a.md, b.md]".
void take_references(std::string_view value, std::vector<std::string>& references) {
  if (value.size() >= 2 && value.front() == '[' && value.back() == ']') {
    value = value.substr(1, value.size() - 2);
  }
  while (!value.empty() && references.size() < kMostReferences) {
    const size_t end = std::min(value.find(','), value.size());
    const std::string_view one = unquoted(value.substr(0, end));
    if (!one.empty() && one.size() <= kMostFieldBytes) references.push_back(one_line(one));
    value.remove_prefix(std::min(end + 1, value.size()));
  }
}

}  // namespace

std::string_view unquoted(std::string_view text) {
  text = trim(text);
  const bool quoted = text.size() >= 2 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0];
  return quoted ? trim(text.substr(1, text.size() - 2)) : text;
}

bool split_field(std::string_view line, char separator, std::string_view& key, std::string_view& value) {
  const size_t at = line.find(separator);
  constexpr size_t kLongestKey = 40;
  if (at == std::string_view::npos || at == 0 || at > kLongestKey) return false;
  key = trim(line.substr(0, at));
  if (key.empty() || !is_ascii_letter(key[0]) || std::count(key.begin(), key.end(), ' ') > 2) return false;
  const bool plain = std::all_of(key.begin(), key.end(),
                                 [](char c) { return is_identifier_byte(c) || c == '-' || c == ' '; });
  value = trim(line.substr(at + 1));
  return plain && (at + 1 == line.size() || separator != ':' || is_ascii_space(line[at + 1]));
}

std::string clean_author(std::string_view text) {
  std::string out;
  int depth = 0;
  for (const char c : text.substr(0, kMostFieldBytes)) {
    if (c == '<' || c == '(') ++depth;
    if (depth == 0 && c != '[' && c != ']' && c != '"') out += c;
    if ((c == '>' || c == ')') && depth > 0) --depth;
  }
  out = one_line(out);
  for (size_t at = out.find(" ,"); at != std::string::npos; at = out.find(" ,")) out.erase(at, 1);
  while (!out.empty() && (out.back() == ',' || out.back() == ' ')) out.pop_back();
  if (out.empty()) out = one_line(text.substr(0, kMostFieldBytes));  // an address alone
  return shortened(out, kMostFieldBytes);
}

bool take_field(std::string_view key, std::string_view value, Document& document) {
  const std::string name = ascii_lower(key);
  value = unquoted(value);
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is_one_of({"title", "subject"})) {
    if (document.title.empty()) document.title = shortened(one_line(value), kMostFieldBytes);
    return true;
  }
  if (is_one_of({"author", "authors", "from", "by", "creator"})) {
    if (document.author.empty()) document.author = clean_author(value);
    return true;
  }
  if (is_one_of({"date", "created", "year", "published", "release date", "pubdate", "publication date"})) {
    if (document.date.empty()) document.date = iso_date(value);
    return true;
  }
  if (is_one_of({"supersedes", "replaces"})) {
    take_references(value, document.supersedes);
    return true;
  }
  if (is_one_of({"superseded-by", "superseded_by", "superseded by", "replaced-by", "replaced_by"})) {
    take_references(value, document.superseded_by);
    return true;
  }
  return false;
}

void complete_references(std::string_view kind, Document& document) {
  for (auto* references : {&document.supersedes, &document.superseded_by}) {
    for (std::string& reference : *references) {
      const bool digits = reference.find_first_not_of("0123456789") == std::string::npos;
      if (digits && !kind.empty()) reference = std::string(kind) + " " + reference;
    }
  }
}

}  // namespace rhapsode::text
