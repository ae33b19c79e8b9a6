#include "text/section_stack.h"

#include "text/text_scan.h"

namespace rhapsode::text {

std::string shortened(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  constexpr std::string_view kEllipsis = "…";
  const size_t room = most_bytes > kEllipsis.size() ? most_bytes - kEllipsis.size() : 0;
  std::string out(text.substr(0, character_floor(text, room)));
  // A whole word reads better, if one ends near.
  const size_t space = out.rfind(' ');
  if (space != std::string::npos && space > out.size() * 3 / 4) out.resize(space);
  while (out.ends_with(' ') || out.ends_with(',')) out.pop_back();
  if (!out.ends_with(kEllipsis)) out += kEllipsis;
  return out;
}

void SectionStack::enter(int level, std::string_view title) {
  leave(level);
  if (open_.size() == kMostDepth) open_.pop_back();
  open_.push_back({level, shortened(one_line(title.substr(0, 4 * kMostTitleBytes)), kMostTitleBytes)});
}

void SectionStack::leave(int level) {
  while (!open_.empty() && open_.back().level >= level) open_.pop_back();
}

std::string SectionStack::path() const {
  std::string out;
  for (const Open& open : open_) {
    if (open.title.empty()) continue;
    if (!out.empty()) out += " > ";
    out += open.title;
  }
  return out;
}

}  // namespace rhapsode::text
