#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "recall/passage_pages.h"
#include "store/host_pages.h"
#include "text/logits.h"

namespace rhapsode::engine {

using kernels::kPageTokens;

namespace {

constexpr size_t kMostRunning = 256;
constexpr int kLogitRowsAPass = 64;  // bounds the memory of prompt log-probs: rows x vocabulary x 4 bytes
constexpr int kLeastSharedTokens = 32;

int common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

Scheduler::Scheduler(ModelRunner& runner, store::PagePool& pool, Tracer& tracer, SchedulerOptions options)
    : runner_(runner), pool_(pool), tracer_(tracer), options_(options) {
  if (runner_.most_rows() > 0) options_.batch_tokens = std::min(options_.batch_tokens, runner_.most_rows());
  worker_ = std::thread([this] { work(); });
}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void Scheduler::submit(Handle request) {
  {
    std::lock_guard lock(mutex_);
    incoming_.push_back(std::move(request));
  }
  changed_.notify_all();
}

bool Scheduler::execute(const std::function<void()>& job) {
  Job entry{&job};
  std::unique_lock lock(mutex_);
  if (stopping_) return false;
  jobs_.push_back(&entry);
  changed_.notify_all();
  job_done_.wait(lock, [&] { return entry.done; });
  return entry.ran;
}

std::vector<store::PagePin> Scheduler::take_pages(std::span<const int> counts) {
  std::vector<store::PagePin> pages;
  const std::function<void()> job = [&] {
    if (!make_room(std::accumulate(counts.begin(), counts.end(), 0))) return;
    for (const int count : counts) {
      const int device = pool_.emptiest();
      for (int i = 0; i < count; ++i) {
        pages.push_back(pool_.allocate(device));
        if (!pages.back()) return pages.clear();
      }
    }
  };
  execute(job);
  return pages;
}

int Scheduler::cached_prefix(const PrefixKey& key, std::span<const int32_t> tokens) {
  int cached = 0;
  execute([&] { cached = cache_.peek(key, tokens); });
  return cached;
}

void Scheduler::forget_prefixes() {
  execute([&] { cache_.clear(); });
}

void Scheduler::set_reclaimer(const void* owner, std::function<int(int blocks)> reclaimer) {
  std::lock_guard lock(mutex_);
  if (reclaimer) {
    reclaimers_[owner] = std::move(reclaimer);
  } else {
    reclaimers_.erase(owner);
  }
}

EngineStats Scheduler::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  const store::PagePoolStats pool = pool_.stats();
  stats.kv_cap_bytes = pool.cap_bytes;
  stats.kv_used_bytes = pool.used_bytes;
  stats.page_copies = pool.copies;
  return stats;
}

void Scheduler::work() {
  while (wait_for_work()) {
    drop_cancelled();
    admit();
    run_job();
    Pass pass = build_pass();
    if (!pass.slices.empty()) run_pass(std::move(pass));
    job_rows_ = prefill_budget(pass.decodes);
    std::lock_guard lock(mutex_);
    stats_.running = static_cast<int>(running_.size());
    stats_.waiting = static_cast<int>(waiting_.size() + incoming_.size());
    // Counting walks the whole cache: not in every pass, only in those that changed who holds a page.
    if (pins_changed_) stats_.kv_cached_bytes = cache_.evictable() * pool_.stats().block_bytes;
    pins_changed_ = false;
  }
  {
    std::lock_guard lock(mutex_);
    for (Job* job : jobs_) job->done = true;
    jobs_.clear();
    job_done_.notify_all();
  }
  for (const Handle& request : waiting_) request->cancelled = true;
  for (const Handle& request : running_) request->cancelled = true;
  drop_cancelled();
  cache_.clear();
}

void Scheduler::run_job() {
  Job* job = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (jobs_.empty()) return;
    job = jobs_.front();
    jobs_.pop_front();
  }
  (*job->run)();
  pins_changed_ = true;
  std::lock_guard lock(mutex_);
  job->done = job->ran = true;
  job_done_.notify_all();
}

