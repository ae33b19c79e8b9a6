// StreamDecoder: turns the bytes of generated tokens into text that can be sent on at once.
//
// What it emits is valid UTF-8, whole characters only, and never part of a stop string: text that may still
// become one is held back. The emitted pieces, joined, are the same text however the bytes were cut into
// tokens. Broken bytes become U+FFFD; so does a character that is still incomplete at the end. The text ends
// before the stop string that is complete first; if several are complete with the same byte, before the
// longest of them.
// Ownership: a value, one a sequence. Threads: one at a time. Errors: make() refuses stop strings that are
// empty or not UTF-8. Cost: amortised constant a byte (Aho-Corasick automaton).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/result.h"
#include "text/utf8_gate.h"

namespace rhapsode::text {

class StreamDecoder {
 public:
  StreamDecoder() : StreamDecoder(std::vector<std::string>()) {}
  static Result<StreamDecoder> make(std::vector<std::string> stops);

  // The bytes of the next token in; the text that is certain now out. After a stop string: nothing any more.
  std::string feed(std::string_view bytes);

  // No token follows: the text that was held back. Not after a stop.
  std::string finish();

  // Set once a stop string has been found: its index in the list given to make().
  std::optional<size_t> matched_stop() const { return matched_; }
  bool stopped() const { return matched_.has_value(); }

 private:
  struct Node {
    unsigned char byte = 0;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t fail = 0;  // the longest proper suffix that is a node too
    int32_t depth = 0;
    int32_t stop = -1;  // the longest stop string that ends here
    int32_t stop_length = 0;
  };

  explicit StreamDecoder(std::vector<std::string> stops);
  int32_t child(int32_t node, unsigned char byte) const;
  int32_t add_child(int32_t node, unsigned char byte);
  void link_failures();
  int32_t advance(int32_t node, unsigned char byte) const;
  std::string scan();

  std::vector<Node> nodes_;
  Utf8Gate gate_;
  std::string pending_;  // whole characters not emitted yet
  size_t scanned_ = 0;   // bytes of pending_ the automaton has seen
  int32_t state_ = 0;
  std::optional<size_t> matched_;
};

}  // namespace rhapsode::text
