#include "recall/blender.h"

#include <algorithm>
#include <cmath>

namespace rhapsode::recall {

namespace {

Status check_sequential(const BlendContext& context) {
  for (size_t p = 1; p < context.passages.size(); ++p) {
    const BlendPassage& before = context.passages[p - 1];
    if (context.passages[p].shift < before.shift + before.size()) {
      return make_error(
          ErrorKind::kInvalidArgument,
          "passages that share positions cannot be blended: read them in sequence, or reuse them "
          "as they are");
    }
  }
  return {};
}

}  // namespace

Result<Blend> blend(const BlendContext& context, TokenSelector& selector, double share) {
  if (!(share >= 0 && share <= 1)) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a blend of {} of the tokens has no meaning: give a share from 0 to 1", share);
  }
  RH_TRY_STATUS(check_sequential(context));
  Blend result;
  result.left_out.resize(context.passages.size());
  const auto wanted = static_cast<size_t>(std::llround(share * context.tokens()));
  if (wanted == 0) return result;
  RH_TRY(const Ranking ranking, selector.rank(context));
  result.selection = selector.cost();
  for (size_t i = 0; i < std::min(wanted, ranking.size()); ++i) {
    const auto [passage, token] = ranking[i];
    result.left_out[passage].push_back(token);
    const BlendPassage& read = context.passages[passage];
    result.tokens.push_back({read.tokens->tokens[token], read.shift + token});
  }
  for (std::vector<int32_t>& tokens : result.left_out) std::sort(tokens.begin(), tokens.end());
  std::sort(result.tokens.begin(), result.tokens.end(),
            [](const BlendedToken& a, const BlendedToken& b) { return a.position < b.position; });
  return result;
}

}  // namespace rhapsode::recall
