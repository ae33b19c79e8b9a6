#include "text/mime.h"

#include <algorithm>

#include "text/charset.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

int hex_digit(char c) {
  if (is_ascii_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int base64_digit(char c) {
  if (is_ascii_upper(c)) return c - 'A';
  if (is_ascii_lower(c)) return c - 'a' + 26;
  if (is_ascii_digit(c)) return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::string decode_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const int digit = base64_digit(c);
    if (digit < 0) continue;  // line ends, and what broken senders put in
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (++count % 4 != 1) out += static_cast<char>(bits >> (count % 4 == 2 ? 4 : count % 4 == 3 ? 2 : 0));
  }
  return out;
}

// `words`: the form of header fields, in which '_' is a blank.
std::string decode_quoted(std::string_view text, bool words) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_' && words) {
      out += ' ';
    } else if (c != '=') {
      out += c;
    } else if (i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      // A line end behind '=' joins the lines.
      const size_t feed = text.find('\n', i);
      const bool soft = feed != std::string_view::npos && trim(text.substr(i + 1, feed - i - 1)).empty();
      if (soft) {
        i = feed;
      } else if (i + 1 < text.size()) {
        out += c;
      }
    }
  }
  return out;
}

// One "=?charset?B?...?=" at `at`; false if there is none.
bool decode_word(std::string_view field, size_t& at, std::string& out) {
  constexpr size_t kLongest = 1000;
  const std::string_view word = field.substr(at, kLongest);
  if (!word.starts_with("=?")) return false;
  const size_t mark = word.find('?', 2);
  if (mark == std::string_view::npos || mark + 3 > word.size() || word[mark + 2] != '?') return false;
  const size_t end = word.find("?=", mark + 3);
  if (end == std::string_view::npos) return false;
  const std::string_view body = word.substr(mark + 3, end - mark - 3);
  const bool base64 = word[mark + 1] == 'B' || word[mark + 1] == 'b';
  auto decoded =
      decode_text(base64 ? decode_base64(body) : decode_quoted(body, true), word.substr(2, mark - 2));
  if (!decoded.ok()) return false;
  out += decoded->text;
  at += end + 2;
  return true;
}

}  // namespace

std::string_view MailHeaders::raw(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

std::string MailHeaders::readable(std::string_view name) const {
  const std::string_view field = raw(name);
  std::string out;
  bool after_word = false;
  for (size_t at = 0; at < field.size();) {
    // White space between two encoded words is none of the text.
    size_t next = at;
    while (next < field.size() && is_ascii_space(field[next])) ++next;
    if (after_word && next > at && next < field.size() && decode_word(field, next, out)) {
      at = next;
      continue;
    }
    after_word = decode_word(field, at, out);
    if (!after_word) out += field[at++];
  }
  auto decoded = decode_text(std::move(out), "");
  return decoded.ok() ? one_line(decoded->text) : std::string();
}

MailHeaders read_mail_headers(std::string_view& bytes) {
  MailHeaders headers;
  constexpr size_t kMostFieldBytes = 4 << 10;
  while (!bytes.empty()) {
    const Line line = line_at(bytes, 0);
    const std::string_view content = view(bytes, line);
    const size_t colon = content.find(':');
    const bool continues = line.indent > 0 && !line.blank && !headers.fields.empty();
    if (!continues && (line.blank || colon == std::string_view::npos)) {
      if (line.blank) bytes.remove_prefix(line.next);
      break;
    }
    bytes.remove_prefix(line.next);
    if (continues) {
      std::string& value = headers.fields.back().second;
      if (value.size() < kMostFieldBytes) value.append(" ").append(trim(content));
    } else {
      headers.fields.emplace_back(ascii_lower(trim(content.substr(0, colon))),
                                  trim(content.substr(colon + 1)));
    }
  }
  return headers;
}

std::string field_value(std::string_view field) {
  return ascii_lower(trim(field.substr(0, field.find(';'))));
}

std::string field_parameter(std::string_view field, std::string_view name) {
  for (size_t at = field.find(';'); at != std::string_view::npos;) {
    const std::string_view rest = field.substr(at + 1);
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return {};
    const bool wanted = equals_ignoring_case(trim(rest.substr(0, equals)), name);
    std::string_view value = rest.substr(equals + 1);
    while (!value.empty() && is_ascii_space(value[0])) value.remove_prefix(1);
    if (value.starts_with('"')) {
      const size_t end = value.find('"', 1);
      if (wanted) return std::string(value.substr(1, end == std::string_view::npos ? end : end - 1));
      if (end == std::string_view::npos) return {};
      value = value.substr(end + 1);
    } else if (wanted) {
      return std::string(trim(value.substr(0, value.find(';'))));
    }
    const size_t next = value.find(';');
    at = next == std::string_view::npos ? next : static_cast<size_t>(value.data() - field.data()) + next;
  }
  return {};
}

std::vector<std::string_view> split_parts(std::string_view body, std::string_view boundary) {
  constexpr size_t kMostParts = 1000;
  std::vector<std::string_view> parts;
  size_t begin = std::string_view::npos;
  for (size_t at = 0; at < body.size() && parts.size() < kMostParts;) {
    const Line line = line_at(body, at);
    const std::string_view content = view(body, line);
    at = line.next;
    if (!content.starts_with("--") || content.substr(2, boundary.size()) != boundary) continue;
    const std::string_view rest = trim(content.substr(2 + boundary.size()));
    if (!rest.empty() && rest != "--") continue;  // a longer boundary of an inner part
    if (begin != std::string_view::npos) parts.push_back(body.substr(begin, line.begin - begin));
    begin = rest.empty() ? line.next : std::string_view::npos;
    if (!rest.empty()) return parts;
  }
  if (begin != std::string_view::npos && begin < body.size()) parts.push_back(body.substr(begin));
  return parts;
}

std::string decode_transfer(std::string_view body, std::string_view encoding) {
  const std::string kind = ascii_lower(trim(encoding));
  if (kind == "base64") return decode_base64(body);
  if (kind == "quoted-printable") return decode_quoted(body, false);
  return std::string(body);
}

}  // namespace rhapsode::text
