// Small steps over UTF-8 text that readers, cutter and search share: code points, lines, trimming.
//
// Every function takes any bytes: a byte that is part of no character counts as U+FFFD of one byte. Threads:
// any. Cost: O(1) a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rhapsode::text {

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 1;
};
// At `offset` < text.size(), which should be the start of a character.
CodePoint code_point_at(std::string_view text, size_t offset);
// The start of the character before `offset` > 0.
size_t previous_start(std::string_view text, size_t offset);
inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}
// The greatest start of a character that is not above `offset`.
size_t character_floor(std::string_view text, size_t offset);

void append_utf8(uint32_t point, std::string& out);

// White space of ASCII, NUL, and that of Unicode (no-break spaces, the ideographic space, line separators).
bool is_space(uint32_t point);
// Scripts that write words without spaces: Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar, and their marks.
bool is_unspaced(uint32_t point);
inline bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_ascii_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
inline bool is_ascii_lower(char c) {
  return c >= 'a' && c <= 'z';
}
inline bool is_ascii_letter(char c) {
  return is_ascii_upper(c) || is_ascii_lower(c);
}
inline bool is_identifier_byte(char c) {
  return is_ascii_letter(c) || is_ascii_digit(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
inline bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::string_view trim(std::string_view text);
std::string ascii_lower(std::string_view text);
bool equals_ignoring_case(std::string_view a, std::string_view b);  // of ASCII letters

// White space runs, line ends included, become one space; control characters vanish.
std::string one_line(std::string_view text);

// One line of a text: [begin, end) without its line end, the next line begins at `next`.
struct Line {
  size_t begin = 0;
  size_t end = 0;
  size_t next = 0;
  bool blank = false;
  size_t indent = 0;  // columns of leading blanks, a tab reaches the next multiple of 8
};
// The line that begins at `offset` < text.size(); LF and CRLF end lines.
Line line_at(std::string_view text, size_t offset);
inline std::string_view view(std::string_view text, const Line& line) {
  return text.substr(line.begin, line.end - line.begin);
}

// 3 if the text begins with a byte order mark, else 0.
size_t mark_bytes(std::string_view text);

}  // namespace rhapsode::text
