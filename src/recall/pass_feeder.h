// Feeding rows of many independent streams through passes: the loop behind encoding, routing, judging and
// citing.
//
// A stream is a run of tokens that sees a given context and itself, causally. Streams are packed into passes
// of at most PassRunner::most_rows() rows; a stream may go on in the next pass. Its keys go to pages of its
// own, in a frame that begins at its first token. Ownership: streams own their pages. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "recall/pass_runner.h"

namespace rhapsode::recall {

struct Stream {
  std::vector<kernels::PageReference> context;  // pinned by somebody while the stream runs
  std::span<const int32_t> tokens;
  int32_t position = 0;  // of the first token
  // Tokens whose results are wanted: [output_begin, output_end).
  int output_begin = 0;
  int output_end = 0;
  // [tokens]: what stands behind each token. Then the results wanted are log-probabilities of those, one
  // number each; streams that are fed together all have targets or none has.
  std::span<const int32_t> targets;
  // More than 1: results of so many tokens, counted from output_begin, are added up; a sum whose tokens fall
  // into several passes comes in several parts. Streams that are fed together all have sums or none has.
  int pooled_tokens = 1;
  bool keep_pages = true;             // else they are let go as soon as the last token has run
  std::vector<store::PagePin> pages;  // filled by feed()
};

// Called with the result of one token of one stream, or with a sum and its first token, during the pass, on
// another thread.
using OnRow = std::function<void(int stream, int token, std::span<const float> result)>;

// Runs every stream to its end. Returns the number of rows evaluated.
Result<uint64_t> feed(PassRunner& runner, std::span<Stream> streams, model::PassGoal goal,
                      const OnRow& on_row);

// Appends references to pages that hold `tokens` tokens in a frame from 0, read at `shift`.
void add_references(std::span<const store::PagePin> pages, int tokens, int32_t shift,
                    std::vector<kernels::PageReference>& references);

int pages_for(int tokens);
// Empty pages for `tokens` tokens of one frame, positions from 0.
Result<std::vector<store::PagePin>> take_frame_pages(PassRunner& runner, int tokens);
// Says that such pages hold their first `tokens` tokens.
void set_filled(std::span<store::PagePin> pages, int tokens);

}  // namespace rhapsode::recall
