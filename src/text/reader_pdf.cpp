#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text_check.h"
#include "io/child_process.h"
#include "text/dates.h"
#include "text/extractors.h"
#include "text/text_builder.h"

namespace rhapsode::text {
namespace {

constexpr size_t kGarbledPercent = 20;  // of a page's signs

class InputFile {
 public:
  explicit InputFile(int descriptor) : descriptor_(descriptor) {}
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { ::close(descriptor_); }
  Result<ChildOutput> run(const std::vector<std::string>& arguments, const ChildLimits& limits) const {
    ::lseek(descriptor_, 0, SEEK_SET);
    return run_child(arguments, descriptor_, limits);
  }

 private:
  int descriptor_;
};

// Printed ligatures (U+FB00 to U+FB06) as the letters that they stand for, so that words are whole.
std::string without_ligatures(std::string_view text) {
  static constexpr std::array<const char*, 7> kLetters = {"ff", "fi", "fl", "ffi", "ffl", "st", "st"};
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto last = i + 2 < text.size() ? static_cast<unsigned char>(text[i + 2]) : 0;
    if (text[i] == '\xEF' && text[i + 1] == '\xAC' && last >= 0x80 && last <= 0x86) {
      out += kLetters[last - 0x80];
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Signs that no text is made of: U+FFFD, private use (U+E000 to U+F8FF) and control characters.
bool is_garbled(std::string_view page) {
  size_t signs = 0;
  size_t odd = 0;
  for (size_t i = 0; i < page.size(); ++i) {
    const auto c = static_cast<unsigned char>(page[i]);
    if ((c & 0xC0) == 0x80 || c == ' ' || c == '\n') continue;
    ++signs;
    const auto second = i + 1 < page.size() ? static_cast<unsigned char>(page[i + 1]) : 0;
    const bool replacement = page.substr(i, 3) == "\xEF\xBF\xBD";
    const bool private_use = c == 0xEE || (c == 0xEF && second < 0xA4);
    if (replacement || private_use || c < 0x20) ++odd;
  }
  return signs > 0 && odd * 100 >= signs * kGarbledPercent;
}

// "page 3", "pages 3, 5-9"
std::string page_list(const std::vector<size_t>& pages) {
  std::string out = pages.size() == 1 ? "page " : "pages ";
  for (size_t i = 0; i < pages.size(); ++i) {
    size_t last = i;
    while (last + 1 < pages.size() && pages[last + 1] == pages[last] + 1) ++last;
    if (i > 0) out += ", ";
    out += std::to_string(pages[i]);
    if (last > i) out += '-' + std::to_string(pages[last]);
    i = last;
  }
  return out;
}

void add_page(std::string_view page, TextBuilder& builder) {
  builder.page();
  while (!page.empty()) {
    const std::string_view line = page.substr(0, page.find('\n'));
    page.remove_prefix(std::min(page.size(), line.size() + 1));
    const size_t end = line.find_last_not_of(" \t\r");
    if (end == std::string_view::npos) {
      builder.end_block();
    } else {
      builder.verbatim(line.substr(0, end + 1));
      builder.end_line();
    }
  }
}

// The value behind "Title:" in what pdfinfo prints.
std::string info_value(std::string_view info, std::string_view key) {
  while (!info.empty()) {
    const std::string_view line = info.substr(0, info.find('\n'));
    info.remove_prefix(std::min(info.size(), line.size() + 1));
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    const size_t begin = line.find_first_not_of(' ', key.size() + 1);
    return begin == std::string_view::npos ? std::string() : std::string(line.substr(begin));
  }
  return {};
}

void add_metadata(const InputFile& input, Document& document) {
  const auto info = input.run({"pdfinfo", "-enc", "UTF-8", "-isodates", "-"},
                              {.time = std::chrono::seconds(20), .output_bytes = size_t{1} << 20});
  // Title and author are worth having, but a document without them is whole.
  if (!info.ok() || info->exit_code != 0 || !is_utf8(info->output)) return;
  document.title = info_value(info->output, "Title");
  document.author = info_value(info->output, "Author");
  document.date = iso_date(info_value(info->output, "CreationDate"));
}

Error failure(const std::string& name, const ChildOutput& child) {
  if (child.errors.find("Incorrect password") != std::string::npos) {
    return make_error(ErrorKind::kUnsupported, "{} is protected by a password: save it without one", name);
  }
  std::string detail = child.errors.substr(0, child.errors.find('\n'));
  if (child.exit_code > 128) detail = fmt::format("pdftotext was ended by signal {}", child.exit_code - 128);
  return make_error(ErrorKind::kCorrupt, "{} cannot be read as PDF: {}", name, shown(detail, 200));
}

}  // namespace

Result<Document> read_pdf(std::string name, std::string_view bytes) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kPdf;
  RH_TRY(const int descriptor, memory_file(bytes));
  const InputFile input(descriptor);
  // Without -layout and -raw: reading order, so that columns follow one another.
  auto child = input.run({"pdftotext", "-enc", "UTF-8", "-eol", "unix", "-", "-"}, {});
  if (!child.ok()) {
    if (child.error().kind == ErrorKind::kNotFound) {
      return make_error(ErrorKind::kUnsupported,
                        "{} is a PDF, which needs the program pdftotext: install poppler-utils",
                        document.name);
    }
    return make_error(child.error().kind, "{} cannot be read: {}", document.name, child.error().message);
  }
  if (child->exit_code != 0) return failure(document.name, *child);
  if (!is_utf8(child->output)) {
    return make_error(ErrorKind::kCorrupt, "{}: the text that pdftotext found is no UTF-8", document.name);
  }
  std::string text = without_ligatures(child->output);
  std::replace(text.begin(), text.end(), '\0', ' ');
  child->output = {};

  TextBuilder builder;
  std::vector<size_t> empty_pages;
  std::vector<size_t> garbled_pages;
  std::string_view rest = text;
  for (size_t page = 1; !rest.empty(); ++page) {
    const std::string_view content = rest.substr(0, rest.find('\f'));
    rest.remove_prefix(std::min(rest.size(), content.size() + 1));
    if (content.find_first_not_of(" \n\r\t") == std::string_view::npos) empty_pages.push_back(page);
    if (is_garbled(content)) garbled_pages.push_back(page);
    add_page(content, builder);
  }
  if (builder.empty()) {
    return make_error(ErrorKind::kNotFound, "{} holds no text: a scan? Run text recognition over it first",
                      document.name);
  }
  builder.finish(document);
  if (!empty_pages.empty()) {
    document.warnings.push_back(fmt::format("{} hold{} no text (an image?)", page_list(empty_pages),
                                            empty_pages.size() == 1 ? "s" : ""));
  }
  if (!garbled_pages.empty()) {
    document.warnings.push_back(fmt::format("{}: the text looks garbled (a font without a map to letters?)",
                                            page_list(garbled_pages)));
  }
  add_metadata(input, document);
  return document;
}

}  // namespace rhapsode::text
