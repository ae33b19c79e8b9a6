// A line of batches on their way from tokens to codes and stored KV.
//
// One thread of the line runs batches through the model, in the order they were pushed; the threads of a pool
// make codes and KV extents of what comes out, which frees its pages; batches leave in the order they came.
// So the model works on the next batch while the caller still stores the last one. With a pool of one thread
// there is no thread: push() does it all, with the same results. At most kMostBatches lie in the line: that
// bounds the memory. Pages: where the next batch finds none left, it waits for those of the batches before
// it. Threads: push(), pop() and drop_waiting() by one. Errors: of a batch, in its status; those behind it
// are not begun.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/worker_pool.h"
#include "index/whitening.h"
#include "kernels/page.h"
#include "recall/encoder.h"

namespace rhapsode::recall {

// Passages that are encoded and stored together.
struct EncodingBatch {
  struct Place {
    int64_t content = 0;
    int ordinal = 0;
  };
  struct Made {
    int chunks = 0;
    std::vector<std::byte> codes;
    std::vector<std::byte> kv;  // empty when index-only
  };
  std::vector<Place> places;
  std::vector<PassageTokens> passages;  // [places]
  bool index_only = false;
  std::vector<Made> made;  // [places], when the status is ok
  Status status;
};

class EncodingLine {
 public:
  static constexpr size_t kMostBatches = 4;

  EncodingLine(Encoder& encoder, const index::Whitening& whitening, kernels::KvType stored_kv,
               WorkerPool& pool);
  ~EncodingLine();  // drops what waits; waits for what is being made
  EncodingLine(const EncodingLine&) = delete;
  EncodingLine& operator=(const EncodingLine&) = delete;

  // Only with fewer than kMostBatches in the line.
  void push(EncodingBatch batch);
  size_t size() const { return size_; }
  // The batch at the line's end; waits for it. Only with any in the line.
  EncodingBatch pop();
  // The batch at the line's end has been made: pop() does not wait.
  bool ready();
  // Batches that nobody has begun do not get made (kCancelled).
  void drop_waiting();

 private:
  enum class Stage : uint8_t { kWaiting, kRunning, kMade };
  struct Entry {
    EncodingBatch batch;
    std::vector<Encoded> encoded;
    size_t left = 0;  // passages whose codes and KV are not made
    Stage stage = Stage::kWaiting;
  };

  void work();
  void run(Entry& entry);
  Result<std::vector<Encoded>> encode(const Entry& entry);
  Status finish_passage(Entry& entry, size_t i);
  Entry* next_waiting();  // with mutex_ held

  Encoder& encoder_;
  const index::Whitening& whitening_;
  kernels::KvType stored_kv_;
  WorkerPool& pool_;
  size_t size_ = 0;  // the caller's

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Entry>> entries_;  // guarded by mutex_
  int finishing_ = 0;                           // guarded by mutex_: batches whose pages are still held
  uint64_t finished_ = 0;                       // guarded by mutex_: batches whose pages are not, any more
  bool failed_ = false;                         // guarded by mutex_
  bool stopping_ = false;                       // guarded by mutex_
  std::thread thread_;
};

}  // namespace rhapsode::recall
