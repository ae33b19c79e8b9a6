// How shards exchange: back ends that run the same pass, each over its own share of the pages, join their
// partial results of attention through one Collective each.
//
// Members are numbered from 0; each has one end of the group and calls it from one thread. A pass begins with
// agree() of every member, behind which none may give up without fail(); then come as many all_gather()s, in
// the same order and of the same sizes, on every member. The next pass begins when every member has left this
// one. Ownership: ends share their group and go away in any order. Errors: what one member brings to agree()
// or fail() is what the others get, so that nobody waits for one that has gone; the next agree() begins anew,
// unless the group itself is lost.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"

namespace rhapsode::kernels {

class Collective {
 public:
  virtual ~Collective() = default;
  virtual int members() const = 0;
  virtual int member() const = 0;
  // Waits for every member; ok if all of them brought ok, else the error of the first one that did not.
  virtual Status agree(const Status& mine) = 0;
  // `all` holds `bytes` of every member, one behind the other: a member's own are there, those of the others
  // come. The memory is the host's or a device's, as the group was made; on a device it happens on `stream`
  // (cudaStream_t), and what follows there may write to `all` again.
  virtual Status all_gather(std::byte* all, size_t bytes, void* stream) = 0;
  // This member cannot go on: whoever waits, or comes to wait before the next agree(), gets the error.
  virtual void fail(const Error& error) = 0;
};

// Where the threads of a group wait for one another.
class Rendezvous {
 public:
  explicit Rendezvous(int members) : members_(members) {}
  int members() const { return members_; }

  // Until all members have come.
  Status wait();
  Status agree(int member, const Status& mine);
  void fail(const Error& error);
  // As fail(), and no agree() succeeds any more.
  void lose(const Error& error);

 private:
  // Counts those who come, and how often all have come.
  struct Meeting {
    int arrived = 0;
    uint64_t complete = 0;
  };

  const int members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Meeting waiting_;  // guarded by mutex_, as all below
  Meeting agreeing_;
  std::optional<Error> failed_;  // since the last agree()
  std::optional<Error> lost_;
  std::optional<std::pair<int, Error>> unwilling_;  // the first member that brought an error to this agree()
  Status agreed_;                                   // what the last agree() came to
};

// The ends of a group that exchanges through the memory of the host.
std::vector<std::unique_ptr<Collective>> host_collective(int members);

}  // namespace rhapsode::kernels
