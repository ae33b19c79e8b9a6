#include "text/passage_header.h"

#include <algorithm>
#include <array>

#include "text/section_stack.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

// The last `parts` parts of a path, with an ellipsis in place of the others.
std::string last_parts(const std::string& text, std::string_view separator, int parts) {
  size_t at = text.size();
  for (int i = 0; i < parts && at != std::string::npos; ++i) {
    at = at == 0 ? std::string::npos : text.rfind(separator, at - 1);
  }
  return at == std::string::npos ? text : "…" + text.substr(at);
}

// "options" of "docs/options.md".
std::string_view stem(std::string_view name) {
  const size_t slash = name.find_last_of("/\\");
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot);
}

// Names of many authors: the first, "et al.".
std::string short_author(const std::string& author, size_t most_bytes) {
  if (author.size() <= most_bytes) return author;
  const size_t comma = author.find(',');
  if (comma == std::string::npos || comma + 8 > most_bytes) return shortened(author, most_bytes);
  return author.substr(0, comma) + " et al.";
}

constexpr size_t kMostFieldBytes = 1024;

std::string field(std::string_view text) {
  return one_line(text.substr(0, character_floor(text, kMostFieldBytes)));
}

// Of names and paths the end tells most.
std::string tail(std::string_view text) {
  if (text.size() <= kMostFieldBytes) return one_line(text);
  return one_line(text.substr(character_floor(text, text.size() - kMostFieldBytes)));
}

// What a header's first line is made of, from the full form (0) to the tersest (kForms - 1).
constexpr int kForms = 4;

struct HeaderParts {
  std::string name, title, path, author, date;

  std::string form(int terse) const {
    std::string out = terse > 0 ? last_parts(name, "/", 2) : name;
    if (terse > 2) out = last_parts(name, "/", 1);
    if (!title.empty() && terse < 3) {
      constexpr std::array<size_t, 3> kTitleBytes = {160, 80, 40};
      out += (out.empty() ? "\"" : ", \"") + shortened(title, kTitleBytes[static_cast<size_t>(terse)]) + '"';
    }
    const std::string where = terse > 0 ? last_parts(path, " > ", 3 - std::min(terse, 2)) : path;
    if (!where.empty()) out += (out.empty() ? "" : ": ") + where;
    std::string who = terse < 3 ? short_author(author, terse > 0 ? 30 : 60) : "";
    if (!date.empty()) who += (who.empty() ? "" : ", ") + date;
    if (!who.empty()) out += " (" + who + ")";
    return out;
  }
};

}  // namespace

PassageHeaders::PassageHeaders(const Document& document, const TokenCounter& count_tokens, int most_line,
                               int most_lead)
    : document_(document), count_tokens_(count_tokens), most_line_(most_line), most_lead_(most_lead) {}

std::string PassageHeaders::header_at(size_t begin, int block) {
  // A passage that begins with the blank lines before a heading belongs to the heading.
  while (begin < document_.text.size() && is_ascii_space(document_.text[begin])) ++begin;
  const auto& sections = document_.sections;
  bool moved = !has_line_;
  for (; next_section_ < sections.size() && sections[next_section_].begin <= begin; ++next_section_) {
    moved = true;
  }
  if (moved) {
    line_ = line_of(next_section_ == 0 ? std::string() : sections[next_section_ - 1].path);
    has_line_ = true;
  }
  if (block < 0) return line_;
  if (block != lead_block_) {
    std::string_view lead = document_.row_blocks[static_cast<size_t>(block)].lead;
    while (!lead.empty() && (lead.back() == '\n' || lead.back() == '\r')) lead.remove_suffix(1);
    lead_ = fitted(std::string(lead), most_lead_);
    lead_block_ = block;
  }
  return lead_.empty() ? line_ : line_ + "\n" + lead_;
}

std::string PassageHeaders::line_of(const std::string& path) const {
  HeaderParts parts{tail(document_.name), field(document_.title), tail(path), field(document_.author),
                    field(document_.date)};
  // What stands twice says nothing: the title as first heading, or as the name of the file.
  if (!parts.title.empty() && (parts.path == parts.title || parts.path.starts_with(parts.title + " > "))) {
    parts.path.erase(0, std::min(parts.path.size(), parts.title.size() + 3));
  }
  if (equals_ignoring_case(parts.title, stem(parts.name))) parts.title.clear();
  for (int terse = 0; terse < kForms; ++terse) {
    std::string line = parts.form(terse);
    if (count_tokens_(line) <= most_line_) return line;
  }
  return fitted(parts.form(kForms - 1), most_line_);
}

std::string PassageHeaders::fitted(const std::string& text, int most_tokens) const {
  if (text.size() <= static_cast<size_t>(most_tokens) * 16 && count_tokens_(text) <= most_tokens) return text;
  // Count only what could fit, then halve the distance.
  size_t fits = 0, high = std::min(text.size(), static_cast<size_t>(most_tokens) * 16);
  while (fits + 1 < high) {
    const size_t middle = (fits + high) / 2;
    (count_tokens_(shortened(text, middle)) <= most_tokens ? fits : high) = middle;
  }
  return fits < 4 ? std::string() : shortened(text, fits);
}

}  // namespace rhapsode::text
