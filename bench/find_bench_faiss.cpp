// The comparison of find_bench with faiss: every question token searches an index over single chunks, the
// passages of what it finds gather weight x similarity, and the best of them are scored exactly.
#include "find_bench.h"

#ifdef RHAPSODE_FAISS

#include <faiss/IndexBinaryFlat.h>
#include <faiss/IndexBinaryHNSW.h>
#include <faiss/IndexBinaryIVF.h>
#include <faiss/IndexFlat.h>
#include <faiss/IndexHNSW.h>
#include <faiss/IndexIVFFlat.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

namespace rhapsode::bench {
namespace {

constexpr int kLists = 1024;
constexpr int kNeighbours = 16;

// Nearest chunks of the tokens of a question: labels and similarities [tokens][k].
struct Nearest {
  std::vector<faiss::Index::idx_t> chunks;
  std::vector<float> similarities;
};
using Search = std::function<Nearest(const index::QuestionVectors&, int k)>;

class Comparison {
 public:
  Comparison(const FindSetting& setting, size_t candidates) : setting_(setting), candidates_(candidates) {
    for (size_t p = 0; p < setting.passages.size(); ++p) {
      passage_of_.insert(passage_of_.end(), static_cast<size_t>(setting.passages[p].chunks),
                         static_cast<int32_t>(p));
    }
  }

  void row(const std::string& name, const Search& search, int k, double build_s, double bytes_a_chunk) const {
    const FindScore found = score(setting_, [&](size_t q) { return find(setting_.questions[q], search, k); });
    print_row(fmt::format("faiss {}, best {} chunks a token, {} candidates", name, k, candidates_), found,
              build_s, setting_.corpus.words() * 8 / 16.0 + bytes_a_chunk / 16.0);
  }

  std::vector<uint8_t> signs(const index::QuestionVectors& question) const {
    const size_t d = static_cast<size_t>(question.dimensions);
    std::vector<uint8_t> bits(question.weights.size() * code_bytes());
    for (size_t i = 0; i < question.vectors.size(); ++i) {
      if (question.vectors[i] > 0) {
        bits[i / d * code_bytes() + i % d / 8] |= static_cast<uint8_t>(1u << (i % d % 8));
      }
    }
    return bits;
  }
  const uint8_t* codes() const { return reinterpret_cast<const uint8_t*>(setting_.corpus.codes.data()); }
  size_t code_bytes() const { return static_cast<size_t>(setting_.corpus.words()) * 8; }
  size_t code_bits() const { return code_bytes() * 8; }
  size_t chunks() const { return passage_of_.size(); }

  Search binary(const faiss::IndexBinary& index) const {
    return [this, &index](const index::QuestionVectors& question, int k) {
      const std::vector<uint8_t> bits = signs(question);
      const size_t found = question.weights.size() * static_cast<size_t>(k);
      std::vector<int32_t> distances(found);
      Nearest nearest{std::vector<faiss::Index::idx_t>(found), std::vector<float>(found)};
      index.search(question.tokens(), bits.data(), k, distances.data(), nearest.chunks.data());
      for (size_t i = 0; i < found; ++i) {
        nearest.similarities[i] =
            1.0f - 2.0f * static_cast<float>(distances[i]) / static_cast<float>(question.dimensions);
      }
      return nearest;
    };
  }

  Search floats(const faiss::Index& index) const {
    return [&index](const index::QuestionVectors& question, int k) {
      const size_t found = question.weights.size() * static_cast<size_t>(k);
      Nearest nearest{std::vector<faiss::Index::idx_t>(found), std::vector<float>(found)};
      index.search(question.tokens(), question.vectors.data(), k, nearest.similarities.data(),
                   nearest.chunks.data());
      return nearest;
    };
  }

  // Chunks as vectors of +-1 / sqrt(d).
  std::vector<float> vectors() const {
    const auto d = static_cast<size_t>(setting_.corpus.dimensions);
    const float unit = 1.0f / std::sqrt(static_cast<float>(d));
    std::vector<float> out(chunks() * d);
    for (size_t c = 0; c < chunks(); ++c) {
      for (size_t i = 0; i < d; ++i) {
        out[c * d + i] = (codes()[c * code_bytes() + i / 8] >> (i % 8) & 1) != 0 ? unit : -unit;
      }
    }
    return out;
  }

