#include "index/passage_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace rhapsode::index {
namespace {

struct Edge {
  int64_t from = 0;
  int64_t to = 0;
  float weight = 0.0f;
};

// An edge each way for each mention two passages share.
std::vector<Edge> edges_of(std::vector<PassageMention>& mentions, int most_passages) {
  const auto key = [](const PassageMention& one) { return std::tuple(one.mention, one.passage); };
  std::sort(mentions.begin(), mentions.end(), [&](const PassageMention& a, const PassageMention& b) {
    return std::tuple(key(a), a.weak) < std::tuple(key(b), b.weak);
  });
  mentions.erase(
      std::unique(mentions.begin(), mentions.end(),
                  [&](const PassageMention& a, const PassageMention& b) { return key(a) == key(b); }),
      mentions.end());
  std::vector<Edge> edges;
  for (size_t begin = 0; begin < mentions.size();) {
    size_t end = begin;
    while (end < mentions.size() && mentions[end].mention == mentions[begin].mention) ++end;
    const size_t count = end - begin;
    if (count > 1 && count <= static_cast<size_t>(most_passages)) {
      for (size_t a = begin; a < end; ++a) {
        for (size_t b = begin; b < end; ++b) {
          if (a != b && !(mentions[a].weak && mentions[b].weak))
            edges.push_back({mentions[a].passage, mentions[b].passage, 1.0f / static_cast<float>(count)});
        }
      }
    }
    begin = end;
  }
  return edges;
}

// Edges between the same two passages become one.
void join(std::vector<Edge>& edges) {
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tuple(a.from, a.to, a.weight) < std::tuple(b.from, b.to, b.weight);
  });
  size_t kept = 0;
  for (size_t i = 0; i < edges.size(); ++i) {
    if (kept > 0 && edges[kept - 1].from == edges[i].from && edges[kept - 1].to == edges[i].to) {
      edges[kept - 1].weight += edges[i].weight;
    } else {
      edges[kept++] = edges[i];
    }
  }
  edges.resize(kept);
}

}  // namespace

PassageGraph PassageGraph::build(std::vector<PassageMention> mentions, const GraphOptions& options) {
  std::vector<Edge> edges = edges_of(mentions, options.most_passages);
  join(edges);
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tuple(a.from, -a.weight, a.to) < std::tuple(b.from, -b.weight, b.to);
  });
  PassageGraph graph;
  for (const Edge& edge : edges) {
    if (graph.ids_.empty() || graph.ids_.back() != edge.from) graph.ids_.push_back(edge.from);
  }
  // Links go both ways, so every passage that is linked to has links itself.
  size_t next = 0;
  for (const int64_t id : graph.ids_) {
    graph.begins_.push_back(graph.links_.size());
    float sum = 0.0f;
    for (int taken = 0; next < edges.size() && edges[next].from == id; ++next) {
      if (taken++ >= options.most_links) continue;
      graph.links_.push_back(
          {static_cast<uint32_t>(graph.place_of(edges[next].to)), 0.0f, edges[next].weight});
      sum += edges[next].weight;
    }
    for (size_t i = graph.begins_.back(); i < graph.links_.size(); ++i) {
      graph.links_[i].weight = graph.links_[i].raw / sum;
    }
  }
  graph.begins_.push_back(graph.links_.size());
  return graph;
}

size_t PassageGraph::place_of(int64_t passage) const {
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), passage);
  return found != ids_.end() && *found == passage ? static_cast<size_t>(found - ids_.begin()) : ids_.size();
}

std::vector<Link> PassageGraph::links_of(int64_t passage) const {
  std::vector<Link> links;
  const size_t place = place_of(passage);
  if (place == ids_.size()) return links;
  for (size_t i = begins_[place]; i < begins_[place + 1]; ++i) {
    links.push_back({ids_[links_[i].passage], links_[i].raw});
  }
  return links;
}

// The power iteration. Sums are taken in the order of places, whatever the order of the seeds.
std::vector<std::pair<size_t, double>> PassageGraph::walk(std::span<const std::pair<size_t, double>> start,
                                                          const PageRankOptions& options) const {
  std::vector<std::pair<size_t, double>> scores(start.begin(), start.end());
  std::vector<double> sums(ids_.size());
  std::vector<char> reached(ids_.size());
  std::vector<size_t> places;
  const auto add = [&](size_t place, double score) {
    sums[place] += score;
    if (std::exchange(reached[place], 1) == 0) places.push_back(place);
  };
  for (int round = 0; round < options.rounds; ++round) {
    for (const auto& [place, weight] : start) add(place, (1.0 - options.follow) * weight);
    for (const auto& [place, score] : scores) {
      for (size_t i = begins_[place]; i < begins_[place + 1]; ++i) {
        add(links_[i].passage, options.follow * score * links_[i].weight);
      }
    }
    std::sort(places.begin(), places.end());
    scores.clear();
    for (const size_t place : places) {
      scores.emplace_back(place, std::exchange(sums[place], 0.0));
      reached[place] = 0;
    }
    places.clear();
  }
  return scores;
}

std::vector<std::pair<int64_t, double>> PassageGraph::rank(std::span<const int64_t> seeds,
                                                           const PageRankOptions& options) const {
  std::map<int64_t, double> start;
  double total = 0.0;
  for (size_t i = 0; i < seeds.size(); ++i) {
    const double weight = 1.0 / static_cast<double>(i + 1);
    if (start.emplace(seeds[i], weight).second) total += weight;
  }
  // Seeds without links keep what they start with; all others have a place in the graph.
  std::vector<std::pair<int64_t, double>> ranked;
  std::vector<std::pair<size_t, double>> linked;
  for (const auto& [id, weight] : start) {
    const size_t place = place_of(id);
    if (place == ids_.size()) {
      ranked.emplace_back(id, (1.0 - options.follow) * weight / total);
    } else {
      linked.emplace_back(place, weight / total);
    }
  }
  for (const auto& [place, score] : walk(linked, options)) ranked.emplace_back(ids_[place], score);
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return ranked;
}

}  // namespace rhapsode::index
