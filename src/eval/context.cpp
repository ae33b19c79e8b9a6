#include "eval/context.h"

#include <algorithm>
#include <array>

namespace rhapsode::eval {
namespace {

constexpr std::array<const char*, 7> kNames{"closed", "gold", "full", "reuse", "routed", "bm25", "latent"};

}  // namespace

const char* to_string(Context context) {
  return kNames[static_cast<size_t>(context)];
}

std::optional<Context> context_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Context>(found - kNames.begin());
}

Result<std::vector<Context>> parse_contexts(std::string_view names) {
  std::vector<Context> contexts;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    const std::optional<Context> context = context_named(name);
    if (!context) {
      return make_error(ErrorKind::kInvalidArgument, "'{}' is no context; there are {}", name,
                        fmt::join(kNames, ", "));
    }
    contexts.push_back(*context);
    begin = end + 1;
  }
  std::sort(contexts.begin(), contexts.end());
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  return contexts;
}

}  // namespace rhapsode::eval
