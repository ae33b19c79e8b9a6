// One dimension of a vector turned by a row of a table of angles.
#pragma once

namespace rhapsode::kernels::cuda {

struct Turning {
  int pairs;
  bool adjacent;
};

// cosines: [pairs], then as many sines; x[i] is a float.
template <typename Vector>
__device__ inline float turned_dimension(const Vector& x, int i, const float* cosines,
                                         const Turning& turning) {
  if (i >= 2 * turning.pairs) return x[i];
  const bool adjacent = turning.adjacent;
  const int pair = adjacent ? i / 2 : (i < turning.pairs ? i : i - turning.pairs);
  const float a = x[adjacent ? 2 * pair : pair];
  const float b = x[adjacent ? 2 * pair + 1 : pair + turning.pairs];
  const bool first = adjacent ? i % 2 == 0 : i < turning.pairs;
  const float cosine = cosines[pair];
  const float sine = cosines[turning.pairs + pair];
  return first ? a * cosine - b * sine : a * sine + b * cosine;
}

}  // namespace rhapsode::kernels::cuda
