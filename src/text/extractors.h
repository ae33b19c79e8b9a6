// Readers of formats whose text must be extracted; read_document() (reader.h) calls them. Beside readers.h,
// which has those of formats that are text.
//
// Errors: kCorrupt for damaged input, kNotFound "no text", kTooLarge over a limit that keeps memory bounded,
// kUnsupported where a program is missing. Threads: any. No recursion by the depth of the input.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/document.h"

namespace rhapsode::text {

class TextBuilder;

// UTF-8. The main part of a page, if it marks one, without scripts, styles and navigation.
Result<Document> read_html(std::string name, std::string_view html);
// The same into a text that others go on with (an EPUB's chapters). `title` gets the page's own, if any.
Status append_html(std::string_view name, std::string_view html, TextBuilder& builder, Document& about);

// Runs the pdftotext program (poppler-utils) on a private copy.
Result<Document> read_pdf(std::string name, std::string_view bytes);

// Paragraphs, headings, lists and tables of a Word document; foot- and endnotes at the end.
Result<Document> read_docx(std::string name, std::string_view bytes);

// Chapters in reading order.
Result<Document> read_epub(std::string name, std::string_view bytes);

// Jupyter: Markdown and code cells, text outputs up to a limit.
Result<Document> read_notebook(std::string name, std::string_view json);

}  // namespace rhapsode::text
