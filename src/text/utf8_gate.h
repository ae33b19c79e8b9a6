// Utf8Gate: passes bytes on as valid UTF-8, whole characters only.
//
// A character that is not complete yet waits inside (3 bytes at most). Bytes that can be part of no character
// become one U+FFFD for each maximal broken sequence, as browsers and Python do. Output does not depend on
// how the input was cut. Ownership: a value. Threads: one at a time. Errors: none. Cost: one step a byte.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace rhapsode::text {

class Utf8Gate {
 public:
  // Appends to `out` what is complete now.
  void feed(std::string_view bytes, std::string& out);

  // The input is over: an incomplete character becomes U+FFFD. The gate is as new afterwards.
  void finish(std::string& out);

 private:
  void start(unsigned char byte, std::string& out);

  std::array<char, 4> bytes_{};
  int held_ = 0;
  int missing_ = 0;
  unsigned char lowest_ = 0x80;  // bounds of the next byte: narrower after E0, ED, F0 and F4
  unsigned char highest_ = 0xBF;
};

// The whole text through a gate.
std::string to_valid_utf8(std::string_view text);

bool is_valid_utf8(std::string_view text);

}  // namespace rhapsode::text
