// One request inside the engine, from submit() to its response.
//
// Threads: the first block is constant after submit; the second belongs to the scheduler's thread;
// `cancelled` and the outcome may be touched by any thread. While a request is paused (pause_at), all of it
// belongs to whoever submitted it, who must submit it again: as it is, with another context (restart), or
// cancelled.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"
#include "recall/blender.h"
#include "rhapsode/engine.h"
#include "text/sampler.h"
#include "text/stream_decoder.h"

namespace rhapsode::engine {

// The first tokens of a prompt whose KV exists already: an encoding prefix, or a passage of a memory.
struct ContextRun {
  std::vector<store::PagePin> pages;
  int tokens = 0;
  int32_t shift = 0;              // the position that the pages' frame 0 takes
  std::vector<int32_t> left_out;  // tokens, ascending, that are evaluated again: RequestState::blended
};

// The frame that a request's rows go on in (Sequence::open_frame): the end of a conversation.
struct OpenFrame {
  store::PagePin tail;  // its last page; empty: that one is full, or there is none
  int32_t tokens = 0;   // in the frame so far
};

struct RequestState {
  RequestState(Request request_in, store::PagePool& pool) : request(std::move(request_in)), sequence(pool) {}

  Request request;
  std::vector<int32_t> prompt;
  int64_t id = 0;
  int context_tokens = 0;
  PrefixKey prefix_key;
  // In order, from the first token on; the prefix cache then holds what comes behind them, under a key that
  // names them.
  std::vector<ContextRun> runs;
  std::vector<recall::BlendedToken> blended;  // by position; evaluated before what stands behind the runs
  recall::FreshTokens fresh;                  // left out of runs and evaluated already
  // Waits until the runs' pages are there, which may still be on their way (recall::LoadedKv): asked on the
  // engine's thread when the first pass over them has run, before anything of it is kept or told. Empty: they
  // are there.
  std::function<Status()> arrive;
  // The last tokens of the prompt whose places the response gets the logits of (prompt_logits).
  int scored_tokens = 0;
  std::optional<OpenFrame> frame;
  // Asked on the engine's thread before each generated token, with the logits that it will be drawn from:
  // true pauses the request (wait_for_pause).
  std::function<bool(const RequestState& request, std::span<const float> row)> pause_at;
  bool keep_sequence = false;  // the sequence stays as it is when the request has ended
  bool keep_pages = false;     // the response's owner takes the pages of the request's own rows
  bool use_prefix_cache = true;
  int decode_budget = 0;  // tokens that a decode step reads at most; 0: all
  int64_t submitted_ns = 0;

  std::vector<int32_t> tokens;  // prompt, then what was generated; after rolling, what is left of both
  Sequence sequence;            // holds the first sequence.tokens() of them
  std::unique_ptr<text::Sampler> sampler;
  text::StreamDecoder decoder;
  Response response;
  bool admitted_before = false;
  bool prefilled = false;
  std::vector<std::vector<float>> prompt_logits;  // [scored_tokens][vocabulary]
  std::vector<store::PagePin> kept_pages;         // with keep_pages, once the request has ended
  int kept_tokens = 0;                            // of its own rows, in them
  std::vector<float> held_row;  // paused before the token that is drawn from it; empty: there is none
  bool paused = false;          // as the scheduler counts
  int exact_tokens = -1;        // in KV before the first sparse decode step; -1: there was none
  int64_t admitted_ns = 0;
  int64_t first_token_ns = 0;

  int run_tokens() const {
    int total = 0;
    for (const ContextRun& run : runs) total += run.tokens;
    return total;
  }
  int run_pages() const {
    size_t total = 0;
    for (const ContextRun& run : runs) total += run.pages.size();
    return static_cast<int>(total);
  }
  int pending() const {
    return sequence.scattered_left() + static_cast<int>(tokens.size()) - sequence.tokens();
  }
  bool decoding() const { return prefilled && pending() == 1; }

  // While paused: goes on behind another context. `prompt_in` ends with what was generated; runs, blended
  // tokens and prefix_key are set by then.
  void restart(std::vector<int32_t> prompt_in) {
    sequence.truncate(0);
    prompt = std::move(prompt_in);
    tokens = prompt;
    response.usage.prompt_tokens = static_cast<int>(prompt.size());
    held_row.clear();
    exact_tokens = -1;
    prefilled = admitted_before = false;
  }

  std::atomic<bool> cancelled{false};

  void complete(Result<Response> outcome_in) {
    std::lock_guard lock(mutex);
    outcome.emplace(std::move(outcome_in));
    done.notify_all();
  }
  void note_pause() {
    std::lock_guard lock(mutex);
    pausing = true;
    done.notify_all();
  }
  // True when the request has paused, false when it has ended.
  bool wait_for_pause() {
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return pausing || outcome.has_value(); });
    return std::exchange(pausing, false);
  }
  std::mutex mutex;
  std::condition_variable done;
  std::optional<Result<Response>> outcome;  // guarded by mutex
  bool pausing = false;                     // guarded by mutex
};

}  // namespace rhapsode::engine
