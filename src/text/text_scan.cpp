#include "text/text_scan.h"

#include <algorithm>
#include <array>

namespace rhapsode::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

constexpr std::array<Range, 16> kUnspaced = {{
    {0x0E00, 0x0EFF},    // Thai, Lao
    {0x1000, 0x109F},    // Myanmar
    {0x1100, 0x11FF},    // Hangul Jamo
    {0x1780, 0x17FF},    // Khmer
    {0x19E0, 0x19FF},    // Khmer symbols
    {0x2E80, 0x2FDF},    // radicals
    {0x3005, 0x3007},    // ideographic iteration marks
    {0x3021, 0x3029},    // Hangzhou numerals
    {0x3031, 0x30FF},    // Kana
    {0x3105, 0x31BF},    // Bopomofo, Hangul compatibility Jamo
    {0x31F0, 0x31FF},    // Kana extensions
    {0x3400, 0x9FFF},    // Han
    {0xA960, 0xD7FF},    // Hangul, Myanmar extensions
    {0xF900, 0xFAFF},    // Han compatibility
    {0xFF66, 0xFFDC},    // half-width Kana and Hangul
    {0x1AFF0, 0x3FFFF},  // Kana extensions, Han of the supplementary planes
}};

// Blocks between the ranges above that hold spaced scripts or symbols.
constexpr std::array<Range, 6> kSpaced = {{
    {0xA980, 0xA9DF},    // Javanese
    {0xAA00, 0xAA5F},    // Cham
    {0xAA80, 0xABFF},    // Tai Viet to Meetei Mayek
    {0x30FB, 0x30FB},    // Katakana middle dot
    {0x1B300, 0x1FFFF},  // other scripts, symbols and emoji
    {0x4DC0, 0x4DFF},    // Yijing hexagrams
}};

template <size_t kCount>
bool in_ranges(const std::array<Range, kCount>& ranges, uint32_t point) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [point](const Range& range) { return point >= range.first && point <= range.last; });
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const size_t left = text.size() - offset;
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || left < bytes) return {0xFFFD, 1};
  uint32_t value = first & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[offset + i])) return {0xFFFD, 1};
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  const bool too_long = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  if (too_long || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {0xFFFD, 1};
  return {value, bytes};
}

size_t previous_start(std::string_view text, size_t offset) {
  size_t start = offset - 1;
  for (int i = 0; i < 3 && start > 0 && is_continuation(text[start]); ++i) --start;
  return start + code_point_at(text, start).bytes == offset ? start : offset - 1;
}

size_t character_floor(std::string_view text, size_t offset) {
  if (offset >= text.size()) return text.size();
  size_t start = offset;
  for (int i = 0; i < 3 && start > 0 && is_continuation(text[start]); ++i) --start;
  return start + code_point_at(text, start).bytes > offset ? start : offset;
}

void append_utf8(uint32_t point, std::string& out) {
  if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) point = 0xFFFD;
  if (point < 0x80) {
    out += static_cast<char>(point);
    return;
  }
  if (point < 0x800) {
    out += static_cast<char>(0xC0 | point >> 6);
  } else {
    if (point < 0x10000) {
      out += static_cast<char>(0xE0 | point >> 12);
    } else {
      out += static_cast<char>(0xF0 | point >> 18);
      out += static_cast<char>(0x80 | (point >> 12 & 63));
    }
    out += static_cast<char>(0x80 | (point >> 6 & 63));
  }
  out += static_cast<char>(0x80 | (point & 63));
}

bool is_space(uint32_t point) {
  if (point < 0x80) return point == ' ' || (point >= '\t' && point <= '\r') || point == 0;
  return point == 0x85 || point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
         point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_unspaced(uint32_t point) {
  return point >= 0x0E00 && in_ranges(kUnspaced, point) && !in_ranges(kSpaced, point);
}

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return is_ascii_space(c) || c == '\0'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (is_ascii_upper(c)) c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ascii_lower(a) == ascii_lower(b);
}

std::string one_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool gap = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    if (is_space(point.value)) {
      gap = true;
    } else if (point.value >= 0x20 && point.value != 0x7F && point.value != 0xFEFF) {
      if (gap && !out.empty()) out += ' ';
      gap = false;
      append_utf8(point.value, out);
    }
    i += point.bytes;
  }
  return out;
}

Line line_at(std::string_view text, size_t offset) {
  Line line;
  line.begin = offset;
  const size_t feed = text.find('\n', offset);
  line.next = feed == std::string_view::npos ? text.size() : feed + 1;
  line.end = feed == std::string_view::npos ? text.size() : feed;
  if (line.end > line.begin && text[line.end - 1] == '\r') --line.end;
  size_t i = line.begin;
  for (; i < line.end && (is_ascii_space(text[i]) || text[i] == '\0'); ++i) {
    line.indent = text[i] == '\t' ? (line.indent / 8 + 1) * 8 : line.indent + 1;
  }
  line.blank = i == line.end;
  return line;
}

size_t mark_bytes(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
}

}  // namespace rhapsode::text
