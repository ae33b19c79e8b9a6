#include "kernels/collective.h"

#include <cstring>

namespace rhapsode::kernels {

Status Rendezvous::wait() {
  std::unique_lock lock(mutex_);
  if (failed_) return *failed_;
  const uint64_t meeting = waiting_.complete;
  if (++waiting_.arrived == members_) {
    waiting_.arrived = 0;
    ++waiting_.complete;
    changed_.notify_all();
    return {};
  }
  changed_.wait(lock, [&] { return waiting_.complete != meeting || failed_; });
  // All came: a failure since then is for the next one who waits.
  if (waiting_.complete != meeting) return {};
  return *failed_;
}

Status Rendezvous::agree(int member, const Status& mine) {
  std::unique_lock lock(mutex_);
  if (!mine.ok() && (!unwilling_ || member < unwilling_->first)) unwilling_.emplace(member, mine.error());
  const uint64_t meeting = agreeing_.complete;
  if (++agreeing_.arrived < members_) {
    changed_.wait(lock, [&] { return agreeing_.complete != meeting; });
    return agreed_;
  }
  agreed_ = Status();
  if (unwilling_) agreed_ = unwilling_->second;
  if (lost_) agreed_ = *lost_;
  unwilling_.reset();
  // Those who were waiting when a member failed have not been counted out again.
  failed_.reset();
  waiting_.arrived = 0;
  agreeing_.arrived = 0;
  ++agreeing_.complete;
  changed_.notify_all();
  return agreed_;
}

void Rendezvous::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = error;
  changed_.notify_all();
}

void Rendezvous::lose(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = error;
  if (!failed_) failed_ = error;
  changed_.notify_all();
}

namespace {

struct HostGroup {
  explicit HostGroup(int members) : meeting(members), parts(static_cast<size_t>(members)) {}
  Rendezvous meeting;
  std::vector<const std::byte*> parts;  // each written by its member before a meeting, read by all behind it
};

class HostCollective final : public Collective {
 public:
  HostCollective(std::shared_ptr<HostGroup> group, int member) : group_(std::move(group)), member_(member) {}

  int members() const override { return group_->meeting.members(); }
  int member() const override { return member_; }
  Status agree(const Status& mine) override { return group_->meeting.agree(member_, mine); }
  void fail(const Error& error) override { group_->meeting.fail(error); }

  Status all_gather(std::byte* all, size_t bytes, void* /*stream*/) override {
    const auto own = static_cast<size_t>(member_);
    group_->parts[own] = all + own * bytes;
    RH_TRY_STATUS(group_->meeting.wait());
    for (size_t i = 0; i < group_->parts.size(); ++i) {
      if (i != own) std::memcpy(all + i * bytes, group_->parts[i], bytes);
    }
    return group_->meeting.wait();
  }

 private:
  std::shared_ptr<HostGroup> group_;
  int member_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> host_collective(int members) {
  const auto group = std::make_shared<HostGroup>(members);
  std::vector<std::unique_ptr<Collective>> ends;
  for (int i = 0; i < members; ++i) ends.push_back(std::make_unique<HostCollective>(group, i));
  return ends;
}

}  // namespace rhapsode::kernels
