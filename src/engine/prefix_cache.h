// The prefix cache: a radix tree over token ids whose edges are pages, so that requests share the KV of equal
// prefixes.
//
// Every edge holds the (up to 64) tokens of one page and a pin on it. A lookup walks full pages and takes the
// longest common start of one more, so matching is exact to the token (cases C5, C10, C14); the partly
// matched page is copied by the sequence that appends to it. A tree of its own belongs to every *key*: policy
// and provenance of what the KV was computed over, so that approximate KV is never served as exact. Eviction:
// least recently used leaves that nobody else holds; a page in use is never dropped. Threads: one at a time
// (the scheduler's). Cost: lookup and insert O(tokens + siblings compared).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/sequence.h"
#include "store/page_pool.h"

namespace rhapsode::engine {

struct PrefixKey {
  std::string policy = "full";
  std::string provenance;  // empty: nothing but the tokens themselves
  auto operator<=>(const PrefixKey&) const = default;
};

struct PrefixMatch {
  int tokens = 0;               // of the prompt, now in the sequence
  int32_t cached_instead = -1;  // the token a cached sequence had where the match ended; -1: none
};

class PrefixCache {
 public:
  PrefixCache() = default;

  // The length lookup() would find, without touching anything.
  int peek(const PrefixKey& key, std::span<const int32_t> tokens) const;
  // Appends the longest cached start of `tokens` to a sequence that is empty, or holds what the key's
  // provenance names.
  PrefixMatch lookup(const PrefixKey& key, std::span<const int32_t> tokens, Sequence& sequence);
  // Keeps the pages of `sequence` from `first_page` on, which hold exactly `tokens`. Nothing is copied.
  void insert(const PrefixKey& key, std::span<const int32_t> tokens, const Sequence& sequence,
              int first_page = 0);

  // Drops least recently used pages that only the cache holds until `blocks` have been freed. Returns how
  // many were.
  int evict(int blocks);
  void clear();

  int pages() const { return static_cast<int>(recency_.size()); }
  // Pages that only the cache holds: what evict() could free at most.
  int evictable() const;

 private:
  struct Node {
    std::vector<int32_t> tokens;
    store::PagePin pin;
    Node* parent = nullptr;
    std::vector<std::unique_ptr<Node>> children;
    std::list<Node*>::iterator recency;
  };
  struct Step {
    const Node* node = nullptr;
    int common = 0;
  };

  static Step best_child(const Node& node, std::span<const int32_t> tokens);
  void touch(Node& node);
  void remove(Node& node);

  std::map<PrefixKey, std::unique_ptr<Node>> roots_;
  std::list<Node*> recency_;  // most recently used first
};

}  // namespace rhapsode::engine
