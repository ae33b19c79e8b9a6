// What the reference implementations share: page elements and rotated heads in double precision.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/page.h"
#include "kernels/rope.h"

namespace rhapsode::kernels::reference {

double load_element(KvType type, const std::byte* data, size_t index, float scale);

// One head of `d` values, its leading dimensions rotated by the angles of `position`.
std::vector<double> rotate(const RopeSpec& spec, const std::vector<double>& frequencies, const float* head,
                           int d, int64_t position);

}  // namespace rhapsode::kernels::reference