bool Scheduler::wait_for_work() {
  std::unique_lock lock(mutex_);
  // Those that wait were just tried: while all pages are a paused request's, only its return changes that.
  changed_.wait(lock, [&] {
    const bool can_admit = !waiting_.empty() && (paused_ == 0 || !running_.empty());
    return stopping_ || !incoming_.empty() || !jobs_.empty() || !running_.empty() || can_admit;
  });
  while (!incoming_.empty()) {
    Handle request = std::move(incoming_.front());
    incoming_.pop_front();
    if (!request->paused) {
      waiting_.push_back(std::move(request));
      continue;
    }
    request->paused = false;
    --paused_;
    waiting_.push_front(std::move(request));
  }
  return !stopping_;
}

void Scheduler::drop_cancelled() {
  for (size_t i = 0; i < waiting_.size();) {
    if (!waiting_[i]->cancelled) {
      ++i;
      continue;
    }
    const Handle request = waiting_[i];
    waiting_.erase(waiting_.begin() + i);
    finish(request, FinishReason::kCancelled);
  }
  const std::vector<Handle> running = running_;
  for (const Handle& request : running) {
    if (request->cancelled) finish(request, FinishReason::kCancelled);
  }
}

bool Scheduler::make_room(int blocks) {
  const store::PagePoolStats pool = pool_.stats();
  const int free = static_cast<int>(pool.blocks_total - pool.blocks_used);
  if (free >= blocks) return true;
  const int evicted = cache_.evict(blocks - free);
  int missing = blocks - free - evicted;
  // Held while they run: an owner that removes its own may go away right after.
  std::lock_guard lock(mutex_);
  stats_.evictions += evicted;
  for (const auto& [owner, reclaim] : reclaimers_) {
    if (missing > 0) missing -= reclaim(missing);
  }
  return missing <= 0;
}

// What was computed over blended passages is like nothing that another request could ask for.
bool Scheduler::uses_prefix_cache(const RequestState& request) const {
  return options_.prefix_cache && request.use_prefix_cache && request.blended.empty() &&
         request.fresh.count == 0;
}

// A prompt is worth waiting for when a running request will soon have put more of it into the cache than is
// there now.
bool Scheduler::waits_for_prefix(const RequestState& request) const {
  if (!uses_prefix_cache(request) || request.request.prompt_logprobs) return false;
  int shared = 0;
  if (!request.runs.empty() || request.sequence.tokens() > 0) return false;
  for (const Handle& other : running_) {
    if (!other->prefilled && other->prefix_key == request.prefix_key) {
      shared = std::max(shared, common_length(other->prompt, request.tokens));
    }
  }
  return shared >= cache_.peek(request.prefix_key, request.tokens) + kLeastSharedTokens;
}

void Scheduler::admit() {
  for (size_t i = 0; i < waiting_.size() && running_.size() < kMostRunning;) {
    const Handle request = waiting_[i];
    if (waits_for_prefix(*request)) {
      ++i;
      continue;
    }
    if (!try_admit(request)) {
      if (!running_.empty() || paused_ > 0) return;  // pages will come back; first come, first served
      waiting_.erase(waiting_.begin() + i);
      fail(request, make_error(ErrorKind::kTooLarge,
                               "the prompt's {} tokens do not fit the KV cap of {} bytes: raise --kv-cap",
                               request->tokens.size(), pool_.stats().cap_bytes));
      continue;
    }
    waiting_.erase(waiting_.begin() + i);
    running_.push_back(request);
    if (request->held_row.empty()) continue;
    const std::vector<float> row = std::exchange(request->held_row, {});
    draw(request, {row, std::nullopt});
  }
}

