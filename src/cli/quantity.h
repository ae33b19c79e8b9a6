// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace rhapsode::cli {

std::string show_bytes(uint64_t bytes);     // "491.4 MB": decimal units, as file sizes are given
std::string show_count(uint64_t count);     // "494 M", "1.8 B": as parameters are given
std::string show_whole(uint64_t count);     // "12,345"
std::string show_rate(double per_second);   // tokens a second: "66.2", "1,240" below and above a hundred
std::string show_duration(double seconds);  // "48 s", "2:05 min", "1:10 h"

}  // namespace rhapsode::cli
