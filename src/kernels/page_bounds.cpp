#include "kernels/page_bounds.h"

#include <algorithm>

namespace rhapsode::kernels {

const char* to_string(BoundKind kind) {
  switch (kind) {
    case BoundKind::kBox:
      return "box";
    case BoundKind::kBall:
      return "ball";
    case BoundKind::kMean:
      return "mean";
  }
  return "unknown";
}

std::vector<bool> always_read(std::span<const PageReference> references, std::span<const uint64_t> visible,
                              std::span<const RowWrite> writes) {
  std::vector<bool> always(references.size(), false);
  const auto written = [&](const Page* page) {
    return std::any_of(writes.begin(), writes.end(), [&](const RowWrite& w) { return w.page == page; });
  };
  bool first = true;
  for (size_t i = 0; i < references.size(); ++i) {
    if (visible[i] == 0) continue;
    always[i] = first || references[i].sink || written(references[i].page);
    first = false;
  }
  int recent = kRecentPages;
  for (size_t i = references.size(); i-- > 0 && recent > 0;) {
    if (visible[i] == 0) continue;
    always[i] = true;
    --recent;
  }
  return always;
}

}  // namespace rhapsode::kernels
