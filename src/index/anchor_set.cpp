#include "index/anchor_set.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "base/parallel.h"
#include "index/code_scan_kernels.h"
#include "index/whitening.h"
#include "index/whitening_product.h"

namespace rhapsode::index {
namespace {

constexpr size_t kFewestPoints = 16;
constexpr size_t kPointsAnAnchor = 4;
constexpr char kMagic[8] = {'R', 'H', 'A', 'N', 'C', 'H', 'O', '1'};
constexpr size_t kHeaderBytes = 16;
constexpr int kHighestLevel = 15;

size_t stride_of(int dimensions) {
  return (static_cast<size_t>(dimensions) + kWhiteningStride - 1) / kWhiteningStride * kWhiteningStride;
}

uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

struct FreeAligned {
  void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{64}); }
};

using Scratch = std::unique_ptr<std::byte, FreeAligned>;

Scratch scratch_for(int words) {
  return Scratch(
      static_cast<std::byte*>(::operator new (four_bit_scratch_bytes(words), std::align_val_t{64})));
}

// The spherical k-means. Points are assigned by the integer dot products of their signs with the anchors' 16
// levels, and averaged in a fixed order.
class Trainer {
 public:
  Trainer(int dimensions, std::span<const float> points, const AnchorTraining& training)
      : d_(static_cast<size_t>(dimensions)),
        words_((dimensions + 63) / 64),
        count_(points.size() / d_),
        points_(points),
        threads_(training.threads),
        assigned_(count_),
        signs_(count_ * static_cast<size_t>(words_)) {
    for (size_t p = 0; p < count_; ++p) {
      for (size_t i = 0; i < d_; ++i) {
        const bool positive = points[p * d_ + i] > 0.0f;
        signs_[p * static_cast<size_t>(words_) + i / 64] |= uint64_t{positive} << (i % 64);
      }
    }
    begin_from_points(std::min(static_cast<size_t>(training.count), count_ / kPointsAnAnchor));
  }

  void round() {
    assign();
    average();
  }
  const std::vector<float>& anchors() const { return anchors_; }

 private:
  // Different points, drawn by their mixed numbers.
  void begin_from_points(size_t wanted) {
    std::vector<std::pair<uint64_t, size_t>> order(count_);
    for (size_t p = 0; p < count_; ++p) order[p] = {mixed(p), p};
    std::sort(order.begin(), order.end());
    anchors_.resize(wanted * d_);
    for (size_t a = 0; a < wanted; ++a) {
      std::copy_n(points_.begin() + static_cast<std::ptrdiff_t>(order[a].second * d_), d_,
                  anchors_.begin() + static_cast<std::ptrdiff_t>(a * d_));
    }
  }

  void assign() {
    std::vector<FourBitQuestion> blocks;
    const size_t anchors = anchors_.size() / d_;
    for (size_t begin = 0; begin < anchors; begin += AnchorSet::kBlock) {
      const size_t size = std::min<size_t>(AnchorSet::kBlock, anchors - begin);
      QuestionVectors vectors;
      vectors.dimensions = static_cast<int>(d_);
      vectors.weights.assign(size, 1.0f);
      vectors.vectors.assign(anchors_.begin() + static_cast<std::ptrdiff_t>(begin * d_),
                             anchors_.begin() + static_cast<std::ptrdiff_t>((begin + size) * d_));
      blocks.emplace_back(vectors);
    }
    const size_t batches = (count_ + kBatchCodes - 1) / kBatchCodes;
    for_each_on_threads(batches, threads_, [&](size_t batch) { assign_batch(blocks, batch * kBatchCodes); });
  }

  void assign_batch(const std::vector<FourBitQuestion>& blocks, size_t first) {
    const auto size = static_cast<int>(std::min<size_t>(kBatchCodes, count_ - first));
    std::array<const std::byte*, kBatchCodes> codes{};
    for (int i = 0; i < kBatchCodes; ++i) {
      const size_t point = first + static_cast<size_t>(i < size ? i : 0);
      codes[static_cast<size_t>(i)] =
          reinterpret_cast<const std::byte*>(signs_.data() + point * static_cast<size_t>(words_));
    }
    const Scratch scratch = scratch_for(words_);
    std::vector<int32_t> dots(static_cast<size_t>(AnchorSet::kBlock) * kBatchCodes);
    std::array<float, kBatchCodes> best;
    best.fill(-std::numeric_limits<float>::infinity());
    for (size_t b = 0; b < blocks.size(); ++b) {
      scan_kernels().four_bit(blocks[b], {codes.data(), size, scratch.get()}, dots.data());
      for (int a = 0; a < blocks[b].tokens; ++a) {
        const float scale = blocks[b].scales[static_cast<size_t>(a)];
        for (int i = 0; i < size; ++i) {
          const float dot = scale * static_cast<float>(dots[static_cast<size_t>(a * kBatchCodes + i)]);
          if (!(dot > best[static_cast<size_t>(i)])) continue;
          best[static_cast<size_t>(i)] = dot;
          assigned_[first + static_cast<size_t>(i)] = b * AnchorSet::kBlock + static_cast<size_t>(a);
        }
      }
    }
  }

