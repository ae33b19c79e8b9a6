#include "text/file_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text_check.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

std::string joined_parts(std::string_view path, bool drop_parents) {
  std::string out;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (part.empty() || part == "." || (drop_parents && part == "..")) continue;
    if (!out.empty()) out += '/';
    out += part;
  }
  return out;
}

}  // namespace

std::string lower_file_name(std::string_view name) {
  return ascii_lower(name.substr(name.rfind('/') + 1));  // npos + 1 is 0
}

std::string file_ending(std::string_view name) {
  const std::string file = lower_file_name(name);
  const size_t dot = file.rfind('.');
  return dot == std::string::npos || dot == 0 ? std::string() : file.substr(dot + 1);
}

std::string shown_name(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    size_t length = 0;
    for (size_t tried = 1; length == 0 && tried <= std::min<size_t>(4, name.size()); ++tried) {
      if (is_utf8(name.substr(0, tried))) length = tried;
    }
    const auto byte = static_cast<unsigned char>(name[0]);
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
      length = 1;
    } else {
      out += name.substr(0, length);
    }
    name.remove_prefix(length);
  }
  return out;
}

std::string normal_path(std::string_view path) {
  return (path.starts_with('/') ? "/" : "") + joined_parts(path, false);
}

std::string normal_member(std::string_view member) {
  return joined_parts(member, true);
}

}  // namespace rhapsode::text
