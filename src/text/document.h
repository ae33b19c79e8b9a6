// Document: what a reader makes of one file, message list or archive member, ready to be cut into passages.
//
// `text` is what the model reads and what citations are taken from, as UTF-8. For formats that are text
// (plain, Markdown, code, CSV, JSON without messages) it is the file's bytes, unchanged; for others (HTML,
// PDF, DOCX, EPUB, notebooks, messages in JSON, e-mail, files in another charset) it is the text extracted
// from them, and `extracted` says so. All offsets are bytes of `text`. Ownership and threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rhapsode::text {

enum class DocumentKind : uint8_t {
  kPlain,
  kMarkdown,
  kHtml,
  kPdf,
  kCode,
  kMessages,
  kTable,
  kDocx,
  kEpub,
  kNotebook
};
const char* to_string(DocumentKind kind);  // "plain", "markdown", ...

// How good a place for a cut is; higher is better.
enum class BreakStrength : uint8_t { kWord, kSentence, kLine, kParagraph, kBlock, kSection, kPage };

struct BreakPoint {
  size_t offset = 0;  // a passage may begin here
  BreakStrength strength = BreakStrength::kWord;
};

// From `begin` to the next section: what the header of a passage says about where it stands.
struct Section {
  size_t begin = 0;
  std::string path;  // "Usage > Options", "class Parser > parse()"
};

// A run that must not be cut anywhere but at `rows`; each later part repeats `lead` in its header (a table's
// header row, the opening line of a fenced code block).
struct RowBlock {
  size_t begin = 0;
  size_t end = 0;
  std::string lead;
  std::vector<size_t> rows;  // offsets where a row begins, ascending
};

struct Document {
  std::string name;  // as the user knows it: "docs/a.md", "mail.zip/inbox.mbox"
  DocumentKind kind = DocumentKind::kPlain;
  std::string title;   // its own title, else empty
  std::string author;  // if it says so
  std::string date;    // ISO 8601 date or time, if it says so
  // How documents of its kind call one another, and which of them it replaces or is replaced by, if it says
  // so: "PEP 333", or names of files.
  std::string identifier;
  std::vector<std::string> supersedes;
  std::vector<std::string> superseded_by;
  bool extracted = false;
  std::string text;
  std::vector<BreakPoint> breaks;     // structure found by the reader, ascending; the cutter adds weaker ones
  std::vector<Section> sections;      // ascending
  std::vector<RowBlock> row_blocks;   // ascending, not overlapping
  std::vector<size_t> page_starts;    // of pages 1, 2, ...; empty: the format has no pages
  std::vector<std::string> warnings;  // one sentence each: "page 3 holds no text (an image?)"
};

}  // namespace rhapsode::text
