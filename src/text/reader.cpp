#include "text/reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text_check.h"
#include "text/charset.h"
#include "text/extractors.h"
#include "text/file_name.h"
#include "text/packaged_document.h"
#include "text/readers.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kSpace = " \t\r\n\f\v";

template <typename Endings>
bool is_one_of(std::string_view ending, const Endings& endings) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

constexpr std::array kHtmlEndings = {"html"sv, "htm"sv, "xhtml"sv, "xht"sv};
constexpr std::array kMarkdownEndings = {"md"sv, "markdown"sv, "mkd"sv, "mdown"sv, "mdx"sv, "rmd"sv, "qmd"sv};
constexpr std::array kMailEndings = {"eml"sv, "mbox"sv, "mbx"sv};
constexpr std::array kTableEndings = {"csv"sv, "tsv"sv, "psv"sv, "tab"sv};
constexpr std::array kMessageEndings = {"jsonl"sv, "ndjson"sv, "jsonlines"sv};
constexpr std::array kPlainEndings = {"txt"sv, "text"sv, "rst"sv,  "rest"sv,
                                      "log"sv, "org"sv,  "adoc"sv, "tex"sv};

std::string_view after_mark_and_space(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

// A page says so at its start, behind an XML declaration and comments.
bool is_html(std::string_view text) {
  text = after_mark_and_space(text);
  for (int i = 0; i < 20; ++i) {
    const std::string head = ascii_lower(text.substr(0, 16));
    if (head.starts_with("<!doctype html") || head.starts_with("<html")) return true;
    const std::string_view end = head.starts_with("<!--")    ? "-->"sv
                                 : head.starts_with("<?xml") ? "?>"sv
                                                             : ""sv;
    const size_t at = end.empty() ? std::string_view::npos : text.find(end);
    if (at == std::string_view::npos) return false;
    text = after_mark_and_space(text.substr(at + end.size()));
  }
  return false;
}

bool is_notebook(std::string_view text) {
  return after_mark_and_space(text).starts_with('{') && text.find("\"cells\"") != std::string_view::npos &&
         text.find("\"nbformat\"") != std::string_view::npos;
}

// For text without a telling name (standard input): a heading, a fence or a link of Markdown.
bool is_markdown(std::string_view text) {
  std::string_view rest = text.substr(0, 4096);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("## ") || line.starts_with("```") || line.find("](http") != std::string_view::npos) {
      return true;
    }
  }
  return text.starts_with("# ");
}

// What bytes of known formats are, where no reader is for them; empty: nothing known.
std::string_view unsupported_format(std::string_view bytes) {
  if (bytes.starts_with("\xD0\xCF\x11\xE0"sv)) return "an old Office file: save it as DOCX";
  if (bytes.starts_with("{\\rtf"sv)) return "RTF: save it as DOCX or text";
  if (bytes.starts_with("%!PS"sv)) return "PostScript: convert it to PDF";
  return {};
}

Result<Document> read_package(std::string name, const std::string& bytes) {
  RH_TRY(const PackageKind kind, package_kind(bytes, name));
  if (kind == PackageKind::kDocx) return read_docx(std::move(name), bytes);
  if (kind == PackageKind::kEpub) return read_epub(std::move(name), bytes);
  if (kind == PackageKind::kOther) {
    return make_error(ErrorKind::kUnsupported,
                      "{} is an office file of a kind that is not read: save it as DOCX, PDF, CSV or text",
                      name);
  }
  return make_error(ErrorKind::kUnsupported, "{} is an archive: its members are documents, not itself", name);
}

Result<Document> read_text_kind(std::string name, std::string text) {
  const std::string ending = file_ending(name);
  const bool telling = !ending.empty() && ending != "txt";
  if (is_one_of(ending, kHtmlEndings) || (!is_one_of(ending, kMarkdownEndings) && is_html(text))) {
    return read_html(std::move(name), text);
  }
  if (ending == "ipynb" || (ending != "json" && !telling && is_notebook(text)) ||
      (ending == "json" && is_notebook(text))) {
    return read_notebook(std::move(name), text);
  }
  if (is_one_of(ending, kMessageEndings)) return read_messages(std::move(name), std::move(text));
  if ((ending == "json" || !telling) && is_messages(text))
    return read_messages(std::move(name), std::move(text));
  if (is_one_of(ending, kTableEndings)) return read_table(std::move(name), std::move(text));
  if (is_one_of(ending, kMarkdownEndings)) return read_markdown(std::move(name), std::move(text));
  if (is_one_of(ending, kPlainEndings)) return read_plain(std::move(name), std::move(text));
  if (!code_language(name, text).empty()) return read_code(std::move(name), std::move(text));
  if (!telling) {
    const char delimiter = table_delimiter(text);
    // Commas stand in prose as well.
    if (delimiter == '\t' || delimiter == ';' || delimiter == '|')
      return read_table(std::move(name), std::move(text));
    if (is_markdown(text)) return read_markdown(std::move(name), std::move(text));
  }
  return read_plain(std::move(name), std::move(text));
}

}  // namespace

Result<Document> read_document(std::string name, std::string bytes) {
  if (holds_no_text(bytes)) return make_error(ErrorKind::kNotFound, "{} holds no text", name);
  const std::string ending = file_ending(name);
  if (after_mark_and_space(std::string_view(bytes).substr(0, 1024)).starts_with("%PDF-") ||
      (ending == "pdf" && bytes.substr(0, 1024).find("%PDF-") != std::string::npos)) {
    return read_pdf(std::move(name), bytes);
  }
  if (bytes.starts_with("PK\x03\x04")) return read_package(std::move(name), bytes);
  if (const std::string_view format = unsupported_format(bytes); !format.empty()) {
    return make_error(ErrorKind::kUnsupported, "{} is {}", name, format);
  }
  for (const std::string_view packaged : {"pdf", "docx", "epub"}) {
    if (ending == packaged) {
      return make_error(ErrorKind::kCorrupt,
                        "{} does not begin as a file of its kind: it is damaged or misnamed", name);
    }
  }
  if (looks_binary(bytes)) return make_error(ErrorKind::kUnsupported, "{} is binary, not text", name);
  // The parts of a message have a charset each.
  if (is_one_of(ending, kMailEndings) || ((ending.empty() || ending == "txt") && is_mail(bytes))) {
    return read_mail(std::move(name), std::move(bytes));
  }
  const std::string declared = declared_charset(bytes);
  RH_TRY(DecodedText decoded, decode_text(std::move(bytes), declared));
  if (holds_no_text(decoded.text)) return make_error(ErrorKind::kNotFound, "{} holds no text", name);
  RH_TRY(Document document, read_text_kind(std::move(name), std::move(decoded.text)));
  document.extracted = document.extracted || decoded.changed;
  if (!decoded.warning.empty())
    document.warnings.insert(document.warnings.begin(), std::move(decoded.warning));
  return document;
}

}  // namespace rhapsode::text
