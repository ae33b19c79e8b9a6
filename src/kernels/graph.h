// The back-end interface: what a transformer is written in, and what runs it.
//
// A model's forward pass is a *recipe*: a function that records operations on a GraphBuilder. A back end
// records it once per shape (rows, output rows), keeps the graph, and runs it with the tokens and the context
// plan of each batch; everything that changes between batches of one shape is read at run time. Shapes: a
// Value is float32 [features][rows], features contiguous. Weights keep the type of their file. Ownership: a
// back end refers to the bytes given to add_weight(), which outlive it, unless it repacks them. Threads: a
// Backend is used by one thread at a time; it runs on its own threads. Errors: add_weight() refuses what the
// back end cannot multiply; run() fails on exhausted memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/attend.h"
#include "kernels/code_search.h"
#include "kernels/context_plan.h"
#include "kernels/page_bounds.h"
#include "kernels/page_memory.h"
#include "kernels/top_logits.h"

namespace rhapsode::kernels {

class Collective;

struct Value {
  int32_t id = -1;
};

struct Weight {
  int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
};

enum class WeightUse : uint8_t {
  kMatrix,  // left side of matmul: may be repacked for speed
  kTable,   // rows are looked up by token id
  kVector,  // norms and biases: becomes float32
};

struct WeightSource {
  std::string_view name;
  int type = 0;         // ggml_type
  int64_t columns = 0;  // contiguous: the input features of a matrix
  int64_t rows = 1;
  std::span<const std::byte> data;
};

enum class Activation : uint8_t { kSilu, kGelu };

class GraphBuilder {
 public:
  virtual ~GraphBuilder() = default;
  virtual Value token_rows(Weight table) = 0;        // [table.columns][rows] of the batch's tokens
  virtual Value matmul(Weight matrix, Value x) = 0;  // [matrix.rows][rows]
  virtual Value add(Value a, Value b) = 0;
  virtual Value add_bias(Value x, Weight bias) = 0;
  virtual Value scale(Value x, float factor) = 0;
  virtual Value rms_norm(Value x, Weight gain, float epsilon) = 0;                     // over all features
  virtual Value head_rms_norm(Value x, int head_dim, Weight gain, float epsilon) = 0;  // over each head
  virtual Value gate(Activation activation, Value gate, Value up) = 0;  // activation(gate) * up
  virtual Value attend(int layer, Value q, Value k,
                       Value v) = 0;               // rotates, keeps k and v, attends: see attend.h
  virtual Value output_rows(Value x) = 0;          // only the rows whose result is asked for
  virtual Value soft_cap(Value x, float cap) = 0;  // cap * tanh(x / cap)
  // Computes x although the recipe's value does not depend on it: keys and values of later layers are kept.
  virtual void require(Value x) = 0;
};

using Recipe = std::function<Value(GraphBuilder&)>;

struct BatchInput {
  std::span<const int32_t> tokens;       // [rows]
  const BatchPlan* plan = nullptr;       // validated, of as many rows
  std::span<const int32_t> output_rows;  // ascending
  bool mass = false;                     // keep the attention mass of every slot: Backend::mass_per_token()
  // [output_rows]: the result is, of each row of logits, the log-probability of this token, natural, one
  // number a row. Empty: the rows themselves. Only for back ends that score_targets().
  std::span<const int32_t> targets = {};
  // How many output rows, in their order, are added up for each row of the result: [pools][features]. Empty:
  // the rows themselves. Only for back ends that pools_outputs().
  std::span<const int32_t> pools = {};
  // Above 0: no rows come back; the largest logits of each output row are found among its first so many
  // features, for Backend::top_logits(). Only for back ends that find_top_logits().
  int32_t top_logits_of = 0;
};

struct BackendOptions {
  int threads = 1;
  bool deterministic = false;  // a row's bytes do not depend on the rows beside it, nor on the thread count
  bool layer_times = false;    // for tracing
  KvShape kv;
  std::vector<AttendLayer> layers;
  SparseOptions sparse;               // for plans with read budgets
  int device = 0;                     // which one, of a kind of which there are several
  bool reference_top_logits = false;  // the CPU finds them too, by sorting: for tests
  // Joins the passes of several back ends (sharded_backend.h): plans are then a share of what rows see.
  // Borrowed; null: alone.
  Collective* group = nullptr;
};

// When a group of layers ran in the last pass, on the steady clock.
struct LayerSpan {
  int first = 0;
  int last = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Result<Weight> add_weight(const WeightSource& source, WeightUse use) = 0;
  // Keeps a recipe for run(); returns its number.
  virtual int add_recipe(Recipe recipe) = 0;
  // Evaluates one batch; the result, [output_rows][features of the recipe's value], is valid until the next
  // call.
  virtual Result<std::span<const float>> run(const BatchInput& batch, int recipe) = 0;
  // Of the last run(), which asked for mass: attention probabilities of each slot of a sequence's shared
  // list, [references][64], summed over its rows, all heads and the layers that ran. Valid until the next
  // run().
  virtual Result<std::span<const double>> mass_per_token(int sequence) const;
  // In deterministic mode every pass has this many rows (fewer are padded, more must be split); 0: any
  // number.
  virtual int fixed_rows() const = 0;
  // Whether it turns rows of logits into log-probabilities itself, where they lie.
  virtual bool scores_targets() const { return false; }
  // Whether it adds up output rows itself, where they lie.
  virtual bool pools_outputs() const { return false; }
  // Whether it finds the largest logits of a row itself, where they lie.
  virtual bool finds_top_logits() const { return false; }
  // Of an output row of the last run(), which asked for them. Valid until the next run().
  virtual Result<TopLogits> top_logits(int output) const;
  // Of the same run(): output rows as they are, fetched now. Valid until the next run() or whole_rows().
  virtual Result<std::span<const float>> whole_rows(int first_output, int count);
  virtual uint64_t weight_copy_bytes() const = 0;  // memory of repacked or converted weights
  // Memory that the pages of this back end's plans must lie in; asked for after the weights are there.
  virtual std::unique_ptr<PageMemory> new_page_memory() = 0;
  // Whether codes can be searched where this back end computes, and a search there.
  virtual bool searches_codes() const { return false; }
  virtual Result<std::unique_ptr<CodeSearch>> new_code_search(int dimensions);
  // Names what keys and values are rounded by, where that is not the file's own weight types; else empty.
  virtual std::string_view numerics() const { return {}; }
  // Times of layer groups of the last pass; empty unless options.layer_times.
  virtual std::vector<LayerSpan> layer_spans() const = 0;
};

inline Result<std::span<const double>> Backend::mass_per_token(int) const {
  return make_error(ErrorKind::kUnsupported, "this back end does not report where attention went");
}

inline Result<TopLogits> Backend::top_logits(int) const {
  return make_error(ErrorKind::kUnsupported, "this back end hands out whole rows of logits");
}

inline Result<std::span<const float>> Backend::whole_rows(int, int) {
  return make_error(ErrorKind::kUnsupported, "this back end hands out whole rows of logits");
}

inline Result<std::unique_ptr<CodeSearch>> Backend::new_code_search(int) {
  return make_error(ErrorKind::kUnsupported, "this back end does not search codes: the host scans them");
}

}  // namespace rhapsode::kernels