  // An anchor without points stays where it is.
  void average() {
    std::vector<double> sums(anchors_.size());
    for (size_t p = 0; p < count_; ++p) {
      double* sum = sums.data() + assigned_[p] * d_;
      for (size_t i = 0; i < d_; ++i) sum[i] += points_[p * d_ + i];
    }
    for (size_t a = 0; a < anchors_.size() / d_; ++a) {
      double squares = 0.0;
      for (size_t i = 0; i < d_; ++i) squares += sums[a * d_ + i] * sums[a * d_ + i];
      if (!(squares > 1e-20)) continue;
      const double inverse = 1.0 / std::sqrt(squares);
      for (size_t i = 0; i < d_; ++i) anchors_[a * d_ + i] = static_cast<float>(sums[a * d_ + i] * inverse);
    }
  }

  size_t d_;
  int words_;
  size_t count_;
  std::span<const float> points_;
  int threads_;
  std::vector<size_t> assigned_;
  std::vector<uint64_t> signs_;
  std::vector<float> anchors_;
};

}  // namespace

Result<AnchorSet> AnchorSet::train(int dimensions, std::span<const float> points,
                                   const AnchorTraining& training) {
  const size_t count = points.size() / static_cast<size_t>(std::max(dimensions, 1));
  if (dimensions < 1 || dimensions > kMaxWhiteningDimensions || count < kFewestPoints) {
    return make_error(ErrorKind::kInvalidArgument,
                      "anchors of an index are trained on at least {} states, not on {}", kFewestPoints,
                      count);
  }
  if (training.count < 1 || training.count > kMostAnchors) {
    return make_error(ErrorKind::kInvalidArgument, "an index has 1 to {} anchors, not {}", kMostAnchors,
                      training.count);
  }
  for (const float value : points) {
    if (!std::isfinite(value)) {
      return make_error(ErrorKind::kInvalidArgument, "a state to train an index on is not finite");
    }
  }
  Trainer trainer(dimensions, points, training);
  for (int i = 0; i < training.rounds; ++i) trainer.round();
  return of_vectors(dimensions, trainer.anchors());
}

AnchorSet AnchorSet::of_vectors(int dimensions, std::span<const float> vectors) {
  QuestionVectors all;
  all.dimensions = dimensions;
  all.vectors.assign(vectors.begin(), vectors.end());
  all.weights.assign(vectors.size() / static_cast<size_t>(dimensions), 1.0f);
  FourBitQuestion rounded(all);
  return {dimensions, std::move(rounded.levels), std::move(rounded.scales)};
}

// `levels` [count][dimensions]
AnchorSet::AnchorSet(int dimensions, std::vector<int8_t> levels, std::vector<float> scales)
    : dimensions_(dimensions), scales_(std::move(scales)) {
  const auto d = static_cast<size_t>(dimensions);
  const size_t stride = stride_of(dimensions);
  levels_.resize(scales_.size() * stride);
  for (size_t a = 0; a < scales_.size(); ++a) {
    std::copy_n(levels.begin() + static_cast<std::ptrdiff_t>(a * d), d,
                levels_.begin() + static_cast<std::ptrdiff_t>(a * stride));
    unit_scales_.push_back(scales_[a] / std::sqrt(static_cast<float>(dimensions)));
  }
  for (size_t begin = 0; begin < scales_.size(); begin += kBlock) {
    const size_t size = std::min<size_t>(kBlock, scales_.size() - begin);
    const auto first = levels.begin() + static_cast<std::ptrdiff_t>(begin * d);
    const auto scale = scales_.begin() + static_cast<std::ptrdiff_t>(begin);
    blocks_.emplace_back(dimensions,
                         std::vector<int8_t>(first, first + static_cast<std::ptrdiff_t>(size * d)),
                         std::vector<float>(scale, scale + static_cast<std::ptrdiff_t>(size)));
  }
  const std::vector<std::byte> bytes = encode();
  id_ = XXH3_64bits(bytes.data(), bytes.size());
}

