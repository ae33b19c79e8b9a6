#include "index/code_scan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#include "base/parallel.h"
#include "index/code_scan_kernels.h"
#include "index/scan_question.h"

namespace rhapsode::index {
namespace {

constexpr float kNoScore = -std::numeric_limits<float>::infinity();
constexpr size_t kCacheLine = 64;
constexpr int64_t kSliceCodes = 4096;  // what a thread takes at a time: a fraction of a millisecond

// What differs between the forms: the type of a dot product, and the kernels.
struct FourBits {
  using Question = FourBitQuestion;
  using Dot = int32_t;
  static size_t scratch_bytes(int words) { return four_bit_scratch_bytes(words); }
  static auto multiply(const ScanKernels& kernels) { return kernels.four_bit; }
  static auto raise(const ScanKernels& kernels) { return kernels.raise_integers; }
};

struct Signs {
  using Question = SignQuestion;
  using Dot = int32_t;
  static size_t scratch_bytes(int words) { return four_bit_scratch_bytes(words); }
  static auto multiply(const ScanKernels& kernels) { return kernels.signs; }
  static auto raise(const ScanKernels& kernels) { return kernels.raise_integers; }
};

struct Floats {
  using Question = FloatQuestion;
  using Dot = float;
  static size_t scratch_bytes(int words) { return float_scratch_bytes(words); }
  static auto multiply(const ScanKernels& kernels) { return kernels.floats; }
  static auto raise(const ScanKernels& kernels) { return kernels.raise_floats; }
};

struct FreeAligned {
  void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{64}); }
};

// One thread's work on a run of passages. Codes are gathered into batches across the borders of passages, so
// that short passages cost no more a chunk than long ones.
template <class Form>
class Scanner {
 public:
  Scanner(const typename Form::Question& question, const std::vector<float>& weights)
      : question_(question),
        weights_(weights),
        kernels_(scan_kernels()),
        best_(static_cast<size_t>(question.tokens), kLowest),
        dots_(static_cast<size_t>(question.tokens) * kBatchCodes),
        scratch_(static_cast<std::byte*>(
            ::operator new (Form::scratch_bytes(question.words), std::align_val_t{64}))) {}

  void scan(std::span<const PassageCodes> passages, float* scores) {
    const size_t code_bytes = static_cast<size_t>(question_.words) * sizeof(uint64_t);
    for (const PassageCodes& passage : passages) {
      float* score = scores++;
      *score = kNoScore;
      for (int done = 0; done < passage.chunks;) {
        const int take = std::min(passage.chunks - done, kBatchCodes - filled_);
        for (int i = 0; i < take; ++i) {
          const std::byte* code = passage.codes + static_cast<size_t>(done + i) * code_bytes;
          codes_[static_cast<size_t>(filled_ + i)] = code;
          // Candidates lie far apart: their codes are on the way while the batch fills.
          for (size_t b = 0; b < code_bytes; b += kCacheLine) __builtin_prefetch(code + b);
        }
        done += take;
        parts_[static_cast<size_t>(part_count_++)] = {{filled_, filled_ + take},
                                                      done == passage.chunks ? score : nullptr};
        filled_ += take;
        if (filled_ == kBatchCodes) flush();
      }
    }
    flush();
  }

 private:
  using Dot = typename Form::Dot;
  static constexpr Dot kLowest = std::numeric_limits<Dot>::lowest();

  // A run of the batch that belongs to one passage; `score` where the passage ends with it.
  struct Part {
    BatchRange range;
    float* score = nullptr;
  };

  void flush() {
    if (filled_ == 0) return;
    std::fill(codes_.begin() + filled_, codes_.end(), codes_[0]);
    Form::multiply(kernels_)(question_, {codes_.data(), filled_, scratch_.get()}, dots_.data());
    for (int i = 0; i < part_count_; ++i) {
      const Part& part = parts_[static_cast<size_t>(i)];
      Form::raise(kernels_)(dots_.data(), part.range, question_.tokens, best_.data());
      if (part.score != nullptr) *part.score = finish_passage();
    }
    filled_ = 0;
    part_count_ = 0;
  }

  float finish_passage() {
    double sum = 0.0;
    for (size_t t = 0; t < best_.size(); ++t) {
      sum += static_cast<double>(weights_[t]) * question_.scales[t] * static_cast<double>(best_[t]);
      best_[t] = kLowest;
    }
    return static_cast<float>(sum / std::sqrt(static_cast<double>(question_.dimensions)));
  }

