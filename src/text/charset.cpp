#include "text/charset.h"

#include <iconv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/text_check.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

using namespace std::string_view_literals;

constexpr size_t kSampleBytes = 4096;

struct Mark {
  std::string_view bytes;
  const char* charset;
};
// UTF-32 first: its little-endian mark begins with that of UTF-16.
constexpr std::array<Mark, 4> kMarks = {{{"\xFF\xFE\0\0"sv, "UTF-32LE"},
                                         {"\0\0\xFE\xFF"sv, "UTF-32BE"},
                                         {"\xFF\xFE"sv, "UTF-16LE"},
                                         {"\xFE\xFF"sv, "UTF-16BE"}}};

const Mark* find_mark(std::string_view bytes) {
  for (const Mark& mark : kMarks) {
    if (bytes.starts_with(mark.bytes)) return &mark;
  }
  return nullptr;
}

bool is_control(unsigned char c) {
  return (c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != '\v' && c != '\b' &&
          c != 0x1B) ||
         c == 0x7F;
}

// "UTF-16LE", "UTF-16BE" or nullptr, from where the NULs of Latin letters, digits and blanks stand.
const char* guess_utf16(std::string_view bytes) {
  const std::string_view sample = bytes.substr(0, kSampleBytes & ~size_t{1});
  const size_t units = sample.size() / 2;
  if (units < 2) return nullptr;
  std::array<size_t, 2> nuls{};
  std::array<size_t, 2> controls{};  // units that are control characters, read with the NUL at this side
  for (size_t i = 0; i + 1 < sample.size(); i += 2) {
    for (size_t side = 0; side < 2; ++side) {
      if (sample[i + side] != '\0') continue;
      ++nuls[side];
      if (is_control(static_cast<unsigned char>(sample[i + 1 - side]))) ++controls[side];
    }
  }
  for (const size_t side : {size_t{0}, size_t{1}}) {
    if (nuls[side] * 5 >= units * 3 && nuls[1 - side] * 50 <= units && controls[side] * 50 <= units) {
      return side == 1 ? "UTF-16LE" : "UTF-16BE";
    }
  }
  return nullptr;
}

std::string normal_charset(std::string_view declared) {
  std::string name;
  for (const char c : declared.substr(0, 40)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!plain && c != '-' && c != '_' && c != '.' && c != ':') return {};
    name += (c >= 'a' && c <= 'z') ? static_cast<char>(c - 'a' + 'A') : c;
  }
  // As browsers read these labels; UTF-7 has been a way to smuggle markup.
  if (name == "ISO-8859-1" || name == "LATIN1" || name == "ASCII" || name == "US-ASCII")
    return "WINDOWS-1252";
  if (name == "UTF-8" || name == "UTF8" || name == "UTF-7" || name.starts_with("UTF-16")) return {};
  return name;
}

struct Converted {
  std::string text;
  size_t replaced = 0;
};

Result<Converted> convert(std::string_view bytes, const std::string& charset) {
  const iconv_t raw = ::iconv_open("UTF-8", charset.c_str());
  if (raw == reinterpret_cast<iconv_t>(-1)) {
    return make_error(ErrorKind::kUnsupported, "the charset {} is not known on this system: convert to UTF-8",
                      shown(charset, 40));
  }
  const std::unique_ptr<void, int (*)(iconv_t)> handle(raw, &::iconv_close);
  Converted out;
  std::array<char, 1 << 14> buffer;
  char* in = const_cast<char*>(bytes.data());  // iconv does not write to its input
  size_t left = bytes.size();
  const size_t unit = charset.starts_with("UTF-32") ? 4 : charset.starts_with("UTF-16") ? 2 : 1;
  while (true) {
    char* to = buffer.data();
    size_t room = buffer.size();
    const bool flush = left == 0;
    const size_t code = ::iconv(raw, flush ? nullptr : &in, flush ? nullptr : &left, &to, &room);
    out.text.append(buffer.data(), buffer.size() - room);
    if (code != static_cast<size_t>(-1)) {
      if (flush) break;
    } else if (errno != E2BIG) {  // no meaning, or cut off at the end
      out.text += "\xEF\xBF\xBD";
      ++out.replaced;
      const size_t skip = std::min(unit, left);
      in += skip;
      left -= skip;
    }
  }
  return out;
}

