#include "cli/text_width.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace rhapsode::cli {
namespace {

struct Interval {
  char32_t first, last;
};

// Blocks of Unicode 15 with East_Asian_Width W or F, neighbours joined.
constexpr Interval kWide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x2329, 0x232A},   {0x23E9, 0x23EC},   {0x23F0, 0x23F0},
    {0x23F3, 0x23F3},   {0x25FD, 0x25FE},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267F, 0x267F},
    {0x2693, 0x2693},   {0x26A1, 0x26A1},   {0x26AA, 0x26AB},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},
    {0x26CE, 0x26CE},   {0x26D4, 0x26D4},   {0x26EA, 0x26EA},   {0x26F2, 0x26F3},   {0x26F5, 0x26F5},
    {0x26FA, 0x26FA},   {0x26FD, 0x26FD},   {0x2705, 0x2705},   {0x270A, 0x270B},   {0x2728, 0x2728},
    {0x274C, 0x274C},   {0x274E, 0x274E},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x27B0, 0x27B0},   {0x27BF, 0x27BF},   {0x2B1B, 0x2B1C},   {0x2B50, 0x2B50},   {0x2B55, 0x2B55},
    {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},
    {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE10, 0xFE19},   {0xFE30, 0xFE6F},
    {0xFF01, 0xFF60},   {0xFFE0, 0xFFE6},   {0x16FE0, 0x18CFF}, {0x1AFF0, 0x1B2FF}, {0x1F004, 0x1F004},
    {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F18E}, {0x1F191, 0x1F19A}, {0x1F200, 0x1F320}, {0x1F32D, 0x1F335},
    {0x1F337, 0x1F37C}, {0x1F37E, 0x1F393}, {0x1F3A0, 0x1F3CA}, {0x1F3CF, 0x1F3D3}, {0x1F3E0, 0x1F3F0},
    {0x1F3F4, 0x1F3F4}, {0x1F3F8, 0x1F43E}, {0x1F440, 0x1F440}, {0x1F442, 0x1F4FC}, {0x1F4FF, 0x1F53D},
    {0x1F54B, 0x1F54E}, {0x1F550, 0x1F567}, {0x1F57A, 0x1F57A}, {0x1F595, 0x1F596}, {0x1F5A4, 0x1F5A4},
    {0x1F5FB, 0x1F64F}, {0x1F680, 0x1F6C5}, {0x1F6CC, 0x1F6CC}, {0x1F6D0, 0x1F6D2}, {0x1F6D5, 0x1F6D7},
    {0x1F6DC, 0x1F6DF}, {0x1F6EB, 0x1F6EC}, {0x1F6F4, 0x1F6FC}, {0x1F7E0, 0x1F7F0}, {0x1F90C, 0x1F93A},
    {0x1F93C, 0x1F945}, {0x1F947, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};

// Combining marks and format characters of the scripts most seen, joined by block.
constexpr Interval kZero[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD},   {0x05BF, 0x05BF},  {0x05C1, 0x05C2},
    {0x05C4, 0x05C5}, {0x0610, 0x061A}, {0x064B, 0x065F},   {0x0670, 0x0670},  {0x06D6, 0x06DC},
    {0x06DF, 0x06E4}, {0x0900, 0x0902}, {0x093C, 0x093C},   {0x0941, 0x0948},  {0x094D, 0x094D},
    {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E},   {0x1AB0, 0x1AFF},  {0x1DC0, 0x1DFF},
    {0x200B, 0x200F}, {0x202A, 0x202E}, {0x2060, 0x2064},   {0x20D0, 0x20F0},  {0xFE00, 0xFE0F},
    {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0x1F3FB, 0x1F3FF}, {0xE0100, 0xE01EF}};

template <size_t N>
bool contains(const Interval (&intervals)[N], char32_t code_point) {
  const auto* found =
      std::lower_bound(std::begin(intervals), std::end(intervals), code_point,
                       [](const Interval& interval, char32_t value) { return interval.last < value; });
  return found != std::end(intervals) && found->first <= code_point;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    out += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
            static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    out += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
            static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  }
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

// Marks that reorder the text around them: they can make a line read as what it is not.
bool is_reordering(char32_t c) {
  return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

char32_t next_code_point(std::string_view& text) {
  constexpr char32_t kReplacement = 0xFFFD;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const int length = lead < 0x80                   ? 1
                     : lead >= 0xC2 && lead < 0xE0 ? 2
                     : lead >= 0xE0 && lead < 0xF0 ? 3
                     : lead >= 0xF0 && lead < 0xF5 ? 4
                                                   : 0;
  char32_t value = length == 1 ? lead : length == 0 ? 0 : static_cast<char32_t>(lead & (0x7F >> length));
  bool valid = length > 0 && text.size() >= static_cast<size_t>(length);
  for (int i = 1; valid && i < length; ++i) {
    valid = (byte(static_cast<size_t>(i)) & 0xC0) == 0x80;
    value = value << 6 | (byte(static_cast<size_t>(i)) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (!valid || overlong || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    text.remove_prefix(1);
    return kReplacement;
  }
  text.remove_prefix(static_cast<size_t>(length));
  return value;
}

int code_point_width(char32_t code_point) {
  if (is_control(code_point) || contains(kZero, code_point)) return 0;
  return contains(kWide, code_point) ? 2 : 1;
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) width += code_point_width(next_code_point(text));
  return width;
}

std::string clip_text(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  std::string clipped;
  int width = 0;
  while (!text.empty()) {
    const char32_t code_point = next_code_point(text);
    width += code_point_width(code_point);
    if (width > columns - 1) break;
    append_utf8(clipped, code_point);
  }
  return columns > 0 ? clipped + "…" : "";
}

std::string clip_front(std::string_view text, int columns) {
  int width = display_width(text);
  if (width <= columns) return std::string(text);
  while (!text.empty() && width > columns - 1) width -= code_point_width(next_code_point(text));
  return columns > 0 ? fmt::format("…{}", text) : "";
}

std::string wrap_text(std::string_view text, int width, int indent) {
  std::string lines;
  int used = 0;
  const auto break_line = [&] {
    lines += '\n';
    lines.append(static_cast<size_t>(indent), ' ');
    used = 0;
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    if (used > 0 && used + 1 + display_width(word) > width) break_line();
    if (used > 0) {
      lines += ' ';
      ++used;
    }
    while (!word.empty()) {
      const std::string_view before = word;
      const int columns = code_point_width(next_code_point(word));
      if (used > 0 && used + columns > width) break_line();
      lines += before.substr(0, before.size() - word.size());
      used += columns;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string printable(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    char32_t c = next_code_point(text);
    if (c < 0x20 && c != '\n' && c != '\t') {
      c += 0x2400;  // the control's picture
    } else if (c == 0x7F) {
      c = 0x2421;
    } else if (is_control(c) || is_reordering(c)) {
      if (c != '\n' && c != '\t') c = 0xFFFD;
    }
    append_utf8(safe, c);
  }
  return safe;
}

}  // namespace rhapsode::cli
