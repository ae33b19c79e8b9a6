#include "kernels/cuda/code_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cuda/code_scan.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_scope.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kMostDimensions = 16384;
constexpr int64_t kLeastSegmentChunks = 1 << 16;
constexpr int64_t kStagedChunks = 1 << 16;  // copied to the device at a time
constexpr size_t kRowsOfAReading = size_t{kMostRowGroups} * kRowGroupTokens;
constexpr uint32_t kSpareHits = 64;  // fetched with the first copy: ties of the last one

struct Segment {
  DeviceBuffer groups, ones, ends, first_slots;
  int64_t capacity = 0;  // chunks, a multiple of a group
  CodeSegment view;
};

// Parts of the one buffer that a question is uploaded with.
class Parts {
 public:
  template <typename T>
  size_t add(size_t count) {
    const size_t at = bytes_;
    bytes_ += (count * sizeof(T) + 255) / 256 * 256;
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// Rows of all questions: each begins a row group, so that a row group is one question's.
struct RowLayout {
  std::vector<int32_t> begins;  // [questions]
  std::vector<int32_t> ends;    // [questions]
  int rows = 0;                 // a multiple of a row group
};

class DeviceCodeSearch final : public CodeSearch {
 public:
  DeviceCodeSearch(int dimensions, int device) : shape_(code_shape(dimensions)), device_(device) {}
  ~DeviceCodeSearch() override {
    if (stream_) cudaStreamDestroy(stream_);
  }

  Status start() {
    const DeviceScope scope(device_);
    return check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream for finding");
  }

  Status add(std::span<const CodeRun> passages) override;
  size_t slots() const override { return ids_.size(); }
  uint64_t chunks() const override { return chunks_; }
  uint64_t device_bytes() const override;
  Result<std::vector<std::vector<CodeHit>>> best(std::span<const CodeQuestion> questions,
                                                 std::span<const uint64_t> visible, int count) override;

 private:
  Status begin_segment(int64_t least_chunks);
  Status append(std::span<const CodeRun> passages, Segment& segment);
  Status flush(Segment& segment, int64_t staged);
  Status check_questions(std::span<const CodeQuestion> questions, std::span<const uint64_t> visible,
                         int count) const;
  Status upload_questions(std::span<const CodeQuestion> questions, std::span<const uint64_t> visible);
  void pack_question(const CodeQuestion& question, uint32_t* fragments) const;
  void sum_levels(const CodeQuestion& question, int32_t* sums) const;
  Status scan();
  Result<std::vector<std::vector<CodeHit>>> fetch(size_t questions, size_t count);

  CodeShape shape_;
  int device_;
  cudaStream_t stream_ = nullptr;
  std::vector<Segment> segments_;
  std::vector<int64_t> ids_;  // [slots]
  uint64_t chunks_ = 0;

  // Codes on their way to the device.
  PinnedBuffer staged_words_, staged_slots_;
  DeviceBuffer raw_words_, raw_slots_;

  // A question's.
  PinnedBuffer upload_, result_;
  DeviceBuffer question_, maxima_, keys_, counters_, hits_;
  RowLayout rows_;
  const uint32_t* fragments_ = nullptr;
  SelectCall select_;
};

uint64_t DeviceCodeSearch::device_bytes() const {
  uint64_t bytes = raw_words_.bytes() + raw_slots_.bytes() + question_.bytes() + maxima_.bytes() +
                   keys_.bytes() + counters_.bytes() + hits_.bytes();
  for (const Segment& segment : segments_) {
    bytes +=
        segment.groups.bytes() + segment.ones.bytes() + segment.ends.bytes() + segment.first_slots.bytes();
  }
  return bytes;
}

Status DeviceCodeSearch::begin_segment(int64_t least_chunks) {
  const int64_t wanted = std::max(least_chunks, kLeastSegmentChunks);
  const int64_t groups = (wanted + kGroupChunks - 1) / kGroupChunks;
  const auto count = static_cast<size_t>(groups);
  Segment segment;
  RH_TRY_STATUS(
      segment.groups.allocate(count * shape_.group_words() * sizeof(uint32_t), "codes of passages"));
  RH_TRY_STATUS(segment.ones.allocate(count * kGroupChunks * sizeof(int16_t), "codes of passages"));
  RH_TRY_STATUS(segment.ends.allocate(count * sizeof(uint32_t), "codes of passages"));
  RH_TRY_STATUS(segment.first_slots.allocate(count * sizeof(int32_t), "codes of passages"));
  RH_TRY_STATUS(check(cudaMemsetAsync(segment.ends.as<void>(), 0, segment.ends.bytes(), stream_),
                      "clearing the ends of passages"));
  segment.capacity = groups * kGroupChunks;
  segment.view = {segment.groups.as<uint32_t>(), segment.ones.as<int16_t>(), segment.ends.as<uint32_t>(),
                  segment.first_slots.as<int32_t>(), 0};
  segments_.push_back(std::move(segment));
  return {};
}

Status DeviceCodeSearch::flush(Segment& segment, int64_t staged) {
  const size_t code_bytes = static_cast<size_t>(shape_.code_words()) * sizeof(uint32_t);
  const auto count = static_cast<size_t>(staged);
  RH_TRY_STATUS(check(cudaMemcpyAsync(raw_words_.as<void>(), staged_words_.data(), count * code_bytes,
                                      cudaMemcpyHostToDevice, stream_),
                      "copying codes to the GPU"));
  RH_TRY_STATUS(check(cudaMemcpyAsync(raw_slots_.as<void>(), staged_slots_.data(), count * sizeof(uint32_t),
                                      cudaMemcpyHostToDevice, stream_),
                      "copying codes to the GPU"));
  pack_codes(shape_,
             {raw_words_.as<const uint32_t>(), raw_slots_.as<const uint32_t>(), staged, segment.view.chunks},
             segment.view, stream_);
  RH_TRY_STATUS(check(cudaGetLastError(), "packing codes"));
  RH_TRY_STATUS(check(cudaStreamSynchronize(stream_), "packing codes"));
  segment.view.chunks += staged;
  chunks_ += static_cast<uint64_t>(staged);
  return {};
}

Status DeviceCodeSearch::append(std::span<const CodeRun> passages, Segment& segment) {
  const size_t code_bytes = static_cast<size_t>(shape_.code_words()) * sizeof(uint32_t);
  RH_TRY_STATUS(staged_words_.reserve(static_cast<size_t>(kStagedChunks) * code_bytes, "codes of passages"));
  RH_TRY_STATUS(
      staged_slots_.reserve(static_cast<size_t>(kStagedChunks) * sizeof(uint32_t), "codes of passages"));
  RH_TRY_STATUS(raw_words_.reserve(static_cast<size_t>(kStagedChunks) * code_bytes, "codes of passages"));
  RH_TRY_STATUS(
      raw_slots_.reserve(static_cast<size_t>(kStagedChunks) * sizeof(uint32_t), "codes of passages"));
  auto* slots = reinterpret_cast<uint32_t*>(staged_slots_.data());
  int64_t staged = 0;
  for (const CodeRun& passage : passages) {
    const auto slot = static_cast<uint32_t>(ids_.size());
    for (int64_t done = 0; done < passage.chunks;) {
      const int64_t take = std::min(passage.chunks - done, kStagedChunks - staged);
      std::memcpy(staged_words_.data() + static_cast<size_t>(staged) * code_bytes,
                  passage.codes + static_cast<size_t>(done) * code_bytes,
                  static_cast<size_t>(take) * code_bytes);
      std::fill_n(slots + staged, take, slot);
      staged += take;
      done += take;
      if (done == passage.chunks) slots[staged - 1] |= kLastOfPassage;
      if (staged == kStagedChunks) {
        RH_TRY_STATUS(flush(segment, staged));
        staged = 0;
      }
    }
    ids_.push_back(passage.id);
  }
  return staged > 0 ? flush(segment, staged) : Status{};
}

Status DeviceCodeSearch::add(std::span<const CodeRun> passages) {
  const DeviceScope scope(device_);
  if (ids_.size() + passages.size() >= kLastOfPassage) {
    return make_error(ErrorKind::kInvalidArgument, "a GPU's index holds up to {} passages",
                      kLastOfPassage - 1);
  }
  int64_t chunks = 0;
  for (const CodeRun& passage : passages) {
    if (passage.chunks < 1 || passage.codes == nullptr) {
      return make_error(ErrorKind::kInvalidArgument, "passage {} has no codes to be searched", passage.id);
    }
    chunks += passage.chunks;
  }
  // What fits goes behind the last segment's chunks, the rest into one of its own.
  size_t fitting = 0;
  if (!segments_.empty()) {
    int64_t room = segments_.back().capacity - segments_.back().view.chunks;
    for (; fitting < passages.size() && passages[fitting].chunks <= room; ++fitting) {
      room -= passages[fitting].chunks;
      chunks -= passages[fitting].chunks;
    }
  }
  if (fitting > 0) RH_TRY_STATUS(append(passages.first(fitting), segments_.back()));
  if (fitting == passages.size()) return {};
  RH_TRY_STATUS(begin_segment(chunks));
  return append(passages.subspan(fitting), segments_.back());
}

Status DeviceCodeSearch::check_questions(std::span<const CodeQuestion> questions,
                                         std::span<const uint64_t> visible, int count) const {
  const auto d = static_cast<size_t>(shape_.dimensions);
  for (const CodeQuestion& question : questions) {
    const auto tokens = static_cast<size_t>(std::max(question.tokens, 0));
    if (tokens == 0 || question.levels.size() != tokens * d || question.factors.size() != tokens) {
      return make_error(ErrorKind::kInvalidArgument,
                        "a question of {} tokens has {} levels and {} factors: {} dimensions need others",
                        tokens, question.levels.size(), question.factors.size(), d);
    }
    const auto usable = [](double factor) { return std::isfinite(factor); };
    if (!std::all_of(question.factors.begin(), question.factors.end(), usable)) {
      return make_error(ErrorKind::kInvalidArgument, "a question's token has a weight that is no number");
    }
  }
  if (visible.size() != (ids_.size() + 63) / 64) {
    return make_error(ErrorKind::kInvalidArgument, "{} words of visible passages for {} passages",
                      visible.size(), ids_.size());
  }
  if (count < 1) return make_error(ErrorKind::kInvalidArgument, "{} passages cannot be found", count);
  return {};
}

Status DeviceCodeSearch::upload_questions(std::span<const CodeQuestion> questions,
                                          std::span<const uint64_t> visible) {
  rows_ = {};
  for (const CodeQuestion& question : questions) {
    rows_.begins.push_back(rows_.rows);
    rows_.ends.push_back(rows_.rows + question.tokens);
    rows_.rows += (question.tokens + kRowGroupTokens - 1) / kRowGroupTokens * kRowGroupTokens;
  }
  const auto rows = static_cast<size_t>(rows_.rows);
  Parts parts;
  const size_t fragments_at = parts.add<uint32_t>(rows / kRowGroupTokens * shape_.fragment_words());
  const size_t begins_at = parts.add<int32_t>(questions.size());
  const size_t ends_at = parts.add<int32_t>(questions.size());
  const size_t sums_at = parts.add<int32_t>(rows);
  const size_t factors_at = parts.add<double>(rows);
  const size_t visible_at = parts.add<uint64_t>(visible.size());
  RH_TRY_STATUS(upload_.reserve(parts.bytes(), "a question"));
  RH_TRY_STATUS(question_.reserve(parts.bytes(), "a question"));
  std::byte* host = upload_.data();
  std::memcpy(host + begins_at, rows_.begins.data(), rows_.begins.size() * sizeof(int32_t));
  std::memcpy(host + ends_at, rows_.ends.data(), rows_.ends.size() * sizeof(int32_t));
  std::memcpy(host + visible_at, visible.data(), visible.size_bytes());
  for (size_t q = 0; q < questions.size(); ++q) {
    const auto row = static_cast<size_t>(rows_.begins[q]);
    pack_question(questions[q], reinterpret_cast<uint32_t*>(host + fragments_at) +
                                    row / kRowGroupTokens * shape_.fragment_words());
    sum_levels(questions[q], reinterpret_cast<int32_t*>(host + sums_at) + row);
    std::copy(questions[q].factors.begin(), questions[q].factors.end(),
              reinterpret_cast<double*>(host + factors_at) + row);
  }
  RH_TRY_STATUS(
      check(cudaMemcpyAsync(question_.as<void>(), host, parts.bytes(), cudaMemcpyHostToDevice, stream_),
            "copying a question to the GPU"));
  fragments_ = question_.at<const uint32_t>(fragments_at);
  select_.row_begins = question_.at<const int32_t>(begins_at);
  select_.row_ends = question_.at<const int32_t>(ends_at);
  select_.level_sums = question_.at<const int32_t>(sums_at);
  select_.factors = question_.at<const double>(factors_at);
  select_.visible = question_.at<const uint32_t>(visible_at);
  return {};
}

// Its row groups, one behind the other.
void DeviceCodeSearch::pack_question(const CodeQuestion& question, uint32_t* fragments) const {
  const auto d = static_cast<size_t>(shape_.dimensions);
  for (int token = 0; token < question.tokens; token += kRowGroupTokens) {
    const auto some = static_cast<size_t>(std::min(kRowGroupTokens, question.tokens - token));
    pack_fragments(shape_, question.levels.subspan(static_cast<size_t>(token) * d, some * d),
                   {fragments, shape_.fragment_words()});
    fragments += shape_.fragment_words();
  }
}

void DeviceCodeSearch::sum_levels(const CodeQuestion& question, int32_t* sums) const {
  const auto d = static_cast<size_t>(shape_.dimensions);
  for (size_t token = 0; token < question.factors.size(); ++token) {
    const std::span<const int8_t> levels = question.levels.subspan(token * d, d);
    sums[token] = std::accumulate(levels.begin(), levels.end(), int32_t{0});
  }
}

Status DeviceCodeSearch::scan() {
  RH_TRY_STATUS(
      check(cudaMemsetAsync(maxima_.as<void>(), 0x80,
                            ids_.size() * static_cast<size_t>(rows_.rows) * sizeof(int32_t), stream_),
            "clearing maxima"));
  int most = kMostRowGroups;
  while (most > 1 && scan_shared_bytes(shape_, most) > kScanSharedBytes) --most;
  const int row_groups = rows_.rows / kRowGroupTokens;
  for (int first = 0; first < row_groups; first += most) {
    for (const Segment& segment : segments_) {
      ScanCall call;
      call.shape = shape_;
      call.segment = segment.view;
      call.fragments = fragments_ + static_cast<size_t>(first) * shape_.fragment_words();
      call.row_groups = std::min(most, row_groups - first);
      call.maxima = maxima_.as<int32_t>() + first * kRowGroupTokens;
      call.stride = rows_.rows;
      RH_TRY_STATUS(check(scan_codes(call, stream_), "scanning codes"));
    }
  }
  return {};
}

Result<std::vector<std::vector<CodeHit>>> DeviceCodeSearch::fetch(size_t questions, size_t count) {
  // The counts, and so many hits as are wanted at least; more only where the last one has many equals.
  const size_t some = std::min(ids_.size(), count + kSpareHits);
  const size_t counts_bytes = questions * sizeof(uint32_t);
  const size_t hits_at = (counts_bytes + 255) / 256 * 256;
  RH_TRY_STATUS(result_.reserve(hits_at + questions * some * sizeof(uint2), "found passages"));
  auto* counts = reinterpret_cast<uint32_t*>(result_.data());
  auto* hits = reinterpret_cast<uint2*>(result_.data() + hits_at);
  RH_TRY_STATUS(check(cudaMemcpyAsync(counts, select_.found, counts_bytes, cudaMemcpyDeviceToHost, stream_),
                      "copying found passages"));
  RH_TRY_STATUS(check(cudaMemcpy2DAsync(hits, some * sizeof(uint2), select_.hits, ids_.size() * sizeof(uint2),
                                        some * sizeof(uint2), questions, cudaMemcpyDeviceToHost, stream_),
                      "copying found passages"));
  RH_TRY_STATUS(check(cudaStreamSynchronize(stream_), "finding passages"));
  std::vector<std::vector<CodeHit>> found(questions);
  std::vector<uint2> all;
  for (size_t q = 0; q < questions; ++q) {
    std::span<const uint2> chosen(hits + q * some, std::min<size_t>(counts[q], some));
    if (counts[q] > some) {
      all.resize(counts[q]);
      RH_TRY_STATUS(check(cudaMemcpy(all.data(), select_.hits + q * ids_.size(), all.size() * sizeof(uint2),
                                     cudaMemcpyDeviceToHost),
                          "copying found passages"));
      chosen = all;
    }
    for (const uint2& hit : chosen) found[q].push_back({ids_[hit.y], score_of_key(hit.x)});
    const size_t kept = std::min(count, found[q].size());
    const auto better = [](const CodeHit& a, const CodeHit& b) {
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    };
    std::partial_sort(found[q].begin(), found[q].begin() + static_cast<std::ptrdiff_t>(kept), found[q].end(),
                      better);
    found[q].resize(kept);
  }
  return found;
}

Result<std::vector<std::vector<CodeHit>>> DeviceCodeSearch::best(std::span<const CodeQuestion> questions,
                                                                 std::span<const uint64_t> visible,
                                                                 int count) {
  const DeviceScope scope(device_);
  RH_TRY_STATUS(check_questions(questions, visible, count));
  if (ids_.empty() || questions.empty()) return std::vector<std::vector<CodeHit>>(questions.size());
  RH_TRY_STATUS(upload_questions(questions, visible));
  const size_t places = questions.size() * ids_.size();
  const size_t histogram_words = questions.size() * 3 * kHistogramBins;
  RH_TRY_STATUS(maxima_.reserve(ids_.size() * static_cast<size_t>(rows_.rows) * sizeof(int32_t),
                                "the scores of passages"));
  RH_TRY_STATUS(keys_.reserve(places * sizeof(uint32_t), "the scores of passages"));
  RH_TRY_STATUS(hits_.reserve(places * sizeof(uint2), "found passages"));
  RH_TRY_STATUS(
      counters_.reserve((histogram_words + questions.size()) * sizeof(uint32_t), "counts of scores"));
  RH_TRY_STATUS(scan());
  RH_TRY_STATUS(check(cudaMemsetAsync(counters_.as<void>(), 0,
                                      (histogram_words + questions.size()) * sizeof(uint32_t), stream_),
                      "clearing counts of scores"));
  select_.questions = static_cast<int>(questions.size());
  select_.maxima = maxima_.as<const int32_t>();
  select_.stride = rows_.rows;
  select_.root = std::sqrt(static_cast<double>(shape_.dimensions));
  select_.slots = static_cast<int64_t>(ids_.size());
  select_.count = static_cast<uint32_t>(count);
  select_.keys = keys_.as<uint32_t>();
  select_.histograms = counters_.as<uint32_t>();
  select_.found = counters_.as<uint32_t>() + histogram_words;
  select_.hits = hits_.as<uint2>();
  select_best(select_, stream_);
  RH_TRY_STATUS(check(cudaGetLastError(), "choosing passages"));
  return fetch(questions.size(), static_cast<size_t>(count));
}

}  // namespace

Result<std::unique_ptr<CodeSearch>> make_code_search(int dimensions, int device) {
  if (!why_no_device().empty()) return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
  if (dimensions < 1 || dimensions > kMostDimensions) {
    return make_error(ErrorKind::kInvalidArgument, "codes of {} dimensions: a GPU's index takes 1 to {}",
                      dimensions, kMostDimensions);
  }
  auto search = std::make_unique<DeviceCodeSearch>(dimensions, device);
  RH_TRY_STATUS(search->start());
  return std::unique_ptr<CodeSearch>(std::move(search));
}

}  // namespace rhapsode::kernels::cuda
