// Readers of single formats: one function a kind. read_document() (reader.h) looks at content and name and
// calls one of them.
//
// "text" is UTF-8, "bytes" are as they lie in the file. A byte order mark at the start is kept and skipped.
// Formats that are text keep it unchanged in Document::text; JSON and e-mail are extracted. Ownership: the
// text moves into the document. Threads: any. Errors: kCorrupt for what its format forbids, kNotFound "no
// text" where nothing readable is left. Cost: O(text), no recursion by the depth of the input.
#pragma once

#include <string>
#include <string_view>

#include "rhapsode/result.h"
#include "text/document.h"

namespace rhapsode::text {

// Paragraphs, chapter lines, reStructuredText headings and PEP-like fields (title, author, date).
Result<Document> read_plain(std::string name, std::string text);

Result<Document> read_markdown(std::string name, std::string text);

// Functions and classes of the language that code_language() names, else by indentation and blank lines.
Result<Document> read_code(std::string name, std::string text);

// Comma, semicolon, tab or bar separated values after RFC 4180; the first row is the header.
Result<Document> read_table(std::string name, std::string text);

// JSON Lines, or one JSON array, of messages (role or author, time, text) or of other objects.
Result<Document> read_messages(std::string name, std::string text);

// A single e-mail or an mbox: From, Date and Subject as lines, then the text, its transfer encoding and
// charset undone. Attachments become warnings.
Result<Document> read_mail(std::string name, std::string bytes);

// "cpp", "python", ... by the name's ending or the first line ("#!"); empty: no source code.
std::string_view code_language(std::string_view name, std::string_view text);

// True when the first records are JSON objects, a line each or in an array.
bool is_messages(std::string_view text);

// True for an mbox's "From " line and for a block of header fields with From and Date or Subject.
bool is_mail(std::string_view bytes);

// The delimiter that splits the first rows into the same number (> 1) of cells; '\0': none does.
char table_delimiter(std::string_view text);

}  // namespace rhapsode::text
