#include "engine/prefix_cache.h"

#include <algorithm>

namespace rhapsode::engine {

using kernels::kPageTokens;

namespace {

int common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t most = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < most && a[i] == b[i]) ++i;
  return static_cast<int>(i);
}

}  // namespace

PrefixCache::Step PrefixCache::best_child(const Node& node, std::span<const int32_t> tokens) {
  Step best;
  for (const auto& child : node.children) {
    const int common = common_length(child->tokens, tokens);
    if (common > best.common || (!best.node && common == 0)) best = {child.get(), common};
  }
  return best;
}

void PrefixCache::touch(Node& node) {
  recency_.splice(recency_.begin(), recency_, node.recency);
}

int PrefixCache::peek(const PrefixKey& key, std::span<const int32_t> tokens) const {
  auto root = roots_.find(key);
  if (root == roots_.end()) return 0;
  const Node* node = root->second.get();
  int matched = 0;
  while (true) {
    const Step step = best_child(*node, tokens.subspan(matched));
    matched += step.common;
    if (step.common < kPageTokens) return matched;
    node = step.node;
  }
}

PrefixMatch PrefixCache::lookup(const PrefixKey& key, std::span<const int32_t> tokens, Sequence& sequence) {
  PrefixMatch match;
  auto root = roots_.find(key);
  if (root == roots_.end()) return match;
  Node* node = root->second.get();
  std::vector<Node*> path;
  while (true) {
    const Step step = best_child(*node, tokens.subspan(match.tokens));
    if (step.node && step.common < static_cast<int>(step.node->tokens.size())) {
      match.cached_instead = step.node->tokens[step.common];
    }
    if (step.common == 0) break;
    node = const_cast<Node*>(step.node);
    path.push_back(node);
    sequence.adopt(node->pin.share(), step.common);
    match.tokens += step.common;
    if (step.common < kPageTokens) break;
  }
  // Parents last: a leaf is then always older than what it hangs on, and is evicted first.
  for (auto visited = path.rbegin(); visited != path.rend(); ++visited) touch(**visited);
  return match;
}

void PrefixCache::insert(const PrefixKey& key, std::span<const int32_t> tokens, const Sequence& sequence,
                         int first_page) {
  if (sequence.renumbered()) return;  // its pages saw tokens that are gone
  auto& root = roots_[key];
  if (!root) root = std::make_unique<Node>();
  Node* node = root.get();
  std::vector<Node*> path;
  for (int page = 0; page * kPageTokens < static_cast<int>(tokens.size()); ++page) {
    const auto rest = tokens.subspan(page * kPageTokens);
    const auto wanted = rest.first(std::min<size_t>(rest.size(), kPageTokens));
    const Step step = best_child(*node, wanted);
    Node* child = nullptr;
    if (step.node && step.common == static_cast<int>(wanted.size())) {
      child = const_cast<Node*>(step.node);  // all of it is there already
    } else if (step.node && step.common > 0 && step.common == static_cast<int>(step.node->tokens.size())) {
      // A page that had been kept partly filled: ours holds the same and more.
      child = const_cast<Node*>(step.node);
      child->tokens.assign(wanted.begin(), wanted.end());
      child->pin = sequence.page(first_page + page).share();
    } else {
      node->children.push_back(std::make_unique<Node>());
      child = node->children.back().get();
      child->parent = node;
      child->tokens.assign(wanted.begin(), wanted.end());
      child->pin = sequence.page(first_page + page).share();
      recency_.push_front(child);
      child->recency = recency_.begin();
    }
    path.push_back(child);
    node = child;
  }
  for (auto visited = path.rbegin(); visited != path.rend(); ++visited) touch(**visited);
}

void PrefixCache::remove(Node& node) {
  recency_.erase(node.recency);
  auto& siblings = node.parent->children;
  siblings.erase(std::find_if(siblings.begin(), siblings.end(),
                              [&](const auto& child) { return child.get() == &node; }));
}

int PrefixCache::evict(int blocks) {
  int freed = 0;
  auto oldest = recency_.end();
  while (freed < blocks && oldest != recency_.begin()) {
    --oldest;
    Node& node = **oldest;
    if (!node.children.empty() || !node.pin.exclusive()) continue;
    ++oldest;  // remove() takes the element away; its parent is newer, so nothing behind is missed
    remove(node);
    ++freed;
  }
  std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
  return freed;
}

void PrefixCache::clear() {
  roots_.clear();
  recency_.clear();
}

int PrefixCache::evictable() const {
  return static_cast<int>(std::count_if(recency_.begin(), recency_.end(),
                                        [](const Node* node) { return node->pin.exclusive(); }));
}

}  // namespace rhapsode::engine
