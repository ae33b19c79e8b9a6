// The blender: turns a selector's ranking into what one request evaluates again.
//
// Of N tokens of passages, round(share x N) are chosen; those of exact passages never, as nothing would
// change. Each is left out of its shared page (a mask of this request only) and evaluated in its place,
// ascending, seeing everything before it: shared slots, recomputed ones, and itself. At share 1 the result is
// full attention over the same page cuts (tested byte for byte). Shared pages are never written.
// In several *rounds* the share is taken in equal steps: what a step chose is evaluated at once, into private
// pages that the request takes over, and the selector looks again, its question attending to those in place
// of the stale ones. Each look is charged; nothing is evaluated twice. A token of an early round has not seen
// fresh keys of a later one in front of it, so rounds at share 1 would not be full attention: then there is
// one. Threads: as the selector. Cost: the selector's.
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

// Recomputed tokens whose keys and values exist: in private pages that say how many slots are filled and at
// which positions.
struct FreshTokens {
  std::vector<store::PagePin> pages;
  int count = 0;
};

struct Blend {
  std::vector<std::vector<int32_t>> left_out;  // of each passage: its recomputed tokens, ascending
  std::vector<BlendedToken> tokens;            // those to be evaluated still, by position
  FreshTokens fresh;                           // the others
  SelectionCost selection;

  int recomputed() const { return static_cast<int>(tokens.size()) + fresh.count; }
};

// kInvalidArgument for a share or rounds out of range, or for passages that share positions: what is
// recomputed at parallel positions fits neither (measured: worse than no blend).
Result<Blend> blend(PassRunner& runner, const BlendContext& context, TokenSelector& selector,
                    const BlendOptions& options);

}  // namespace rhapsode::recall
