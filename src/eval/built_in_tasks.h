// The files of eval/tasks, as they were when the library was built.
#pragma once

#include <span>
#include <string_view>

namespace rhapsode::eval {

struct BuiltInTask {
  std::string_view name;
  std::string_view toml;
};
std::span<const BuiltInTask> built_in_tasks();

}  // namespace rhapsode::eval