  const typename Form::Question& question_;
  const std::vector<float>& weights_;
  const ScanKernels& kernels_;
  std::vector<Dot> best_;  // [tokens] of the passage at hand
  std::vector<Dot> dots_;  // [tokens][kBatchCodes]
  std::unique_ptr<std::byte, FreeAligned> scratch_;
  std::array<const std::byte*, kBatchCodes> codes_{};
  std::array<Part, kBatchCodes> parts_{};
  int filled_ = 0;
  int part_count_ = 0;
};

// Begins of the slices of about kSliceCodes codes, and the end of the last.
std::vector<size_t> cut_into_slices(std::span<const PassageCodes> passages) {
  std::vector<size_t> borders = {0};
  int64_t codes = 0;
  for (size_t i = 0; i < passages.size(); ++i) {
    codes += passages[i].chunks;
    if (codes < kSliceCodes) continue;
    borders.push_back(i + 1);
    codes = 0;
  }
  if (borders.back() != passages.size()) borders.push_back(passages.size());
  return borders;
}

template <class Form>
std::vector<float> score_with(const QuestionVectors& question, std::span<const PassageCodes> passages,
                              int threads) {
  const typename Form::Question prepared(question);
  const std::vector<size_t> borders = cut_into_slices(passages);
  std::vector<float> scores(passages.size());
  std::atomic<size_t> next{0};
  const auto slices = static_cast<int>(borders.size()) - 1;
  run_on_threads(std::min(threads, slices), [&] {
    Scanner<Form> scanner(prepared, question.weights);
    for (size_t slice = next++; slice + 1 < borders.size(); slice = next++) {
      const size_t begin = borders[slice];
      scanner.scan(passages.subspan(begin, borders[slice + 1] - begin), scores.data() + begin);
    }
  });
  return scores;
}

}  // namespace

std::vector<float> score_passages(const QuestionVectors& question, std::span<const PassageCodes> passages,
                                  QuestionForm form, int threads) {
  assert(question.vectors.size() == question.weights.size() * static_cast<size_t>(question.dimensions));
  if (form == QuestionForm::kFourBits) return score_with<FourBits>(question, passages, threads);
  if (form == QuestionForm::kSigns) return score_with<Signs>(question, passages, threads);
  return score_with<Floats>(question, passages, threads);
}

std::vector<ScanHit> best_passages(const QuestionVectors& question, std::span<const PassageCodes> passages,
                                   QuestionForm form, int count, int threads) {
  const std::vector<float> scores = score_passages(question, passages, form, threads);
  std::vector<ScanHit> hits;
  for (size_t i = 0; i < passages.size(); ++i) {
    if (passages[i].chunks > 0) hits.push_back({passages[i].id, scores[i]});
  }
  const auto better = [](const ScanHit& a, const ScanHit& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  };
  const size_t wanted = std::min(hits.size(), static_cast<size_t>(std::max(count, 0)));
  std::partial_sort(hits.begin(), hits.begin() + static_cast<std::ptrdiff_t>(wanted), hits.end(), better);
  hits.resize(wanted);
  return hits;
}

namespace reference {

std::vector<float> score_passages(const QuestionVectors& question, std::span<const PassageCodes> passages) {
  const auto d = static_cast<size_t>(question.dimensions);
  const size_t code_bytes = (d + 63) / 64 * 8;
  std::vector<float> scores;
  for (const PassageCodes& passage : passages) {
    double score = passage.chunks > 0 ? 0.0 : kNoScore;
    for (size_t t = 0; passage.chunks > 0 && t < question.weights.size(); ++t) {
      double best = -std::numeric_limits<double>::infinity();
      for (int c = 0; c < passage.chunks; ++c) {
        const std::byte* code = passage.codes + static_cast<size_t>(c) * code_bytes;
        double dot = 0.0;
        for (size_t i = 0; i < d; ++i) {
          const bool positive = (code[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
          dot += positive ? question.vectors[t * d + i] : -question.vectors[t * d + i];
        }
        best = std::max(best, dot);
      }
      score += question.weights[t] * best / std::sqrt(static_cast<double>(d));
    }
    scores.push_back(static_cast<float>(score));
  }
  return scores;
}

}  // namespace reference

}  // namespace rhapsode::index
