// What the token behind a row of a pass is chosen from: the row's candidates where they may decide, or the
// whole row. Views of the back end's memory, valid until its next pass.
#pragma once

#include <optional>
#include <span>

#include "text/candidates.h"

namespace rhapsode::engine {

struct OutputRow {
  std::span<const float> whole;  // [vocabulary]; empty: not here, fetched when the candidates do not decide
  std::optional<text::Candidates> candidates;
  int index = -1;  // among the output rows of the last pass

  bool decided_by_candidates() const { return candidates && whole.empty(); }
};

}  // namespace rhapsode::engine
