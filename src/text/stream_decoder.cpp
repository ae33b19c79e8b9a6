#include "text/stream_decoder.h"

#include "base/result.h"

namespace rhapsode::text {

Result<StreamDecoder> StreamDecoder::make(std::vector<std::string> stops) {
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty())
      return make_error(ErrorKind::kInvalidArgument, "stop string {} is empty: leave it out", i + 1);
    if (!is_valid_utf8(stops[i])) {
      return make_error(ErrorKind::kInvalidArgument,
                        "stop string {} is not valid UTF-8: it could never match", i + 1);
    }
  }
  return StreamDecoder(std::move(stops));
}

StreamDecoder::StreamDecoder(std::vector<std::string> stops) : nodes_(1) {
  for (size_t i = 0; i < stops.size(); ++i) {
    int32_t node = 0;
    for (const char c : stops[i]) node = add_child(node, static_cast<unsigned char>(c));
    Node& last = nodes_[static_cast<size_t>(node)];
    if (last.stop >= 0) continue;  // the same string twice: the first one counts
    last.stop = static_cast<int32_t>(i);
    last.stop_length = last.depth;
  }
  link_failures();
}

int32_t StreamDecoder::child(int32_t node, unsigned char byte) const {
  int32_t id = nodes_[static_cast<size_t>(node)].first_child;
  while (id >= 0 && nodes_[static_cast<size_t>(id)].byte != byte)
    id = nodes_[static_cast<size_t>(id)].next_sibling;
  return id;
}

int32_t StreamDecoder::add_child(int32_t node, unsigned char byte) {
  if (const int32_t known = child(node, byte); known >= 0) return known;
  Node fresh;
  fresh.byte = byte;
  fresh.depth = nodes_[static_cast<size_t>(node)].depth + 1;
  fresh.next_sibling = nodes_[static_cast<size_t>(node)].first_child;
  const auto id = static_cast<int32_t>(nodes_.size());
  nodes_[static_cast<size_t>(node)].first_child = id;
  nodes_.push_back(fresh);
  return id;
}

void StreamDecoder::link_failures() {
  std::vector<int32_t> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t parent = queue[i];
    int32_t id = nodes_[static_cast<size_t>(parent)].first_child;
    for (; id >= 0; id = nodes_[static_cast<size_t>(id)].next_sibling) {
      Node& node = nodes_[static_cast<size_t>(id)];
      node.fail = parent == 0 ? 0 : advance(nodes_[static_cast<size_t>(parent)].fail, node.byte);
      const Node& suffix = nodes_[static_cast<size_t>(node.fail)];
      if (node.stop < 0) {
        node.stop = suffix.stop;
        node.stop_length = suffix.stop_length;
      }
      queue.push_back(id);
    }
  }
}

int32_t StreamDecoder::advance(int32_t node, unsigned char byte) const {
  while (true) {
    if (const int32_t next = child(node, byte); next >= 0) return next;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].fail;
  }
}

std::string StreamDecoder::feed(std::string_view bytes) {
  if (stopped()) return {};
  gate_.feed(bytes, pending_);
  return scan();
}

std::string StreamDecoder::finish() {
  if (stopped()) return {};
  gate_.finish(pending_);
  std::string text = scan();
  text += pending_;
  pending_.clear();
  scanned_ = 0;
  state_ = 0;
  return text;
}

// Only whole characters are pending and stop strings are UTF-8, so both ends of what is emitted are
// characters' borders.
std::string StreamDecoder::scan() {
  size_t certain = 0;
  for (; scanned_ < pending_.size() && !stopped(); ++scanned_) {
    state_ = advance(state_, static_cast<unsigned char>(pending_[scanned_]));
    const Node& node = nodes_[static_cast<size_t>(state_)];
    if (node.stop < 0) continue;
    matched_ = static_cast<size_t>(node.stop);
    certain = scanned_ + 1 - static_cast<size_t>(node.stop_length);
  }
  if (!stopped()) certain = pending_.size() - static_cast<size_t>(nodes_[static_cast<size_t>(state_)].depth);
  std::string text = pending_.substr(0, certain);
  pending_.erase(0, certain);
  scanned_ -= certain;
  if (stopped()) pending_.clear();
  return text;
}

}  // namespace rhapsode::text
