// The blender: turns a selector's ranking into what one request evaluates again.
//
// Of N tokens of passages, round(share x N) are chosen; those of exact passages never, as nothing would
// change. Each is left out of its shared page (a mask of this request only) and evaluated in its place,
// ascending, seeing everything before it: shared slots, recomputed ones, and itself. At share 1 the result is
// full attention over the same page cuts (tested byte for byte). Shared pages are never written.
// Threads: as the selector. Cost: the selector's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "recall/token_selector.h"

namespace rhapsode::recall {

// A token of a passage whose keys are made again where it stands in the prompt.
struct BlendedToken {
  int32_t token = 0;
  int32_t position = 0;
};

struct Blend {
  std::vector<std::vector<int32_t>> left_out;  // of each passage: its recomputed tokens, ascending
  std::vector<BlendedToken> tokens;            // the same, by position
  SelectionCost selection;
};

// kInvalidArgument for a share outside of [0, 1], or for passages that share positions: what is recomputed at
// parallel positions fits neither (measured: worse than no blend).
Result<Blend> blend(const BlendContext& context, TokenSelector& selector, double share);

}  // namespace rhapsode::recall
