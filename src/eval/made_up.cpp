#include "eval/made_up.h"

#include <fmt/format.h>

#include <array>

namespace rhapsode::eval {

namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

std::vector<std::string_view> paragraphs_of(std::string_view text, size_t most_bytes) {
  std::vector<std::string_view> paragraphs;
  text = text.substr(0, most_bytes);
  size_t open = std::string_view::npos;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // what the limit cut through is left out
    const bool blank = is_blank(text.substr(begin, end - begin));
    if (!blank && open == std::string_view::npos) open = begin;
    if (blank && open != std::string_view::npos) {
      const size_t last = text.find_last_not_of(" \t\r\n", begin - 1);
      paragraphs.push_back(text.substr(open, last + 1 - open));
      open = std::string_view::npos;
    }
    begin = end + 1;
  }
  return paragraphs;
}

void add_sections(const std::string& title, const std::vector<std::string_view>& paragraphs,
                  size_t section_bytes, std::vector<Section>& sections) {
  size_t bytes = section_bytes;  // so that the first paragraph opens a section
  int number = 0;
  for (const std::string_view paragraph : paragraphs) {
    if (bytes >= section_bytes) {
      sections.push_back({fmt::format("{}, part {}", title, ++number), {}});
      bytes = 0;
    }
    sections.back().paragraphs.push_back(paragraph);
    bytes += paragraph.size() + 2;
  }
}

std::string made_up_name(Random& random) {
  static constexpr std::array<const char*, 16> kOpen{"Vel", "Tar", "Osk", "Brin", "Mur", "Quel",
                                                     "Zan", "Hev", "Dro", "Pel",  "Ith", "Gal",
                                                     "Sor", "Ulm", "Nar", "Cas"};
  static constexpr std::array<const char*, 12> kMiddle{"ma",  "ri", "do", "ve", "lu", "ne",
                                                       "sha", "ko", "ti", "ga", "bo", "ry"};
  static constexpr std::array<const char*, 10> kClose{"th",  "ra",  "nd", "ville", "mont",
                                                      "dor", "wyn", "sk", "rel",   "ford"};
  std::string name = kOpen[random.below(kOpen.size())];
  for (int i = 0; i < 2; ++i) name += kMiddle[random.below(kMiddle.size())];
  return name + kClose[random.below(kClose.size())];
}

std::string made_up_value(Random& random) {
  return fmt::format("{}", 100000 + random.below(900000));
}

}  // namespace rhapsode::eval
