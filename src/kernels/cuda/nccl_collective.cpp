#include <mutex>
#include <set>
#include <shared_mutex>
#include <vector>

#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_collective.h"
#include "kernels/cuda/device_scope.h"
#include "kernels/cuda/nccl_library.h"
#include "kernels/lanes.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr size_t kWarmUpBytes = 256;

class NcclGroup {
 public:
  NcclGroup(const NcclLibrary& library, std::span<const int> gpus)
      : library_(library), gpus_(gpus.begin(), gpus.end()), meeting_(static_cast<int>(gpus.size())) {}
  ~NcclGroup() {
    for (NcclCommunicator* communicator : communicators_) library_.destroy(communicator);
  }

  Status start();
  Rendezvous& meeting() { return meeting_; }
  Status all_gather(int member, std::byte* all, size_t bytes, cudaStream_t stream);
  // Ends what NCCL has on the GPUs, for good.
  void lose(const Error& error);

 private:
  Status warm_up(int member);

  const NcclLibrary& library_;
  std::vector<int> gpus_;
  Rendezvous meeting_;
  std::shared_mutex mutex_;
  std::vector<NcclCommunicator*> communicators_;  // guarded by mutex_; empty when lost
};

Status NcclGroup::start() {
  communicators_.resize(gpus_.size());
  const NcclResult made =
      library_.init_all(communicators_.data(), static_cast<int>(gpus_.size()), gpus_.data());
  if (made != kNcclSuccess) communicators_.clear();
  RH_TRY_STATUS(library_.check(made, "joining the GPUs"));
  // The first exchange connects them and waits for all on the host; later ones only enqueue.
  RH_TRY(const std::unique_ptr<Lanes> lanes, Lanes::start(meeting_.members()));
  return lanes->run([&](int member) { return warm_up(member); });
}

Status NcclGroup::warm_up(int member) {
  const DeviceScope scope(gpus_[static_cast<size_t>(member)]);
  DeviceBuffer all;
  RH_TRY_STATUS(all.allocate(kWarmUpBytes * gpus_.size(), "a first exchange"));
  RH_TRY_STATUS(all_gather(member, all.as<std::byte>(), kWarmUpBytes, nullptr));
  return check(cudaStreamSynchronize(nullptr), "a first exchange");
}

Status NcclGroup::all_gather(int member, std::byte* all, size_t bytes, cudaStream_t stream) {
  const std::shared_lock lock(mutex_);
  if (communicators_.empty()) return make_error(ErrorKind::kInternal, "the GPUs are joined no more");
  const auto own = static_cast<size_t>(member);
  const DeviceScope scope(gpus_[own]);
  return library_.check(
      library_.all_gather(all + own * bytes, all, bytes, kNcclBytes, communicators_[own], stream),
      "exchanging between GPUs");
}

void NcclGroup::lose(const Error& error) {
  meeting_.lose(
      make_error(error.kind, "{}; the GPUs are joined no more: start the program again", error.message));
  const std::unique_lock lock(mutex_);
  for (NcclCommunicator* communicator : communicators_) library_.abort(communicator);
  communicators_.clear();
}

class NcclCollective final : public Collective {
 public:
  NcclCollective(std::shared_ptr<NcclGroup> group, int member) : group_(std::move(group)), member_(member) {}

  int members() const override { return group_->meeting().members(); }
  int member() const override { return member_; }
  Status agree(const Status& mine) override { return group_->meeting().agree(member_, mine); }
  void fail(const Error& error) override { group_->lose(error); }
  Status all_gather(std::byte* all, size_t bytes, void* stream) override {
    return group_->all_gather(member_, all, bytes, static_cast<cudaStream_t>(stream));
  }

 private:
  std::shared_ptr<NcclGroup> group_;
  int member_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Collective>>> nccl_collective(std::span<const int> gpus) {
  RH_TRY(const NcclLibrary* const library, nccl_library());
  const auto group = std::make_shared<NcclGroup>(*library, gpus);
  RH_TRY_STATUS(group->start());
  std::vector<std::unique_ptr<Collective>> ends;
  for (size_t i = 0; i < gpus.size(); ++i) {
    ends.push_back(std::make_unique<NcclCollective>(group, static_cast<int>(i)));
  }
  return ends;
}

Result<std::vector<std::unique_ptr<Collective>>> device_collective(std::span<const int> gpus) {
  const bool differ = std::set<int>(gpus.begin(), gpus.end()).size() == gpus.size();
  return differ ? nccl_collective(gpus) : copying_collective(gpus);
}

}  // namespace rhapsode::kernels::cuda
