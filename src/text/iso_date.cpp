#include "text/iso_date.h"

#include <algorithm>

namespace rhapsode::text {
namespace {

constexpr size_t kMostBytes = 35;

// '0' in `shape` stands for a digit, anything else for itself.
bool has_shape(std::string_view text, std::string_view shape) {
  return text.size() >= shape.size() &&
         std::equal(shape.begin(), shape.end(), text.begin(),
                    [](char want, char c) { return want == '0' ? c >= '0' && c <= '9' : c == want; });
}

}  // namespace

std::string iso_date(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  text = text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  if (text.size() > kMostBytes) return {};
  if (text.starts_with("D:") && has_shape(text.substr(2), "00000000")) {
    const std::string digits(text.substr(2));
    std::string out = digits.substr(0, 4) + '-' + digits.substr(4, 2) + '-' + digits.substr(6, 2);
    if (has_shape(digits, "00000000000000")) {
      out += 'T' + digits.substr(8, 2) + ':' + digits.substr(10, 2) + ':' + digits.substr(12, 2);
      if (digits.substr(14) == "Z") out += 'Z';
    }
    return out;
  }
  if (has_shape(text, "0000-00-00")) {
    const bool clean = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7F; });
    return clean && (text.size() == 10 || text[10] == 'T' || text[10] == ' ') ? std::string(text) : std::string();
  }
  const bool coarse = (text.size() == 4 && has_shape(text, "0000")) || (text.size() == 7 && has_shape(text, "0000-00"));
  return coarse ? std::string(text) : std::string();
}

}  // namespace rhapsode::text
