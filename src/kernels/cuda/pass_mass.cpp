#include "kernels/cuda/pass_mass.h"

#include <algorithm>

#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

Status PassMass::begin(const PlanPacker& packer, const DeviceBuffer& plan, int query_parts,
                       cudaStream_t stream) {
  kept_ = true;
  target_ = {};
  target_.sequences = plan.at<const DeviceSequence>(packer.offsets().sequences);
  target_.shared = plan.at<const DeviceList>(packer.offsets().lists);
  target_.runs = plan.at<const DevicePageRun>(packer.offsets().runs);
  target_.run_count = packer.sizes().runs;
  target_.references = packer.reference_count();
  target_.query_parts = query_parts;
  const size_t one = static_cast<size_t>(target_.references) * kPageTokens * sizeof(double);
  if (one == 0) return {};
  const size_t bytes = one * static_cast<size_t>(mass_parts(shape_, query_parts));
  RH_TRY_STATUS(sums_.reserve(bytes, "attention mass"));
  RH_TRY_STATUS(packed_.reserve(one, "attention mass"));
  target_.sums = sums_.as<double>();
  return check(cudaMemsetAsync(sums_.as<void>(), 0, bytes, stream), "clearing attention mass");
}

Status PassMass::finish(cudaStream_t stream) {
  finish_mass(shape_, target_, stream);
  RH_TRY_STATUS(check(cudaGetLastError(), "summing where attention went"));
  const size_t bytes = static_cast<size_t>(target_.references) * kPageTokens * sizeof(double);
  if (bytes == 0) return {};
  return check(cudaMemcpyAsync(packed_.data(), sums_.as<void>(), bytes, cudaMemcpyDeviceToHost, stream),
               "copying attention mass");
}

void PassMass::take(const BatchPlan& plan, const PlanPacker& packer) {
  const auto* const packed = reinterpret_cast<const double*>(packed_.data());
  per_token_.resize(plan.sequences.size());
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    std::vector<double>& mass = per_token_[s];
    mass.assign(plan.sequences[s].references.size() * kPageTokens, 0.0);
    const DeviceList list = packer.shared_list(static_cast<int>(s));
    for (int32_t r = list.begin; r < list.begin + list.count; ++r) {
      std::copy_n(packed + int64_t{r} * kPageTokens, kPageTokens,
                  mass.begin() + int64_t{packer.origin(r)} * kPageTokens);
    }
  }
}

Result<std::span<const double>> PassMass::of(int sequence) const {
  if (kept_) return std::span<const double>(per_token_[static_cast<size_t>(sequence)]);
  return make_error(ErrorKind::kInternal, "the last pass was not asked for attention mass");
}

}  // namespace rhapsode::kernels::cuda
