#include <vector>

#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_collective.h"
#include "kernels/cuda/device_scope.h"

namespace rhapsode::kernels::cuda {

namespace {

// What one member tells the others before a meeting.
struct Part {
  const std::byte* all = nullptr;
  cudaEvent_t written = nullptr;  // its own part is there
  cudaEvent_t read = nullptr;     // it has the others' parts
};

struct CopyGroup {
  explicit CopyGroup(std::span<const int> members)
      : gpus(members.begin(), members.end()),
        meeting(static_cast<int>(members.size())),
        parts(members.size()) {}
  ~CopyGroup() {
    for (const Part& part : parts) {
      if (part.written) cudaEventDestroy(part.written);
      if (part.read) cudaEventDestroy(part.read);
    }
  }

  Status start() {
    for (size_t i = 0; i < parts.size(); ++i) {
      const DeviceScope scope(gpus[i]);
      for (cudaEvent_t* event : {&parts[i].written, &parts[i].read}) {
        RH_TRY_STATUS(check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event"));
      }
    }
    return {};
  }

  std::vector<int> gpus;
  Rendezvous meeting;
  std::vector<Part> parts;
};

class CopyingCollective final : public Collective {
 public:
  CopyingCollective(std::shared_ptr<CopyGroup> group, int member)
      : group_(std::move(group)), member_(member) {}

  int members() const override { return group_->meeting.members(); }
  int member() const override { return member_; }
  Status agree(const Status& mine) override { return group_->meeting.agree(member_, mine); }
  void fail(const Error& error) override { group_->meeting.fail(error); }
  Status all_gather(std::byte* all, size_t bytes, void* stream) override;

 private:
  Status copy_others(std::byte* all, size_t bytes, cudaStream_t stream);

  std::shared_ptr<CopyGroup> group_;
  int member_;
};

Status CopyingCollective::copy_others(std::byte* all, size_t bytes, cudaStream_t stream) {
  for (size_t i = 0; i < group_->parts.size(); ++i) {
    if (i == static_cast<size_t>(member_)) continue;
    const Part& part = group_->parts[i];
    RH_TRY_STATUS(check(cudaStreamWaitEvent(stream, part.written, 0), "waiting for another shard"));
    RH_TRY_STATUS(
        check(cudaMemcpyAsync(all + i * bytes, part.all + i * bytes, bytes, cudaMemcpyDefault, stream),
              "copying from another shard"));
  }
  return check(cudaEventRecord(group_->parts[static_cast<size_t>(member_)].read, stream), "marking copies");
}

Status CopyingCollective::all_gather(std::byte* all, size_t bytes, void* stream) {
  const auto queue = static_cast<cudaStream_t>(stream);
  const DeviceScope scope(group_->gpus[static_cast<size_t>(member_)]);
  Part& own = group_->parts[static_cast<size_t>(member_)];
  own.all = all;
  Status done = check(cudaEventRecord(own.written, queue), "marking a part");
  if (done.ok()) {
    RH_TRY_STATUS(group_->meeting.wait());
    done = copy_others(all, bytes, queue);
  }
  if (!done.ok()) {
    group_->meeting.fail(done.error());
    return done;
  }
  RH_TRY_STATUS(group_->meeting.wait());
  // The own part may be written again when everybody has it.
  for (const Part& part : group_->parts) {
    RH_TRY_STATUS(check(cudaStreamWaitEvent(queue, part.read, 0), "waiting for another shard"));
  }
  return {};
}

}  // namespace

Result<std::vector<std::unique_ptr<Collective>>> copying_collective(std::span<const int> gpus) {
  const auto group = std::make_shared<CopyGroup>(gpus);
  RH_TRY_STATUS(group->start());
  std::vector<std::unique_ptr<Collective>> ends;
  for (size_t i = 0; i < gpus.size(); ++i) {
    ends.push_back(std::make_unique<CopyingCollective>(group, static_cast<int>(i)));
  }
  return ends;
}

}  // namespace rhapsode::kernels::cuda