std::vector<std::byte> AnchorSet::encode() const {
  const auto d = static_cast<size_t>(dimensions_);
  const size_t row = (d + 1) / 2;
  std::vector<std::byte> bytes(kHeaderBytes + scales_.size() * (sizeof(float) + row));
  const std::array<uint32_t, 2> sizes = {static_cast<uint32_t>(dimensions_),
                                         static_cast<uint32_t>(scales_.size())};
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  std::memcpy(bytes.data() + sizeof(kMagic), sizes.data(), sizeof(sizes));
  std::memcpy(bytes.data() + kHeaderBytes, scales_.data(), scales_.size() * sizeof(float));
  std::byte* out = bytes.data() + kHeaderBytes + scales_.size() * sizeof(float);
  for (size_t a = 0; a < scales_.size(); ++a, out += row) {
    const int8_t* levels = levels_.data() + a * stride_of(dimensions_);
    for (size_t i = 0; i < d; ++i) {
      out[i / 2] |=
          static_cast<std::byte>(static_cast<unsigned>((levels[i] + kHighestLevel) / 2) << (i % 2 * 4));
    }
  }
  return bytes;
}

Result<AnchorSet> AnchorSet::decode(std::span<const std::byte> bytes) {
  std::array<uint32_t, 2> sizes{};
  if (bytes.size() >= kHeaderBytes) std::memcpy(sizes.data(), bytes.data() + sizeof(kMagic), sizeof(sizes));
  const auto [dimensions, count] = sizes;
  const size_t row = (static_cast<size_t>(dimensions) + 1) / 2;
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0 ||
      dimensions == 0 || dimensions > kMaxWhiteningDimensions || count == 0 || count > kMostAnchors ||
      bytes.size() != kHeaderBytes + count * (sizeof(float) + row)) {
    return make_error(ErrorKind::kCorrupt, "the anchors of an index are damaged: {} bytes", bytes.size());
  }
  std::vector<float> scales(count);
  std::memcpy(scales.data(), bytes.data() + kHeaderBytes, count * sizeof(float));
  for (const float scale : scales) {
    if (!std::isfinite(scale) || scale < 0.0f) {
      return make_error(ErrorKind::kCorrupt, "the anchors of an index are damaged: a scale of {}", scale);
    }
  }
  const std::byte* in = bytes.data() + kHeaderBytes + count * sizeof(float);
  std::vector<int8_t> levels(static_cast<size_t>(count) * dimensions);
  for (size_t a = 0; a < count; ++a, in += row) {
    for (size_t i = 0; i < dimensions; ++i) {
      const auto bits = std::to_integer<int>(in[i / 2] >> (i % 2 * 4) & std::byte{15});
      levels[a * dimensions + i] = static_cast<int8_t>(2 * bits - kHighestLevel);
    }
  }
  return AnchorSet(static_cast<int>(dimensions), std::move(levels), std::move(scales));
}

std::vector<std::vector<AnchorHit>> AnchorSet::nearest(std::span<const float> vectors, int probes) const {
  const auto d = static_cast<size_t>(dimensions_);
  const size_t stride = stride_of(dimensions_);
  const size_t tokens = vectors.size() / d;
  std::vector<float> padded(tokens * stride);
  for (size_t t = 0; t < tokens; ++t) {
    std::copy_n(vectors.begin() + static_cast<std::ptrdiff_t>(t * d), d,
                padded.begin() + static_cast<std::ptrdiff_t>(t * stride));
  }
  std::vector<float> dots(tokens * scales_.size());
  WhiteningTask task;
  task.matrix = levels_.data();
  task.scales = scales_.data();
  task.rows = count();
  task.stride = static_cast<int>(stride);
  task.vectors = padded.data();
  task.count = static_cast<int>(tokens);
  task.out = dots.data();
  whitening_kernels().multiply(task);

  const auto better = [](const AnchorHit& a, const AnchorHit& b) {
    return a.dot != b.dot ? a.dot > b.dot : a.anchor < b.anchor;
  };
  std::vector<std::vector<AnchorHit>> nearest(tokens);
  std::vector<AnchorHit> all(scales_.size());
  const size_t wanted = std::min(all.size(), static_cast<size_t>(std::max(probes, 0)));
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t a = 0; a < all.size(); ++a) all[a] = {static_cast<int>(a), dots[t * all.size() + a]};
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(wanted), all.end(), better);
    for (size_t i = 0; i < wanted && all[i].dot > 0.0f; ++i) nearest[t].push_back(all[i]);
  }
  return nearest;
}

}  // namespace rhapsode::index