// Where copying pages is cheap, tokens that are evaluated again take their places in private copies, which
// attention reads as it reads any page: masks, and pages of tokens from anywhere, cost it more. Nothing where
// there is no room for copies. Pages of each run.
std::vector<std::vector<store::PagePin>> Scheduler::private_copies(const RequestState& request) {
  std::vector<std::vector<store::PagePin>> copies;
  if (request.blended.empty() || request.fresh.count > 0 || !pool_.memory().copies_cheaply()) return copies;
  std::vector<store::PagePin> from, to;
  std::vector<std::vector<size_t>> pages;  // of each run, that are copied
  for (const ContextRun& run : request.runs) {
    pages.emplace_back();
    for (const int32_t token : run.left_out) {
      const auto page = static_cast<size_t>(token / kPageTokens);
      if (!pages.back().empty() && pages.back().back() == page) continue;
      pages.back().push_back(page);
      from.push_back(run.pages[page].share());
    }
  }
  const int rows = static_cast<int>(request.tokens.size()) - request.run_tokens();
  if (!make_room(static_cast<int>(from.size()) + recall::pages_for(rows))) return copies;
  while (to.size() < from.size()) {
    to.push_back(pool_.allocate(from[to.size()]->device));
    if (!to.back()) return copies;
  }
  if (!store::copy_pages(from, to).ok()) return copies;
  auto next = to.begin();
  for (size_t r = 0; r < request.runs.size(); ++r) {
    auto& run = copies.emplace_back(recall::share_all(request.runs[r].pages));
    for (const size_t page : pages[r]) run[page] = std::move(*next++);
  }
  return copies;
}

void Scheduler::adopt_runs(RequestState& request) {
  const std::vector<std::vector<store::PagePin>> copies = private_copies(request);
  std::vector<kernels::RowWrite> places;
  for (size_t r = 0; r < request.runs.size(); ++r) {
    const ContextRun& run = request.runs[r];
    if (copies.empty()) {
      request.sequence.adopt_passage(run.pages, run.tokens, run.shift, run.left_out);
      continue;
    }
    request.sequence.adopt_passage(copies[r], run.tokens, run.shift);
    for (const int32_t token : run.left_out) {
      places.push_back({copies[r][token / kPageTokens].get(), token % kPageTokens, true});
    }
  }
  request.sequence.adopt_fresh(request.fresh.pages);
  if (request.frame) {
    request.sequence.open_frame(request.frame->tail ? &request.frame->tail : nullptr, request.frame->tokens);
  }
  if (request.blended.empty()) return;
  std::vector<int32_t> positions;
  for (const recall::BlendedToken& blended : request.blended) positions.push_back(blended.position);
  if (copies.empty()) {
    request.sequence.blend_tokens(std::move(positions));
  } else {
    request.sequence.rewrite_tokens(std::move(positions), std::move(places));
  }
}

bool Scheduler::try_admit(const Handle& handle) {
  RequestState& request = *handle;
  pins_changed_ = true;
  if (!request.held_row.empty()) return true;  // back from a pause, with its pages
  const bool caches = uses_prefix_cache(request);
  request.prompt_logits.clear();
  adopt_runs(request);
  PrefixMatch match;
  if (caches && !request.request.prompt_logprobs && !request.sequence.renumbered()) {
    // At least one token is evaluated: the next one is predicted from it.
    const int adopted = request.sequence.tokens();
    const auto reusable = std::span<const int32_t>(request.tokens)
                              .subspan(adopted, request.tokens.size() - 1 - request.scored_tokens - adopted);
    match = cache_.lookup(request.prefix_key, reusable, request.sequence);
  }
  match.tokens = request.sequence.tokens();
  const int rows = request.pending();
  if (!make_room(request.sequence.blocks_needed(rows)) || !request.sequence.reserve(rows)) {
    request.sequence.truncate(0);
    return false;
  }
  if (request.admitted_before) return true;
  request.admitted_before = true;
  request.admitted_ns = now_ns();
  Usage& usage = request.response.usage;
  usage.cached_tokens = match.tokens;
  usage.evaluated_tokens =
      usage.prompt_tokens - match.tokens + static_cast<int>(request.blended.size()) + request.fresh.count;
  request.response.timing.queue_ms = ms_between(request.submitted_ns, request.admitted_ns);
  tracer_.span("queue", request.submitted_ns, request.admitted_ns, request.id);
  if (match.tokens + 1 < usage.prompt_tokens && caches && request.runs.empty()) {
    const auto& tokenizer = runner_.tokenizer();
    usage.cache_miss = match.cached_instead < 0
                           ? fmt::format("nothing cached goes on after token {}", match.tokens)
                           : fmt::format("first difference at token {}: the prompt has '{}', the cache '{}'",
                                         match.tokens, tokenizer.piece(request.tokens[match.tokens], true),
                                         tokenizer.piece(match.cached_instead, true));
  }
  std::lock_guard lock(mutex_);
  stats_.cached_tokens += match.tokens;
  return true;
}

