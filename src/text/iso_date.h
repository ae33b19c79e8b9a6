// Dates in metadata. Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace rhapsode::text {

// The text itself where it is an ISO 8601 year, month, day or time ("2024", "2024-05-01T10:00:00Z"), in the
// form "D:20240501100000Z" of PDF also, as a time of ISO 8601; anything else gives an empty string.
std::string iso_date(std::string_view text);

}  // namespace rhapsode::text
