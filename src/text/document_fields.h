// "Title: ...", "Author: ..." and the like where documents carry them: at the head of plain texts (PEPs,
// RFCs, Gutenberg's books), in front matter, as headings.
//
// Ownership: changes the document it is given. Threads: one at a time. Cost: O(field).
#pragma once

#include <string_view>

#include "text/document.h"

namespace rhapsode::text {

// Splits "Key: value" (or "key = value" with that separator); false for lines that are no field. The key is
// of letters, digits, '-', '_' and at most three words.
bool split_field(std::string_view line, char separator, std::string_view& key, std::string_view& value);

// Takes title, author or date from a field, the first of each kind counts, or what it says of other documents
// (Replaces, Supersedes, Superseded-By). True for these keys.
bool take_field(std::string_view key, std::string_view value, Document& document);

// Numbers among the documents that a field named become identifiers of this one's kind: of "PEP", 333 is
// "PEP 333".
void complete_references(std::string_view kind, Document& document);

// Names only: addresses in <> and comments in () go, list brackets and quotes too.
std::string clean_author(std::string_view text);
std::string_view unquoted(std::string_view text);

}  // namespace rhapsode::text
