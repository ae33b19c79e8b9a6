// Candidates: the largest logits of one row, from which the next token can mostly be chosen as from all of
// it.
//
// They are made where the row lies (kernels/top_logits.h), so that it need not be brought to the host. From
// them Sampler::sample() gives exactly the token of the whole row and leaves its state as that would, or
// nothing, and then nothing has changed: the whole row must be asked. By setting, they decide:
//
// - greedy: always. - top_k, up to the number of candidates: always; top_p and min_p choose among those k.
// - top_p: where the candidates' share of the row reaches it. `exp_sum` is trusted to kMassError of itself; a
//   cut nearer to a token's edge than that is left to the whole row.
// - min_p: where a candidate lies below its cut. With several settings one that cuts is enough.
// - Nothing that cuts (draws from the whole distribution), or only a larger top_k: never, see
//   Sampler::takes_candidates().
// - A repetition penalty above 1: as above. What is penalised only falls, so the candidates that stand before
//   the last one's place, penalised themselves or not, are the first of the row; the mass of a penalised
//   token that is no candidate lies between none and the last candidate's. Below 1: never, since any token
//   may then rise.
// - A grammar: the first draw as above; if it is refused, from the candidates that are allowed, where these
//   rules hold with the share of the rest unknown. Greedy: where a candidate is allowed.
//
// Where a row has no more possible tokens than candidates, all of these but the last digit of top_p are
// certain. Broken rows (NaN, plus infinity, nothing possible) are never decided: the whole row names the
// error.
#pragma once

#include <cstdint>
#include <span>

namespace rhapsode::text {

inline constexpr double kMassError = 0x1p-32;

struct Candidates {
  std::span<const int32_t> tokens;  // larger logit first, on ties the lower id; none is impossible
  std::span<const float> logits;    // as the model gave them
  double exp_sum = 0;               // over the row, of exp(logit - the largest logit)
  bool all = false;                 // they are all of the row's possible tokens
  bool broken = false;
};

}  // namespace rhapsode::text
