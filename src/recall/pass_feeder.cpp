#include "recall/pass_feeder.h"

#include <algorithm>

namespace rhapsode::recall {

using kernels::first_slots;
using kernels::kPageTokens;

namespace {

struct Part {
  int stream = 0;
  int begin = 0;
  int end = 0;
};

// Where the next pass goes on.
struct Cursor {
  int stream = 0;
  int token = 0;
};

int outputs_in(const Stream& stream, int begin, int end) {
  return std::max(0, std::min(end, stream.output_end) - std::max(begin, stream.output_begin));
}

// Calls visit(first token, tokens) for every result that tokens [part.begin, part.end) of a stream have.
template <typename F>
void for_each_result(const Stream& stream, const Part& part, const F& visit) {
  const int end = std::min(part.end, stream.output_end);
  for (int token = std::max(part.begin, stream.output_begin); token < end;) {
    const int whole = stream.pooled_tokens - (token - stream.output_begin) % stream.pooled_tokens;
    const int count = std::min(whole, end - token);
    visit(token, count);
    token += count;
  }
}

// Adds tokens [part.begin, part.end) of a stream to a batch.
void add_part(const Stream& stream, const Part& part, PassBatch& batch) {
  kernels::SequencePlan sequence;
  sequence.row_begin = static_cast<int32_t>(batch.tokens.size());
  sequence.row_count = part.end - part.begin;
  sequence.references = stream.context;
  add_references(stream.pages, part.end, stream.position, sequence.references);
  for (int token = part.begin; token < part.end; ++token) {
    if (token >= stream.output_begin && token < stream.output_end) {
      batch.output_rows.push_back(static_cast<int32_t>(batch.tokens.size()));
      if (!stream.targets.empty()) batch.targets.push_back(stream.targets[token]);
    }
    batch.tokens.push_back(stream.tokens[token]);
    batch.plan.positions.push_back(stream.position + token);
    batch.plan.writes.push_back({stream.pages[token / kPageTokens].get(), token % kPageTokens});
  }
  batch.plan.sequences.push_back(std::move(sequence));
  if (stream.pooled_tokens > 1) {
    for_each_result(stream, part, [&](int, int count) { batch.pools.push_back(count); });
  }
}

Result<std::vector<Part>> next_parts(PassRunner& runner, std::span<Stream> streams, model::PassGoal goal,
                                     Cursor& cursor) {
  std::vector<Part> parts;
  int rows_left = runner.most_rows();
  int outputs_left = goal == model::PassGoal::kLogits ? runner.most_logit_rows() : rows_left;
  while (cursor.stream < static_cast<int>(streams.size()) && rows_left > 0) {
    Stream& stream = streams[cursor.stream];
    const int count = static_cast<int>(stream.tokens.size());
    int end = std::min(count, cursor.token + rows_left);
    while (end > cursor.token && outputs_in(stream, cursor.token, end) > outputs_left) --end;
    if (end == cursor.token && count > 0) break;
    if (stream.pages.empty()) {
      RH_TRY(stream.pages, take_frame_pages(runner, count));
    }
    rows_left -= end - cursor.token;
    outputs_left -= outputs_in(stream, cursor.token, end);
    parts.push_back({cursor.stream, cursor.token, end});
    cursor = end == count ? Cursor{cursor.stream + 1, 0} : Cursor{cursor.stream, end};
  }
  return parts;
}

}  // namespace

int pages_for(int tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

Result<std::vector<store::PagePin>> take_frame_pages(PassRunner& runner, int tokens) {
  RH_TRY(std::vector<store::PagePin> pages, runner.take_pages(pages_for(tokens)));
  int32_t position = 0;
  for (store::PagePin& page : pages) {
    for (int slot = 0; slot < kPageTokens; ++slot) page->positions[slot] = position++;
  }
  return pages;
}

void set_filled(std::span<store::PagePin> pages, int tokens) {
  for (store::PagePin& page : pages) {
    page->count = std::clamp(tokens, 0, kPageTokens);
    tokens -= kPageTokens;
  }
}

void add_references(std::span<const store::PagePin> pages, int tokens, int32_t shift,
                    std::vector<kernels::PageReference>& references) {
  for (size_t i = 0; i < pages.size() && tokens > 0; ++i, tokens -= kPageTokens) {
    references.push_back({pages[i].get(), shift, false, first_slots(tokens)});
  }
}

Result<uint64_t> feed(PassRunner& runner, std::span<Stream> streams, model::PassGoal goal,
                      const OnRow& on_row) {
  uint64_t evaluated = 0;
  Cursor cursor;
  while (cursor.stream < static_cast<int>(streams.size())) {
    RH_TRY(const std::vector<Part> parts, next_parts(runner, streams, goal, cursor));
    PassBatch batch;
    for (const Part& part : parts) add_part(streams[part.stream], part, batch);
    if (batch.tokens.empty()) continue;  // streams without tokens
    RH_TRY_STATUS(runner.run(batch, goal, [&](std::span<const float> results) {
      if (batch.output_rows.empty()) return;
      const size_t width =
          results.size() / (batch.pools.empty() ? batch.output_rows.size() : batch.pools.size());
      for (const Part& part : parts) {
        for_each_result(streams[part.stream], part, [&](int token, int) {
          on_row(part.stream, token, results.first(width));
          results = results.subspan(width);
        });
      }
    }));
    evaluated += batch.tokens.size();
    for (const Part& part : parts) {
      Stream& stream = streams[part.stream];
      set_filled(stream.pages, part.end);
      const bool ended = part.end == static_cast<int>(stream.tokens.size());
      if (ended && !stream.keep_pages) stream.pages.clear();
    }
  }
  return evaluated;
}

}  // namespace rhapsode::recall
