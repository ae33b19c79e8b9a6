#include "recall/links.h"

#include <algorithm>

#include "text/mentions.h"

namespace rhapsode::recall {

namespace {

// Contents whose mentions are committed together.
constexpr int kBatch = 256;
constexpr int kWeakKind = static_cast<int>(text::MentionKind::kWord);
// What a passage's own rank counts beside what flows to it.
constexpr double kFoundShare = 0.25;
// Of a mention that may link, all holders that are read, allowed or not.
constexpr int kHiddenShare = 8;

std::vector<store::MentionKey> keys_of(std::string_view text, std::string_view title) {
  std::vector<store::MentionKey> keys;
  for (text::Mention& mention : text::find_mentions(text, title)) {
    keys.push_back({std::move(mention.key), static_cast<int>(mention.kind)});
  }
  return keys;
}

}  // namespace

void add_mentions(store::ContentRecord& record) {
  for (store::PassagePlace& place : record.passages) {
    const bool first = &place == &record.passages.front();
    const std::string_view text = std::string_view(record.text).substr(place.begin, place.end - place.begin);
    place.mentions = keys_of(text, first ? std::string_view(record.title) : std::string_view());
  }
  record.mentions_version = kMentionsVersion;
}

Status sync_mentions(store::Catalog& catalog) {
  while (true) {
    RH_TRY(const std::vector<store::UnlinkedContent> contents,
           catalog.contents_without_mentions(kMentionsVersion, kBatch));
    if (contents.empty()) return {};
    std::vector<store::ContentMentions> found;
    for (const store::UnlinkedContent& content : contents) {
      store::ContentMentions mentions{content.content, {}};
      for (const int64_t passage : content.passages) {
        // A text that is damaged or gone has no links; verify says what is wrong with it.
        const auto text = catalog.passage_text(passage);
        const bool lost = !text.ok() && (text.error().kind == ErrorKind::kCorrupt ||
                                         text.error().kind == ErrorKind::kNotFound);
        if (!text.ok() && !lost) return text.error();
        const bool first = passage == content.passages.front();
        mentions.by_ordinal.push_back(text.ok() ? keys_of(*text, first ? content.title : std::string())
                                                : std::vector<store::MentionKey>());
      }
      found.push_back(std::move(mentions));
    }
    RH_TRY_STATUS(catalog.put_mentions(kMentionsVersion, found));
  }
}

Result<LinkGraph> LinkGraph::around(const store::Catalog& catalog, std::span<const int64_t> seeds,
                                    std::span<const int64_t> allowed, const LinkLimits& limits) {
  LinkGraph links;
  std::vector<int64_t> frontier;
  for (const int64_t seed : seeds) {
    if (!std::binary_search(allowed.begin(), allowed.end(), seed)) continue;
    frontier.push_back(seed);
    links.mentions_[seed];
  }
  for (int step = 0; step < limits.steps && !frontier.empty(); ++step) {
    if (links.mentions_.size() >= static_cast<size_t>(limits.most_reached)) break;
    RH_TRY(frontier, links.grow(catalog, frontier, allowed, limits.most_passages));
  }
  std::vector<index::PassageMention> pairs;
  for (const auto& [mention, holders] : links.holders_) {
    pairs.insert(pairs.end(), holders.begin(), holders.end());
  }
  index::GraphOptions options;
  options.most_passages = limits.most_passages;
  links.graph_ = index::PassageGraph::build(std::move(pairs), options);
  return links;
}

Result<std::vector<int64_t>> LinkGraph::grow(const store::Catalog& catalog, std::span<const int64_t> frontier,
                                             std::span<const int64_t> allowed, int most_passages) {
  RH_TRY(std::vector<store::PassageMentionRow> rows,
         catalog.sharers_of(frontier, kHiddenShare * most_passages, kWeakKind));
  std::erase_if(rows, [&](const store::PassageMentionRow& row) {
    return !std::binary_search(allowed.begin(), allowed.end(), row.passage);
  });
  std::set<int64_t> reached;
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    bool strong = false;
    for (; end < rows.size() && rows[end].mention == rows[begin].mention; ++end) {
      strong = strong || rows[end].kind < kWeakKind;
    }
    const size_t count = end - begin;
    const bool fresh = looked_at_.insert(rows[begin].mention).second;
    if (fresh && strong && count > 1 && count <= static_cast<size_t>(most_passages)) {
      take(std::span(rows).subspan(begin, count), reached);
    }
    begin = end;
  }
  return std::vector<int64_t>(reached.begin(), reached.end());
}

