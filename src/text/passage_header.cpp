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

// A path as it says what a text is: of one from the root, which tells of the machine and not of the text, the
// last two parts; of one from the current folder all.
std::string telling_path(const std::string& name) {
  std::string path = name;
  while (path.starts_with("../")) path.erase(0, 3);
  if (!path.starts_with('/')) return path;
  const size_t last = path.rfind('/');
  const size_t before = last == 0 ? 0 : path.rfind('/', last - 1);
  return path.substr(before + 1);
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

// "Part > Chapter > Verse" with each title shortened; of more than two titles the first and the last remain.
std::string short_path(const std::string& path, size_t most_bytes) {
  constexpr std::string_view kBetween = " > ";
  const size_t first = path.find(kBetween);
  if (first == std::string::npos) return shortened(path, 2 * most_bytes);
  const size_t last = path.rfind(kBetween);
  std::string out = shortened(path.substr(0, first), most_bytes);
  if (last > first) out += " > …";
  return out + " > " + shortened(path.substr(last + kBetween.size()), most_bytes);
}

// How much of each part a header's first line keeps, in bytes; 0: left out.
struct Form {
  int folders;  // of the name, before its last part
  size_t title;
  size_t path;
  size_t author;
};
constexpr size_t kWhole = kMostFieldBytes;
constexpr std::array<Form, 4> kForms = {
    {{99, 160, kWhole, 60}, {1, 90, 60, 30}, {1, 50, 36, 30}, {0, 30, 24, 0}}};

struct HeaderParts {
  std::string name, title, path, author, date;

  std::string line(const Form& form) const {
    std::string out = last_parts(name, "/", form.folders + 1);
    if (!title.empty()) out += (out.empty() ? "\"" : ", \"") + shortened(title, form.title) + '"';
    const std::string where = form.path == kWhole ? path : short_path(path, form.path);
    if (!where.empty()) out += (out.empty() ? "" : ": ") + where;
    std::string who = form.author > 0 ? short_author(author, form.author) : "";
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
  constexpr size_t kMostBlanks = 1024;
  const size_t limit = std::min(document_.text.size(), begin + kMostBlanks);
  while (begin < limit && is_ascii_space(document_.text[begin])) ++begin;
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
  HeaderParts parts{telling_path(tail(document_.name)), field(document_.title), tail(path),
                    field(document_.author), field(document_.date)};
  // What stands twice says nothing: the title as first heading, or as the name of the file.
  if (!parts.title.empty() && (parts.path == parts.title || parts.path.starts_with(parts.title + " > "))) {
    parts.path.erase(0, std::min(parts.path.size(), parts.title.size() + 3));
  }
  if (equals_ignoring_case(parts.title, stem(parts.name))) parts.title.clear();
  for (const Form& form : kForms) {
    std::string line = parts.line(form);
    if (count_tokens_(line) <= most_line_) return line;
  }
  return fitted(parts.line(kForms.back()), most_line_);
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