 private:
  std::vector<index::ScanHit> find(const index::QuestionVectors& question, const Search& search,
                                   int k) const {
    const Nearest nearest = search(question, k);
    std::unordered_map<int32_t, float> sums;
    for (size_t t = 0; t < question.weights.size(); ++t) {
      std::unordered_map<int32_t, float> best;
      for (size_t i = t * static_cast<size_t>(k); i < (t + 1) * static_cast<size_t>(k); ++i) {
        if (nearest.chunks[i] < 0) continue;
        float& value = best[passage_of_[static_cast<size_t>(nearest.chunks[i])]];
        value = std::max(value, nearest.similarities[i]);
      }
      for (const auto& [passage, similarity] : best) sums[passage] += question.weights[t] * similarity;
    }
    std::vector<std::pair<float, int32_t>> order;
    for (const auto& [passage, sum] : sums) order.emplace_back(-sum, passage);
    std::sort(order.begin(), order.end());
    std::vector<index::PassageCodes> chosen;
    for (size_t i = 0; i < std::min(order.size(), candidates_); ++i) {
      chosen.push_back(setting_.passages[static_cast<size_t>(order[i].second)]);
    }
    index::FindOptions options;
    options.count = setting_.count;
    options.threads = setting_.threads;
    return index::find_exactly(question, chosen, options).hits;
  }

  const FindSetting& setting_;
  size_t candidates_;
  std::vector<int32_t> passage_of_;  // [chunks]
};

constexpr int kDepths[] = {100, 1000};

void compare_binary(const Comparison& comparison) {
  const auto d = static_cast<faiss::Index::idx_t>(comparison.code_bits());
  const auto chunks = static_cast<faiss::Index::idx_t>(comparison.chunks());
  {
    int64_t begin = now_ns();
    faiss::IndexBinaryFlat coarse(d);
    faiss::IndexBinaryIVF index(&coarse, static_cast<size_t>(d), kLists);
    index.cp.niter = 10;
    index.train(std::min<faiss::Index::idx_t>(chunks, 64 * kLists), comparison.codes());
    index.add(chunks, comparison.codes());
    const double build_s = seconds_since(begin);
    for (const size_t probes : {16u, 64u, 256u}) {
      index.nprobe = probes;
      for (const int k : kDepths) {
        comparison.row(fmt::format("binary IVF {} lists, {} probes", kLists, probes),
                       comparison.binary(index), k, build_s,
                       static_cast<double>(comparison.code_bytes()) + 8);
      }
    }
  }
  int64_t begin = now_ns();
  faiss::IndexBinaryHNSW index(static_cast<int>(d), kNeighbours);
  index.add(chunks, comparison.codes());
  const double build_s = seconds_since(begin);
  for (const int width : {256, 1024}) {
    index.hnsw.efSearch = width;
    for (const int k : kDepths) {
      if (k > width) continue;
      comparison.row(fmt::format("binary HNSW {}, width {}", kNeighbours, width), comparison.binary(index), k,
                     build_s, static_cast<double>(comparison.code_bytes()) + kNeighbours * 2 * 4 * 1.1);
    }
  }
}

void compare_floats(const Comparison& comparison, int dimensions) {
  const std::vector<float> vectors = comparison.vectors();
  const auto chunks = static_cast<faiss::Index::idx_t>(comparison.chunks());
  const double vector_bytes = dimensions * 4.0;
  {
    int64_t begin = now_ns();
    faiss::IndexFlatIP coarse(dimensions);
    faiss::IndexIVFFlat index(&coarse, static_cast<size_t>(dimensions), kLists, faiss::METRIC_INNER_PRODUCT);
    index.cp.niter = 10;
    index.train(std::min<faiss::Index::idx_t>(chunks, 64 * kLists), vectors.data());
    index.add(chunks, vectors.data());
    const double build_s = seconds_since(begin);
    for (const size_t probes : {16u, 64u, 256u}) {
      index.nprobe = probes;
      for (const int k : kDepths) {
        comparison.row(fmt::format("IVF {} lists, {} probes", kLists, probes), comparison.floats(index), k,
                       build_s, vector_bytes + 8);
      }
    }
  }
  int64_t begin = now_ns();
  faiss::IndexHNSWFlat index(dimensions, kNeighbours, faiss::METRIC_INNER_PRODUCT);
  index.add(chunks, vectors.data());
  const double build_s = seconds_since(begin);
  for (const int width : {256, 1024}) {
    index.hnsw.efSearch = width;
    for (const int k : kDepths) {
      if (k > width) continue;
      comparison.row(fmt::format("HNSW {}, width {}", kNeighbours, width), comparison.floats(index), k,
                     build_s, vector_bytes + kNeighbours * 2 * 4 * 1.1);
    }
  }
}

}  // namespace

void compare_with_faiss(const FindSetting& setting, size_t candidates, bool float_indices) {
  omp_set_num_threads(setting.threads);
  const Comparison comparison(setting, candidates);
  compare_binary(comparison);
  if (float_indices) compare_floats(comparison, setting.corpus.dimensions);
}

}  // namespace rhapsode::bench

#else

#include <cstdio>

namespace rhapsode::bench {

void compare_with_faiss(const FindSetting&, size_t, bool) {
  std::fputs("this build has no faiss: install libfaiss-dev and configure again\n", stderr);
}

}  // namespace rhapsode::bench

#endif