Result<DecodedText> decode_as(std::string_view bytes, const std::string& charset) {
  RH_TRY(Converted converted, convert(bytes, charset));
  DecodedText decoded{.text = std::move(converted.text), .changed = true, .warning = {}};
  std::replace(decoded.text.begin(), decoded.text.end(), '\0', ' ');
  if (converted.replaced > 0) {
    decoded.warning =
        fmt::format("{} places are not valid {} and became U+FFFD", converted.replaced, charset);
  }
  return decoded;
}

}  // namespace

bool looks_binary(std::string_view sample) {
  if (holds_no_text(sample) || find_mark(sample) != nullptr) return false;
  if (sample.find('\0') != std::string_view::npos) return guess_utf16(sample) == nullptr;
  const auto controls = static_cast<size_t>(std::count_if(
      sample.begin(), sample.end(), [](char c) { return is_control(static_cast<unsigned char>(c)); }));
  if (controls == 0) return false;
  // A sample may end inside a code point.
  size_t end = sample.size();
  while (end > 0 && sample.size() - end < 4 && (static_cast<unsigned char>(sample[end - 1]) & 0x80) != 0)
    --end;
  return controls * (is_utf8(sample.substr(0, end)) ? 3 : 50) > sample.size();
}

bool holds_no_text(std::string_view bytes) {
  for (const std::string_view mark : {"\xEF\xBB\xBF"sv, "\xFF\xFE"sv, "\xFE\xFF"sv}) {
    if (bytes.starts_with(mark)) {
      bytes.remove_prefix(mark.size());
      break;
    }
  }
  return bytes.find_first_not_of("\0 \t\r\n\f\v"sv) == std::string_view::npos;
}

Result<DecodedText> decode_text(std::string bytes, std::string_view declared) {
  if (const Mark* mark = find_mark(bytes)) {
    return decode_as(std::string_view(bytes).substr(mark->bytes.size()), mark->charset);
  }
  const std::string charset = normal_charset(declared);
  const bool seven_bits = charset.starts_with("ISO-2022") || charset.starts_with("HZ");
  const bool nuls = bytes.find('\0') != std::string::npos;
  if (is_utf8(bytes) && !seven_bits && !nuls)
    return DecodedText{.text = std::move(bytes), .changed = false, .warning = {}};
  if (const char* guess = nuls ? guess_utf16(bytes) : nullptr) return decode_as(bytes, guess);
  if (!charset.empty()) {
    auto decoded = decode_as(bytes, charset);
    if (decoded.ok()) return decoded;
  }
  RH_TRY(DecodedText decoded, decode_as(bytes, "WINDOWS-1252"));
  if (charset != "WINDOWS-1252") {
    decoded.warning = "not UTF-8 and no charset declared: read as windows-1252" +
                      (decoded.warning.empty() ? std::string() : "; " + decoded.warning);
  }
  return decoded;
}

std::string declared_charset(std::string_view bytes) {
  const std::string head = ascii_lower(bytes.substr(0, 1024));
  size_t at = std::string::npos;
  if (head.starts_with("<?xml")) {
    const size_t end = head.find("?>");
    at = head.find("encoding");
    if (end != std::string::npos && at != std::string::npos && at > end) at = std::string::npos;
    if (at != std::string::npos) at += 8;
  }
  for (size_t meta = head.find("<meta"); at == std::string::npos && meta != std::string::npos;
       meta = head.find("<meta", meta + 5)) {
    const size_t end = head.find('>', meta);
    const size_t found = head.find("charset", meta);
    if (found != std::string::npos && found < end) at = found + 7;
  }
  if (at == std::string::npos) return {};
  at = head.find_first_not_of(" \t\r\n=\"'", at);
  if (at == std::string::npos) return {};
  return head.substr(at, head.find_first_of(" \t\r\n\"';/>?", at) - at);
}

}  // namespace rhapsode::text
