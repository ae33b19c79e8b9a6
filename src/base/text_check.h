// Checks on text that comes from files and users, and a form of it that is safe to show.
#pragma once

#include <string>
#include <string_view>

namespace rhapsode {

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. O(bytes).
bool is_utf8(std::string_view text);

// At most `limit` bytes of `text` for an error message: bytes outside printable ASCII become \xNN.
std::string shown(std::string_view text, size_t limit = 80);

}  // namespace rhapsode
