// The scheduler: one worker thread that runs passes over every request in flight (continuous batching).
//
// A pass takes the next token of every decoding request and fills the rest of its rows with chunks of
// prompts. While somebody is decoding, chunks shrink so that a pass stays near options.pass_ms (case V4).
// Admission is first come, first served by free KV pages; a request whose prompt starts like one that is
// being prefilled waits for that prefix instead of computing it twice. When the pool is full, unused
// prefix-cache pages go first; then the youngest request is put back into the queue and later continues where
// it was. A request may pause before a token (RequestState::pause_at): it keeps its pages and waits outside
// for whoever submitted it. Work of others that needs passes or pages (encoding a memory, judging, citing)
// runs as jobs between two passes, so nobody else uses the model meanwhile. Threads: submit(), execute(),
// take_pages() and stats() from any thread but the worker; everything else on the worker.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/trace.h"
#include "engine/model_runner.h"
#include "engine/output_row.h"
#include "engine/request_state.h"

namespace rhapsode::engine {

struct SchedulerOptions {
  int batch_tokens = 512;
  int pass_ms = 250;
  bool prefix_cache = true;
};

class Scheduler {
 public:
  using Handle = std::shared_ptr<RequestState>;

  Scheduler(ModelRunner& runner, store::PagePool& pool, Tracer& tracer, SchedulerOptions options);
  ~Scheduler();  // cancels what is in flight and joins the worker

  void submit(Handle request);
  // Runs `job` on the worker between two passes and returns when it has run; false when the scheduler is
  // stopping.
  bool execute(const std::function<void()>& job);
  // Empty pages, evicting what can be; none when the pool cannot give them all. So many for each count; those
  // of one count lie together (PagePool::allocate).
  std::vector<store::PagePin> take_pages(std::span<const int> counts);
  // Rows that a job should evaluate at most, so that those who wait for their next token wait no longer than
  // pass_ms.
  int job_rows() const { return job_rows_.load(); }
  // How many of these tokens, from the first on, the prefix cache holds.
  int cached_prefix(const PrefixKey& key, std::span<const int32_t> tokens);
  // Drops every cached prefix: text that is to be forgotten may stand in any of them.
  void forget_prefixes();
  // Asked on the worker for blocks that somebody else (a memory's tier) can do without; returns how many it
  // freed. One for each `owner`; null removes it.
  void set_reclaimer(const void* owner, std::function<int(int blocks)> reclaimer);
  EngineStats stats() const;

 private:
  // The share of one request in a pass.
  struct Slice {
    Handle request;
    int rows = 0;
    int first_output = -1;  // index of its first output row; -1: none
    int outputs = 0;
  };
  struct Pass {
    std::vector<Slice> slices;
    kernels::BatchPlan plan;
    std::vector<int32_t> tokens;
    std::vector<int32_t> output_rows;
    bool decodes = false;
    bool prefills = false;
  };
  // What a pass gave.
  struct Outputs {
    std::span<const float> rows;  // [output_rows][vocabulary]; empty where `top`
    bool top = false;             // the back end has the rows' largest logits, and hands out rows on demand
  };

  struct Job {
    const std::function<void()>* run = nullptr;
    bool done = false;
    bool ran = false;
  };

  void work();
  void run_job();
  bool wait_for_work();
  void drop_cancelled();
  void admit();
  bool try_admit(const Handle& request);
  void adopt_runs(RequestState& request);
  std::vector<std::vector<store::PagePin>> private_copies(const RequestState& request);
  bool uses_prefix_cache(const RequestState& request) const;
  bool waits_for_prefix(const RequestState& request) const;
  bool make_room(int blocks);
  bool reserve_or_preempt(const Handle& request, int rows);
  void preempt(const Handle& request);
  void roll_if_full(RequestState& request);

  Pass build_pass();
  static int outputs_of(const RequestState& request, int rows);
  void add_slice(const Handle& request, int rows, Pass& pass);
  int prefill_budget(bool decodes) const;
  void run_pass(Pass pass);
  void note_pass(const Pass& pass, int64_t begin_ns, int64_t end_ns);
  void after_slice(const Slice& slice, const Outputs& outputs, double pass_ms);
  bool draws_from_candidates(const RequestState& request) const;
  Result<std::span<const float>> whole_rows(const Outputs& outputs, int first, int count);
  Result<OutputRow> output_row(const RequestState& request, const Outputs& outputs, int index);
  // Takes a request out until it is submitted again; its next token will be drawn from this row.
  void pause(const Handle& request, std::span<const float> row);
  // Draws the next token, tells its text, and ends the request where it is the last one.
  void draw(const Handle& request, OutputRow row);
  void note_draw(const RequestState& request, const OutputRow& row, int64_t begin_ns);
  Status sample_next(RequestState& request, OutputRow& row);
  Status keep_prompt_rows(RequestState& request, const Slice& slice, const Outputs& outputs);
  Status keep_prompt_logprobs(RequestState& request, const Slice& slice, std::span<const float> logits);
  bool emit(RequestState& request, std::string_view text);
  void finish(const Handle& request, FinishReason reason);
  void fail(const Handle& request, Error error);
  void retire(const Handle& request);
  void cache_sequence(RequestState& request, bool whole);

  ModelRunner& runner_;
  store::PagePool& pool_;
  Tracer& tracer_;
  SchedulerOptions options_;

  // Worker's own.
  PrefixCache cache_;
  std::deque<Handle> waiting_;
  std::vector<Handle> running_;  // in order of admission
  int paused_ = 0;               // requests that will come back
  bool pins_changed_ = false;    // since stats_.kv_cached_bytes was counted
  double row_ms_ = 0.0;          // running mean of a prefill row's time

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Handle> incoming_;  // guarded by mutex_
  bool stopping_ = false;        // guarded by mutex_
  std::deque<Job*> jobs_;        // guarded by mutex_
  std::condition_variable job_done_;
  std::map<const void*, std::function<int(int)>> reclaimers_;  // guarded by mutex_
  std::atomic<int> job_rows_{512};
  EngineStats stats_;  // guarded by mutex_
  std::thread worker_;
};

}  // namespace rhapsode::engine
