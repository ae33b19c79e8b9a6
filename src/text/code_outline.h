// The functions and classes of source code, by keywords, braces and indentation: good enough to say where a
// passage stands and to cut between them. Code that no rule fits has fewer sections, never wrong offsets.
//
// Ownership: adds to the document it is given. Threads: one at a time. Cost: O(text), no recursion.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/document.h"
#include "text/section_stack.h"

namespace rhapsode::text {

enum class CodeShape {
  kBraces,  // C and its family
  kIndent,  // Python; Ruby, Lua, shell, whose authors indent as well
  kSql,
  kData,  // JSON, YAML, style sheets: blank lines and indentation only
};

struct CodeLanguage {
  std::string_view name;
  std::string_view endings;  // " c h "
  CodeShape shape = CodeShape::kData;
  bool hash_comment = false;   // '#' begins a comment
  bool preprocessor = false;   // '#' begins a directive
  bool quote_string = false;   // '...' is a string, not a character
  bool newline_ends = false;   // statements end with their line
  bool triple_string = false;  // """..."""
  bool backtick_string = false;
};

// By the name's ending, else by a "#!" line; nullptr: no known language.
const CodeLanguage* find_language(std::string_view name, std::string_view text);

// Adds sections, and breaks before them.
void outline_braces(const CodeLanguage& language, Document& document);
void outline_indent(const CodeLanguage& language, Document& document);
void outline_sql(Document& document);
void outline_data(Document& document);

// Collects the sections of symbols as they open and close.
class OutlineBuilder {
 public:
  explicit OutlineBuilder(Document& document) : document_(document) {}

  // A symbol whose first line begins at `line_begin`; comments and decorators right above belong to it.
  void enter(size_t line_begin, int level, std::string_view label);
  // It ends before `next`, the start of a line; symbols of one line are no sections.
  void leave(size_t next, int level);

 private:
  size_t with_comments(size_t line_begin) const;
  void add(size_t begin);

  Document& document_;
  SectionStack stack_;
  size_t last_begin_ = 0;    // line of the symbol entered last
  size_t closed_until_ = 0;  // comments above belong to what ended here
};

}  // namespace rhapsode::text
