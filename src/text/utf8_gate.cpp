#include "text/utf8_gate.h"

namespace rhapsode::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

void Utf8Gate::feed(std::string_view bytes, std::string& out) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t run = i;
    while (missing_ == 0 && i < bytes.size() && static_cast<unsigned char>(bytes[i]) < 0x80) ++i;
    out.append(bytes.data() + run, i - run);
    if (i == bytes.size()) return;
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (missing_ > 0 && (byte < lowest_ || byte > highest_)) finish(out);
    if (missing_ == 0) {
      start(byte, out);
      continue;
    }
    bytes_[static_cast<size_t>(held_++)] = bytes[i];
    lowest_ = 0x80;
    highest_ = 0xBF;
    if (--missing_ == 0) {
      out.append(bytes_.data(), static_cast<size_t>(held_));
      held_ = 0;
    }
  }
}

void Utf8Gate::start(unsigned char byte, std::string& out) {
  if (byte < 0x80) {
    out += static_cast<char>(byte);
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    out += kReplacement;
    return;
  }
  missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  lowest_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;   // no overlong forms
  highest_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;  // no surrogates, nothing over U+10FFFF
  bytes_[0] = static_cast<char>(byte);
  held_ = 1;
}

void Utf8Gate::finish(std::string& out) {
  if (held_ > 0) out += kReplacement;
  *this = Utf8Gate();
}

std::string to_valid_utf8(std::string_view text) {
  Utf8Gate gate;
  std::string valid;
  valid.reserve(text.size());
  gate.feed(text, valid);
  gate.finish(valid);
  return valid;
}

bool is_valid_utf8(std::string_view text) {
  return to_valid_utf8(text) == text;
}

}  // namespace rhapsode::text