void Scheduler::preempt(const Handle& request) {
  running_.erase(std::find(running_.begin(), running_.end(), request));
  request->sequence.truncate(0);
  pins_changed_ = true;
  waiting_.push_front(request);
  std::lock_guard lock(mutex_);
  ++stats_.preemptions;
}

bool Scheduler::reserve_or_preempt(const Handle& request, int rows) {
  while (true) {
    const int blocks = request->sequence.blocks_needed(rows);
    pins_changed_ |= blocks > 0;
    if (make_room(blocks) && request->sequence.reserve(rows)) return true;
    if (running_.back() == request) return false;
    preempt(running_.back());
  }
}

void Scheduler::roll_if_full(RequestState& request) {
  if (!request.request.roll_context || static_cast<int>(request.tokens.size()) < request.context_tokens)
    return;
  // The first page stays: attention leans on a text's first tokens (StreamingLLM, arXiv 2309.17453).
  const int pages = std::max(1, request.sequence.pages() / 4);
  const int dropped = request.sequence.drop_pages(1, pages);
  request.tokens.erase(request.tokens.begin() + kPageTokens, request.tokens.begin() + kPageTokens + dropped);
  request.response.usage.rolled_tokens += dropped;
}

int Scheduler::prefill_budget(bool decodes) const {
  if (!decodes || row_ms_ <= 0) return options_.batch_tokens;
  return std::clamp(static_cast<int>(options_.pass_ms / row_ms_), 16, options_.batch_tokens);
}

// How many of the next `rows` rows, the last of them, have a result that somebody reads.
int Scheduler::outputs_of(const RequestState& request, int rows) {
  const bool last = rows == request.pending();
  const int sampled = last && request.request.max_tokens > 0 ? 1 : 0;
  if (request.prefilled) return sampled;
  if (request.request.prompt_logprobs) return rows;
  if (request.scored_tokens == 0) return sampled;
  // A token's place is behind the row before it; the last row of all has no token to score.
  const int behind = request.pending() - rows;
  const int scored = std::clamp(request.scored_tokens + 1 - behind, 0, rows);
  return std::max(scored, sampled);
}

void Scheduler::add_slice(const Handle& handle, int rows, Pass& pass) {
  RequestState& request = *handle;
  Slice slice{handle, rows, -1, 0};
  const int first_row = static_cast<int>(pass.tokens.size());
  slice.outputs = outputs_of(request, rows);
  request.sequence.add_to_plan(rows, pass.plan);
  const int begin = request.sequence.tokens();
  if (request.decoding() && request.decode_budget > 0 && begin + rows > request.decode_budget) {
    pass.plan.sequences.back().read_budget = request.decode_budget;
    if (request.exact_tokens < 0) request.exact_tokens = begin;
    ++request.response.usage.sparse_tokens;
  }
  const int scattered = std::min(rows, request.sequence.scattered_left());
  for (int row = 0; row < scattered; ++row) {
    const size_t index = request.blended.size() - request.sequence.scattered_left() + row;
    pass.tokens.push_back(request.blended[index].token);
  }
  const auto next = request.tokens.begin() + request.sequence.tokens();
  pass.tokens.insert(pass.tokens.end(), next, next + (rows - scattered));
  if (slice.outputs > 0) {
    slice.first_output = static_cast<int>(pass.output_rows.size());
    for (int row = rows - slice.outputs; row < rows; ++row) pass.output_rows.push_back(first_row + row);
  }
  (request.prefilled ? pass.decodes : pass.prefills) = true;
  pass.slices.push_back(std::move(slice));
}

