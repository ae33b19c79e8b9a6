#include "kernels/cuda/trip_sums.h"

#include <algorithm>

#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/page_gather.h"
#include "kernels/page_sum.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr size_t kSummedOneIn = 16;

}  // namespace

void TripSums::choose(std::span<const PageMemory::CopyIn> copies) {
  chosen_.clear();
  size_t i = next_;
  for (; i < copies.size(); i += kSummedOneIn) {
    if (in_units(copies[i].to, copies[i].from.data(), copies[i].from.size())) chosen_.push_back(copies[i]);
  }
  next_ = (i - copies.size()) % kSummedOneIn;
}

Status TripSums::start(std::span<const PageMemory::CopyIn> copies, cudaStream_t stream) {
  choose(copies);
  const size_t bytes = chosen_.size() * sizeof(uint64_t);
  RH_TRY_STATUS(arrived_.reserve(bytes, "sums of pages"));
  RH_TRY_STATUS(sums_.reserve(bytes, "sums of pages"));
  if (chosen_.empty()) return {};
  RH_TRY_STATUS(check(cudaMemsetAsync(sums_.as<void>(), 0, bytes, stream), "clearing sums"));
  for (size_t c = 0; c < chosen_.size(); ++c) {
    const PageMemory::CopyIn& one = chosen_[c];
    RH_TRY_STATUS(
        check(sum_page(one.to, one.from.size(), sums_.as<uint64_t>() + c, stream), "summing a page"));
  }
  return check(cudaMemcpyAsync(arrived_.data(), sums_.as<void>(), bytes, cudaMemcpyDeviceToHost, stream),
               "copying sums");
}

void TripSums::sum_host() {
  sent_.clear();
  for (const PageMemory::CopyIn& one : chosen_) sent_.push_back(page_sum(one.from));
}

Status TripSums::compare() const {
  if (std::equal(sent_.begin(), sent_.end(), reinterpret_cast<const uint64_t*>(arrived_.data()))) return {};
  return make_error(ErrorKind::kInternal,
                    "a page has other bytes on the GPU than on the host it was copied from: their memory, "
                    "the bus between them, or the order of copies is at fault");
}

}  // namespace rhapsode::kernels::cuda
