// Pages of this project's documentation, as they were when the library was built: text that no model has been
// trained on, for calibration.
#pragma once

#include <span>
#include <string_view>

namespace rhapsode::eval {

struct BuiltInText {
  std::string_view name;
  std::string_view text;
};
std::span<const BuiltInText> built_in_texts();

}  // namespace rhapsode::eval