Scheduler::Pass Scheduler::build_pass() {
  Pass pass;
  const std::vector<Handle> candidates = running_;
  for (const Handle& request : candidates) {
    const bool running = std::find(running_.begin(), running_.end(), request) != running_.end();
    if (!running || !request->decoding() || static_cast<int>(pass.tokens.size()) >= options_.batch_tokens)
      continue;
    roll_if_full(*request);
    // Only younger requests give way, and those come later in this order, so none in the pass loses its
    // pages. The youngest may itself have to; a lone request that fills the whole pool ends here, unless a
    // paused one will give pages back.
    if (reserve_or_preempt(request, 1)) {
      add_slice(request, 1, pass);
    } else if (running_.size() == 1 && paused_ == 0) {
      finish(request, FinishReason::kContext);
    } else {
      preempt(request);
    }
  }
  int budget =
      std::min(prefill_budget(pass.decodes), options_.batch_tokens - static_cast<int>(pass.tokens.size()));
  const std::vector<Handle> prefilling = running_;
  for (const Handle& request : prefilling) {
    if (budget <= 0) break;
    if (request->decoding()) continue;
    int rows = std::min(budget, request->pending());
    if (request->request.prompt_logprobs) rows = std::min(rows, kLogitRowsAPass);
    add_slice(request, rows, pass);
    budget -= rows;
  }
  return pass;
}

void Scheduler::run_pass(Pass pass) {
  const int64_t begin = now_ns();
  kernels::BatchInput batch{pass.tokens, &pass.plan, pass.output_rows};
  Outputs outputs;
  // A row that is wanted whole is fetched by itself then, so most must do without.
  int drawn = 0;
  for (const Slice& slice : pass.slices) {
    drawn += slice.first_output >= 0 && draws_from_candidates(*slice.request) ? 1 : 0;
  }
  outputs.top = drawn > 0 && 2 * drawn >= static_cast<int>(pass.output_rows.size());
  batch.top_logits_of = outputs.top ? runner_.tokenizer().size() : 0;
  auto result = runner_.evaluate(batch);
  const int64_t end = now_ns();
  if (!result.ok()) {
    for (const Slice& slice : pass.slices) fail(slice.request, result.error());
    return;
  }
  outputs.rows = result.value();
  note_pass(pass, begin, end);
  for (const Slice& slice : pass.slices) {
    after_slice(slice, outputs, ms_between(begin, end));
  }
}

void Scheduler::note_pass(const Pass& pass, int64_t begin_ns, int64_t end_ns) {
  const int rows = static_cast<int>(pass.tokens.size());
  if (pass.prefills && rows >= 16) {
    const double row_ms = ms_between(begin_ns, end_ns) / rows;
    row_ms_ = row_ms_ > 0 ? 0.7 * row_ms_ + 0.3 * row_ms : row_ms;
  }
  {
    std::lock_guard lock(mutex_);
    stats_.passes += 1;
    stats_.rows += rows;
  }
  if (!tracer_.enabled()) return;
  const char* name = pass.prefills ? (pass.decodes ? "mixed pass" : "prefill pass") : "decode pass";
  tracer_.span(name, begin_ns, end_ns, 0,
               {{"rows", rows}, {"sequences", static_cast<int64_t>(pass.slices.size())}});
  for (const kernels::LayerSpan& span : runner_.backend().layer_spans()) {
    tracer_.span("layers", span.begin_ns, span.end_ns, 0, {{"first", span.first}, {"last", span.last}});
  }
  for (const Slice& slice : pass.slices) {
    tracer_.span(slice.request->prefilled ? "decode" : "prefill", begin_ns, end_ns, slice.request->id,
                 {{"rows", slice.rows}});
  }
}

