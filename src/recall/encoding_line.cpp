#include "recall/encoding_line.h"

#include <algorithm>
#include <system_error>

#include "store/host_pages.h"

namespace rhapsode::recall {

EncodingLine::EncodingLine(Encoder& encoder, const index::Whitening& whitening, kernels::KvType stored_kv,
                           WorkerPool& pool)
    : encoder_(encoder), whitening_(whitening), stored_kv_(stored_kv), pool_(pool) {
  if (pool.threads() == 1) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    // push() does the work.
  }
}

EncodingLine::~EncodingLine() {
  drop_waiting();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return std::all_of(entries_.begin(), entries_.end(),
                       [](const auto& entry) { return entry->stage == Stage::kMade; });
  });
}

void EncodingLine::push(EncodingBatch batch) {
  auto entry = std::make_unique<Entry>();
  entry->batch = std::move(batch);
  Entry& pushed = *entry;
  ++size_;
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  changed_.notify_all();
  if (!thread_.joinable()) run(pushed);
}

bool EncodingLine::ready() {
  const std::lock_guard lock(mutex_);
  return entries_.front()->stage == Stage::kMade;
}

EncodingBatch EncodingLine::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return entries_.front()->stage == Stage::kMade; });
  EncodingBatch batch = std::move(entries_.front()->batch);
  entries_.pop_front();
  --size_;
  return batch;
}

void EncodingLine::drop_waiting() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : entries_) {
      if (entry->stage != Stage::kWaiting) continue;
      entry->batch.status = make_error(ErrorKind::kCancelled, "cancelled");
      entry->stage = Stage::kMade;
    }
  }
  changed_.notify_all();
}

EncodingLine::Entry* EncodingLine::next_waiting() {
  for (const auto& entry : entries_) {
    if (entry->stage == Stage::kWaiting) return entry.get();
  }
  return nullptr;
}

void EncodingLine::work() {
  while (true) {
    Entry* entry = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || (entry = next_waiting()) != nullptr; });
      if (entry == nullptr) return;
      entry->stage = Stage::kRunning;
    }
    run(*entry);
  }
}

void EncodingLine::run(Entry& entry) {
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    entry.stage = Stage::kRunning;
    failed = failed_;
  }
  Result<std::vector<Encoded>> encoded = make_error(ErrorKind::kCancelled, "a batch before it failed");
  if (!failed) encoded = encode(entry);
  const size_t count = encoded.ok() ? encoded->size() : 0;
  {
    const std::lock_guard lock(mutex_);
    if (!encoded.ok()) {
      entry.batch.status = encoded.error();
      failed_ = true;
    } else {
      entry.encoded = std::move(encoded).value();
      entry.batch.made.resize(count);
      entry.left = count;
      finishing_ += count > 0 ? 1 : 0;
    }
    if (count == 0) entry.stage = Stage::kMade;
  }
  changed_.notify_all();
  for (size_t i = 0; i < count; ++i) {
    const auto finish = [this, &entry, i] {
      Status status = finish_passage(entry, i);
      // Under the lock to the end: with the last passage the line may go.
      const std::lock_guard lock(mutex_);
      if (!status.ok()) {
        entry.batch.status = std::move(status);
        failed_ = true;
      }
      if (--entry.left > 0) return;
      entry.stage = Stage::kMade;
      --finishing_;
      ++finished_;
      changed_.notify_all();
    };
    pool_.add(finish, /*urgent=*/true);
  }
}

Result<std::vector<Encoded>> EncodingLine::encode(const Entry& entry) {
  const auto finished = [this] {
    const std::lock_guard lock(mutex_);
    return finished_;
  };
  const uint64_t before = finished();
  auto encoded = encoder_.encode(entry.batch.passages, entry.batch.index_only);
  if (encoded.ok() || encoded.error().kind != ErrorKind::kNoSpace) return encoded;
  {
    std::unique_lock lock(mutex_);
    // One that has finished since has given its pages back, too.
    if (finishing_ == 0 && finished_ == before) return encoded;
    changed_.wait(lock, [this] { return finishing_ == 0; });
  }
  return encoder_.encode(entry.batch.passages, entry.batch.index_only);
}

Status EncodingLine::finish_passage(Entry& entry, size_t i) {
  Encoded& encoded = entry.encoded[i];
  EncodingBatch::Made& made = entry.batch.made[i];
  made.chunks = encoded.chunks;
  made.codes.resize(static_cast<size_t>(encoded.chunks) * static_cast<size_t>(whitening_.code_bytes()));
  whitening_.encode(encoded.chunk_states, made.codes);
  if (!encoded.pages.empty()) {
    const auto tokens = static_cast<int>(entry.batch.passages[i].tokens.size());
    RH_TRY(made.kv, store::encode_pinned_kv(encoded.pages, stored_kv_, tokens));
  }
  encoded = Encoded();
  return {};
}

}  // namespace rhapsode::recall