void LinkGraph::take(std::span<const store::PassageMentionRow> holders, std::set<int64_t>& found) {
  for (const store::PassageMentionRow& row : holders) {
    holders_[row.mention].push_back({row.passage, row.mention, row.kind == kWeakKind});
    const auto [place, fresh] = mentions_.try_emplace(row.passage);
    if (fresh) found.insert(row.passage);
    place->second.push_back(row.mention);
  }
}

std::vector<int64_t> LinkGraph::neighbours(std::span<const int64_t> from) const {
  std::vector<int64_t> found;
  std::set<int64_t> seen(from.begin(), from.end());
  for (const int64_t passage : from) {
    for (const index::Link& link : graph_.links_of(passage)) {
      if (seen.insert(link.passage).second) found.push_back(link.passage);
    }
  }
  return found;
}

// The neighbour from which most of the score flows, and what they share.
std::optional<Via> LinkGraph::way_to(int64_t passage, const std::map<int64_t, double>& scores) const {
  std::optional<Via> way;
  double most = 0;
  for (const index::Link& link : graph_.links_of(passage)) {
    const auto score = scores.find(link.passage);
    const double flow = score == scores.end() ? 0.0 : score->second * link.weight;
    if (flow <= most) continue;
    const std::optional<int64_t> mention = shared_mention(passage, link.passage);
    if (!mention) continue;
    most = flow;
    way = Via{link.passage, *mention};
  }
  return way;
}

std::optional<Via> LinkGraph::way_from(int64_t passage, std::span<const int64_t> from) const {
  std::map<int64_t, double> weights;
  for (size_t i = 0; i < from.size(); ++i) weights.emplace(from[i], 1.0 / static_cast<double>(i + 1));
  return way_to(passage, weights);
}

std::vector<Ranked> LinkGraph::rank(std::span<const Ranked> ranked, int seeds, double follow) const {
  std::vector<int64_t> ids;
  std::set<int64_t> known;
  for (const Ranked& one : ranked) {
    if (static_cast<int>(ids.size()) < seeds) ids.push_back(one.passage);
    known.insert(one.passage);
  }
  index::PageRankOptions options;
  options.follow = follow;
  const std::vector<std::pair<int64_t, double>> reached = graph_.rank(ids, options);
  const std::map<int64_t, double> scores(reached.begin(), reached.end());
  double start = 0;  // the seeds' weights, which PageRank makes sum to 1
  for (size_t i = 0; i < ids.size(); ++i) start += 1.0 / static_cast<double>(i + 1);
  std::vector<Ranked> joined(ranked.begin(), ranked.end());
  for (size_t i = 0; i < joined.size(); ++i) {
    const auto flow = scores.find(joined[i].passage);
    joined[i].score =
        (flow == scores.end() ? 0.0 : flow->second) + kFoundShare / (static_cast<double>(i + 1) * start);
  }
  for (const auto& [id, score] : reached) {
    if (known.contains(id)) continue;
    joined.push_back({id, score, 0, 0, 0, 0, std::nullopt, std::nullopt, way_to(id, scores)});
  }
  std::stable_sort(joined.begin(), joined.end(),
                   [](const Ranked& a, const Ranked& b) { return a.score > b.score; });
  return joined;
}

std::optional<int64_t> LinkGraph::shared_mention(int64_t a, int64_t b) const {
  std::optional<int64_t> best;
  const auto of_a = mentions_.find(a), of_b = mentions_.find(b);
  if (of_a == mentions_.end() || of_b == mentions_.end()) return best;
  const auto weak = [&](int64_t mention, int64_t passage) {
    const auto& holders = holders_.at(mention);
    return std::any_of(holders.begin(), holders.end(),
                       [&](const auto& holder) { return holder.passage == passage && holder.weak; });
  };
  for (const int64_t mention : of_a->second) {
    const bool shared = std::find(of_b->second.begin(), of_b->second.end(), mention) != of_b->second.end();
    if (!shared || (weak(mention, a) && weak(mention, b))) continue;
    if (!best ||
        std::pair(holders_.at(mention).size(), mention) < std::pair(holders_.at(*best).size(), *best)) {
      best = mention;
    }
  }
  return best;
}

}  // namespace rhapsode::recall
