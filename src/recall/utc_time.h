// Times as the memory keeps them: ISO 8601 in UTC, "2024-05-01T12:00:00Z". Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode::recall {

std::string utc_now();
// Completes a date or time of a user ("2024", "2024-05", "2024-05-01", "2024-05-01 12:00", "...Z") to that
// form: a date alone means its last second, so that "as of 2024-05-01" holds the whole day. kInvalidArgument
// for what is no time.
Result<std::string> utc_end_of(std::string_view text);

}  // namespace rhapsode::recall
