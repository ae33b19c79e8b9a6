// How much room UTF-8 text takes on a terminal, and how to make foreign text safe to show there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rhapsode::cli {

// The next code point of `text`, which is shortened by it; U+FFFD for each byte that is not UTF-8.
char32_t next_code_point(std::string_view& text);

// Columns of one code point: 2 for wide East Asian characters and emoji, 0 for marks that combine, 0 for
// controls.
int code_point_width(char32_t code_point);
int display_width(std::string_view text);

// At most `columns` wide, with "…" in place of what was cut.
std::string clip_text(std::string_view text, int columns);

// The same, keeping the end: "…/guide.md".
std::string clip_front(std::string_view text, int columns);

// Breaks text at spaces to lines of `width` columns at most; further lines are indented. A word that is wider
// (a URL, a script without spaces) is cut.
std::string wrap_text(std::string_view text, int width, int indent);

// Text of files, models and servers for a terminal: control characters, which could move the cursor or change
// the terminal's state, become visible ("␛"); bytes that are not UTF-8 become U+FFFD. Tabs and line feeds
// stay.
std::string printable(std::string_view text);

}  // namespace rhapsode::cli
