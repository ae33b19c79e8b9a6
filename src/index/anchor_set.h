// Anchors: fixed directions in the space of question states by which passages are listed (impact_lists.h).
//
// A question's token is close to few anchors, and a passage's chunks have a dot product with each: lists of
// the passages with the largest ones find candidates without looking at codes. Anchors are trained on real
// question states, since question states are no draws from the distribution of chunk states (design: "Find");
// where there are none, chunk codes serve. Shapes: `count` unit vectors of d dimensions, kept in 16 levels
// with one scale each (scan_question.h). Training: spherical k-means, assignments in integers, so that the
// same points give the same anchors on every machine. Ownership: values. Threads: const functions from any.
// Cost: training O(points * count * d / 64) a round, 10 us a point and round at 4,096 anchors and d = 896.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "index/code_scan.h"
#include "index/scan_question.h"

namespace rhapsode::index {

inline constexpr int kMostAnchors = 65536;

struct AnchorTraining {
  int count = 4096;  // at most; a quarter of the points if that is less
  int rounds = 4;
  int threads = 1;
};

struct AnchorHit {
  int anchor = 0;
  float dot = 0.0f;  // with the token's vector
};

class AnchorSet {
 public:
  // `points` [n][dimensions] of any length; directions count. kInvalidArgument for less than 16 points.
  static Result<AnchorSet> train(int dimensions, std::span<const float> points,
                                 const AnchorTraining& training);
  // What encode() gave. kCorrupt when it is something else.
  static Result<AnchorSet> decode(std::span<const std::byte> bytes);
  std::vector<std::byte> encode() const;

  int dimensions() const { return dimensions_; }
  int count() const { return static_cast<int>(scales_.size()); }
  // XXH3 of encode(): lists are of one set of anchors.
  uint64_t id() const { return id_; }
  // In blocks of kBlock, as the kernels of the scan take them.
  static constexpr int kBlock = 512;
  const std::vector<FourBitQuestion>& blocks() const { return blocks_; }
  // What an integer dot product of the scan's kernel with anchor `i` is multiplied with.
  float scale(int i) const { return unit_scales_[static_cast<size_t>(i)]; }

  // The `probes` anchors with the largest positive dot products with each of the vectors, best first; ties by
  // lower number. [tokens]
  std::vector<std::vector<AnchorHit>> nearest(std::span<const float> vectors, int probes) const;

 private:
  AnchorSet(int dimensions, std::vector<int8_t> levels, std::vector<float> scales);
  static AnchorSet of_vectors(int dimensions, std::span<const float> vectors);

  int dimensions_ = 0;
  uint64_t id_ = 0;
  std::vector<int8_t> levels_;      // [count][stride]
  std::vector<float> scales_;       // [count] a unit vector is scale * levels
  std::vector<float> unit_scales_;  // [count] scale / sqrt(d)
  std::vector<FourBitQuestion> blocks_;
};

}  // namespace rhapsode::index