void Scheduler::after_slice(const Slice& slice, const Outputs& outputs, double pass_ms) {
  RequestState& request = *slice.request;
  if (request.arrive) {
    const Status arrived = std::exchange(request.arrive, nullptr)();
    if (!arrived.ok()) return fail(slice.request, arrived.error());
  }
  request.sequence.commit(slice.rows);
  StageTimes& timing = request.response.timing;
  (request.prefilled ? timing.decode_ms : timing.prefill_ms) += pass_ms;
  if (Status kept = keep_prompt_rows(request, slice, outputs); !kept.ok()) {
    return fail(slice.request, kept.error());
  }
  if (request.pending() > 0) return;
  if (!request.prefilled) {
    request.prefilled = true;
    cache_sequence(request, !waiting_.empty());
  }
  if (request.request.max_tokens == 0) return finish(slice.request, FinishReason::kLength);
  const auto row = output_row(request, outputs, slice.first_output + slice.outputs - 1);
  if (!row.ok()) return fail(slice.request, row.error());
  if (request.pause_at && request.pause_at(request, row->whole)) return pause(slice.request, row->whole);
  draw(slice.request, *row);
}

void Scheduler::pause(const Handle& request, std::span<const float> row) {
  std::erase(running_, request);
  request->held_row.assign(row.begin(), row.end());
  request->paused = true;
  ++paused_;
  request->note_pause();
}

void Scheduler::draw(const Handle& handle, OutputRow row) {
  RequestState& request = *handle;
  const int64_t begin = now_ns();
  const Status sampled = sample_next(request, row);
  request.response.timing.sample_ms += ms_between(begin, now_ns());
  note_draw(request, row, begin);
  if (!sampled.ok()) return fail(handle, sampled.error());

  const int32_t token = request.response.tokens.back().token;
  const text::Tokenizer& tokenizer = runner_.tokenizer();
  if (!request.request.ignore_end && tokenizer.is_end_of_generation(token)) {
    return finish(handle, FinishReason::kEnd);
  }
  if (!emit(request, request.decoder.feed(tokenizer.piece(token)))) {
    return finish(handle, FinishReason::kCancelled);
  }
  if (request.decoder.stopped()) return finish(handle, FinishReason::kStopString);
  if (static_cast<int>(request.response.tokens.size()) >= request.request.max_tokens) {
    return finish(handle, FinishReason::kLength);
  }
  const bool full = static_cast<int>(request.tokens.size()) >= request.context_tokens;
  if (full && !request.request.roll_context) finish(handle, FinishReason::kContext);
}

void Scheduler::cache_sequence(RequestState& request, bool whole) {
  if (!uses_prefix_cache(request) || request.sequence.tokens() == 0) return;
  pins_changed_ = true;
  const int adopted = request.run_tokens();
  // What a sparse step computed is not what the same tokens would be elsewhere: it is never served as exact.
  const int exact = request.exact_tokens < 0 ? request.sequence.tokens() : request.exact_tokens;
  int tokens = std::min(request.sequence.tokens(), exact) - adopted;
  // A last page that is still being filled is shared only when somebody may want it: sharing makes its owner
  // copy it.
  if (!whole) tokens -= tokens % kPageTokens;
  if (tokens <= 0) return;
  cache_.insert(request.prefix_key, std::span<const int32_t>(request.tokens).subspan(adopted, tokens),
                request.sequence, request.run_pages());
}

}  // namespace rhapsode::engine
