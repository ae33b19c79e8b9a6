// Which charset bytes are in, and their conversion to UTF-8.
//
// The order of evidence: a byte order mark, well-formed UTF-8, what the file declares (HTML meta, XML
// declaration), the pattern of UTF-16 without a mark, else windows-1252 with a warning. Threads: any. Cost:
// O(bytes); a conversion holds input and output at once.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode::text {

// A sample from the start of a file (some hundred bytes to the whole) that no text begins with: NUL bytes
// outside UTF-16 and UTF-32, or many control characters. Only NULs and white space is not binary: see below.
bool looks_binary(std::string_view sample);

// Nothing but white space, NULs and a byte order mark.
bool holds_no_text(std::string_view bytes);

struct DecodedText {
  std::string text;      // UTF-8; a mark of UTF-8 stays, as does everything that was UTF-8
  bool changed = false;  // text is not the bytes
  std::string warning;   // one sentence, or empty
};

// `declared` may be empty or any bytes from a hostile file. Bytes without a meaning become U+FFFD and are
// counted in the warning. kUnsupported: the system cannot convert the charset.
Result<DecodedText> decode_text(std::string bytes, std::string_view declared);

// The charset that an XML declaration or an HTML meta element in the first KiB names; empty: none.
std::string declared_charset(std::string_view bytes);

}  // namespace rhapsode::text
