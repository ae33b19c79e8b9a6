// The name a user most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace rhapsode::cli {

// The candidate with the fewest edits to `given`, empty when none is close (more than a third of its letters
// differ). O(length² · candidates).
std::string nearest(std::string_view given, std::span<const std::string> candidates);

// "; did you mean 'top_p'?" or "", to end an error with.
std::string did_you_mean(std::string_view given, std::span<const std::string> candidates);

}  // namespace rhapsode::cli
