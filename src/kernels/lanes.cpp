#include "kernels/lanes.h"

#include <system_error>

namespace rhapsode::kernels {

Result<std::unique_ptr<Lanes>> Lanes::start(int count) {
  std::unique_ptr<Lanes> lanes(new Lanes(count));
  try {
    for (int lane = 0; lane < count; ++lane) {
      lanes->threads_.emplace_back([lanes = lanes.get(), lane] { lanes->serve(lane); });
    }
  } catch (const std::system_error& error) {
    return make_error(ErrorKind::kNoSpace, "the system starts no thread for each of {} devices: {}", count,
                      error.what());
  }
  return lanes;
}

Lanes::~Lanes() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Lanes::serve(int lane) {
  uint64_t served = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || round_ != served; });
    if (stopping_) return;
    served = round_;
    const auto& work = *work_;
    lock.unlock();
    Status status = work(lane);
    lock.lock();
    done_[static_cast<size_t>(lane)] = std::move(status);
    if (--left_ == 0) changed_.notify_all();
  }
}

Status Lanes::run(const std::function<Status(int)>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  left_ = count_;
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return left_ == 0; });
  work_ = nullptr;
  for (const Status& status : done_) RH_TRY_STATUS(status);
  return {};
}

}  // namespace rhapsode::kernels
