// Passes of every size and goal, one after the other, as an engine mixes them: a pass that is replayed from a
// graph has to equal the same pass launched kernel by kernel, and so does one whose pages are spread over
// several shards. Needs a GPU; also what compute-sanitizer is run over.
#include <fmt/format.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/attend_test_support.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/nccl_library.h"
#include "kernels/cuda/sharded_cuda.h"
#include "kernels/element.h"
#include "kernels/reference/top_logits.h"

namespace rhapsode::kernels::cuda {
namespace {

using testing::Random;
using testing::uniform;

// The shapes of a small published model, but for the number of layers and words.
struct Shape {
  const char* name;
  int heads;
  int kv_heads;
  int head_dim;
  int hidden;
};
constexpr Shape kShapes[] = {{"d64", 14, 2, 64, 4864}, {"d128", 12, 2, 128, 8960}};

constexpr int kLayers = 2;
constexpr int kVocabulary = 4096;
constexpr int kContextPages = 12;
constexpr int kMostSequences = 10;
constexpr int kPagesOfSequence = 2;  // of its own
enum Goal : int { kLogits, kStates, kGoals };

// bf16 numbers, of which every backend has its own copy.
class Numbers {
 public:
  Numbers(Random& random, size_t count, float largest) : bits_(count) {
    for (uint16_t& x : bits_) {
      x = f32_to_bf16(largest * static_cast<float>(uniform(random, -1000, 1000)) / 1000.0f);
    }
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bits_)); }

 private:
  std::vector<uint16_t> bits_;
};

struct LayerParts {
  Numbers q, k, v, q_bias, k_bias, v_bias, output, gate, up, down;
};

// What both sides read.
struct Model {
  Model(const Shape& of, Random& random)
      : shape(of),
        width(of.heads * of.head_dim),
        kv_width(of.kv_heads * of.head_dim),
        embedding(numbers(random, kVocabulary, width)),
        gain(random, static_cast<size_t>(width), 1.0f) {
    const auto bias = [&](int rows) { return Numbers(random, static_cast<size_t>(rows), 0.5f); };
    for (int layer = 0; layer < kLayers; ++layer) {
      layers.push_back({numbers(random, width, width), numbers(random, kv_width, width),
                        numbers(random, kv_width, width), bias(width), bias(kv_width), bias(kv_width),
                        numbers(random, width, width), numbers(random, of.hidden, width),
                        numbers(random, of.hidden, width), numbers(random, width, of.hidden)});
    }
  }
  static Numbers numbers(Random& random, int rows, int columns) {
    return {random, static_cast<size_t>(rows) * static_cast<size_t>(columns),
            1.0f / std::sqrt(static_cast<float>(columns))};
  }

  Shape shape;
  int width;
  int kv_width;
  Numbers embedding;
  Numbers gain;
  std::vector<LayerParts> layers;
};

struct LayerWeights {
  Weight q, k, v, q_bias, k_bias, v_bias, output, gate, up, down;
};

// A backend with its pages. Two of them get the same passes.
class Side {
 public:
  // `gpus`: of its shards; empty: one back end without any.
  Side(const Model& model, bool graphs, std::span<const int> gpus = {}) : model_(model) {
    BackendOptions options;
    options.kv = {kLayers, model.shape.kv_heads, model.shape.head_dim, KvType::kF16};
    options.layers.resize(kLayers);
    for (AttendLayer& layer : options.layers) {
      layer.heads = model.shape.heads;
      layer.scale = 1.0f / std::sqrt(static_cast<float>(model.shape.head_dim));
      layer.rope.dimensions = model.shape.head_dim;
    }
    options.layer_times = !graphs;  // such passes are launched kernel by kernel
    kv_ = options.kv;
    auto made = gpus.empty() ? make_cuda_backend(std::move(options))
                             : make_sharded_cuda_backend(std::move(options), gpus);
    if (!made.ok()) {
      fail(made.error());
      return;
    }
    backend_ = std::move(made.value());
    add_weights();
    for (const Goal goal : {kLogits, kStates, kGoals}) {
      recipes_[goal] =
          backend_->add_recipe([this, goal](GraphBuilder& graph) { return record(graph, goal); });
    }
    make_pages();
  }

  const KvShape& kv() const { return kv_; }
  Page* context_page(int i) { return &pages_[static_cast<size_t>(i)]; }
  Page* own_page(int sequence, int i) {
    return &pages_[static_cast<size_t>(kContextPages + sequence * kPagesOfSequence + i)];
  }
  Result<std::span<const float>> run(const BatchInput& batch, Goal goal) {
    return backend_->run(batch, recipes_[goal]);
  }
  Result<std::span<const double>> mass(int sequence) const { return backend_->mass_per_token(sequence); }
  Result<TopLogits> top_logits(int output) const { return backend_->top_logits(output); }
  Result<std::span<const float>> whole_rows(int first, int count) {
    return backend_->whole_rows(first, count);
  }

 private:
  void fail(const Error& error) { ADD_FAILURE() << error.message; }

  Weight add(const Numbers& numbers, int rows, int columns, WeightUse use = WeightUse::kMatrix) {
    const auto weight = backend_->add_weight({"w", GGML_TYPE_BF16, columns, rows, numbers.bytes()}, use);
    if (!weight.ok()) fail(weight.error());
    return weight.ok() ? weight.value() : Weight{};
  }
  Weight add_vector(const Numbers& numbers, int columns) {
    return add(numbers, 1, columns, WeightUse::kVector);
  }

  void add_weights() {
    const int width = model_.width;
    const int kv_width = model_.kv_width;
    const int hidden = model_.shape.hidden;
    table_ = add(model_.embedding, kVocabulary, width, WeightUse::kTable);
    head_ = add(model_.embedding, kVocabulary, width);
    gain_ = add_vector(model_.gain, width);
    for (const LayerParts& parts : model_.layers) {
      layers_.push_back({add(parts.q, width, width), add(parts.k, kv_width, width),
                         add(parts.v, kv_width, width), add_vector(parts.q_bias, width),
                         add_vector(parts.k_bias, kv_width), add_vector(parts.v_bias, kv_width),
                         add(parts.output, width, width), add(parts.gate, hidden, width),
                         add(parts.up, hidden, width), add(parts.down, width, hidden)});
    }
  }

  Value attention(GraphBuilder& graph, int layer, Value x) const {
    const LayerWeights& w = layers_[static_cast<size_t>(layer)];
    const Value n = graph.rms_norm(x, gain_, 1e-6f);
    const Value q = graph.add_bias(graph.matmul(w.q, n), w.q_bias);
    const Value k = graph.add_bias(graph.matmul(w.k, n), w.k_bias);
    const Value v = graph.add_bias(graph.matmul(w.v, n), w.v_bias);
    return graph.attend(layer, q, k, v);
  }

  // Logits, states between the blocks and all keys and values, or only those states.
  Value record(GraphBuilder& graph, Goal goal) const {
    Value x = graph.token_rows(table_);
    Value tapped;
    for (int layer = 0; layer < kLayers; ++layer) {
      const LayerWeights& w = layers_[static_cast<size_t>(layer)];
      const bool last = layer == kLayers - 1;
      if (last && goal != kLogits) tapped = graph.output_rows(x);
      if (last && goal == kGoals) return tapped;
      Value h = attention(graph, layer, x);
      if (last && goal == kStates) {
        graph.require(h);
        return tapped;
      }
      if (last) {
        h = graph.output_rows(h);
        x = graph.output_rows(x);
      }
      x = graph.add(graph.matmul(w.output, h), x);
      const Value n = graph.rms_norm(x, gain_, 1e-6f);
      const Value gated = graph.gate(Activation::kSilu, graph.matmul(w.gate, n), graph.matmul(w.up, n));
      x = graph.add(graph.matmul(w.down, gated), x);
    }
    return graph.matmul(head_, graph.rms_norm(x, gain_, 1e-6f));
  }

  void make_pages() {
    memory_ = backend_->new_page_memory();
    pages_.resize(kContextPages + kMostSequences * kPagesOfSequence);
    const auto regions = memory_->reserve_each(pages_.size() * kv_.block_bytes());
    if (!regions.ok()) return fail(regions.error());
    // What nobody wrote is never used, whatever it says.
    const std::vector<std::byte> nothing(kv_.block_bytes(), std::byte{0xff});
    for (size_t i = 0; i < pages_.size(); ++i) {
      const size_t device = i * 7 % 5 % regions->size();
      pages_[i].device = static_cast<int32_t>(device);
      pages_[i].data = regions.value()[device] + i * kv_.block_bytes();
      if (Status status = memory_->copy_in(pages_[i].data, nothing); !status.ok()) fail(status.error());
      for (int slot = 0; slot < kPageTokens; ++slot) {
        pages_[i].positions[static_cast<size_t>(slot)] = static_cast<int32_t>(i) * kPageTokens + slot;
      }
    }
  }

  const Model& model_;
  KvShape kv_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<PageMemory> memory_;
  Weight table_, head_, gain_;
  std::vector<LayerWeights> layers_;
  std::array<int, 3> recipes_{};
  std::vector<Page> pages_;
};

// A pass, side by side.
struct Pass {
  Goal goal = kLogits;
  int sequences = 1;
  int rows = 1;     // of each
  int outputs = 1;  // the last ones of each
  bool scored = false;
  bool fills_context = false;
  bool mass = false;
  int32_t top_logits_of = 0;
  std::vector<int> read;  // pages of the context, one after the other for their reader
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

Pass random_pass(Random& random) {
  // Few sizes, so that most passes have been seen before and are replayed.
  constexpr int kRows[] = {1, 2, 4, 5, 17, 20, 23, 63, 64, 65, 100};
  constexpr int kReads[] = {0, 1, 4, 11};
  Pass pass;
  pass.goal = static_cast<Goal>(uniform(random, 0, 2));
  pass.rows = kRows[uniform(random, 0, std::size(kRows) - 1)];
  pass.sequences = uniform(random, 0, 2) == 0 ? uniform(random, 2, kMostSequences) : 1;
  pass.scored = pass.goal == kLogits && uniform(random, 0, 1) == 0;
  pass.outputs = pass.scored ? pass.rows : uniform(random, 0, 1);
  constexpr int32_t kTopLogitsOf[] = {0, 0, 1, 300, kVocabulary};
  if (pass.goal == kLogits && !pass.scored) pass.top_logits_of = kTopLogitsOf[uniform(random, 0, 4)];
  const int reads = kReads[uniform(random, 0, std::size(kReads) - 1)];
  for (int i = 0; i < reads; ++i) pass.read.push_back(uniform(random, 0, kContextPages - 1));
  return pass;
}

Pass context_pass() {
  Pass pass;
  pass.goal = kStates;
  pass.rows = kContextPages * kPageTokens;
  pass.outputs = 0;
  pass.fills_context = true;
  return pass;
}

void draw_tokens(Random& random, Pass& pass) {
  for (int i = 0; i < pass.sequences * pass.rows; ++i) {
    pass.tokens.push_back(uniform(random, 0, kVocabulary - 1));
    if (pass.scored) pass.targets.push_back(uniform(random, 0, kVocabulary - 1));
  }
}

BatchPlan plan_of(Side& side, const Pass& pass) {
  BatchPlan plan;
  for (int s = 0; s < pass.sequences; ++s) {
    SequencePlan sequence;
    sequence.row_begin = s * pass.rows;
    sequence.row_count = pass.rows;
    int32_t begin = 0;
    for (const int page : pass.read) {
      sequence.references.push_back({side.context_page(page), begin - page * kPageTokens});
      begin += kPageTokens;
    }
    for (int row = 0; row < pass.rows; ++row) {
      const int index = row / kPageTokens;
      Page* page = pass.fills_context ? side.context_page(index) : side.own_page(s, index);
      const int slot = row % kPageTokens;
      if (slot == 0) sequence.references.push_back({page, begin + row - page->positions[0]});
      plan.writes.push_back({page, slot});
      plan.positions.push_back(begin + row);
    }
    plan.sequences.push_back(std::move(sequence));
  }
  return plan;
}

// The largest logits against the rows that they were found in; those rows.
Result<std::span<const float>> checked_rows(Side& side, const Pass& pass, int outputs) {
  for (int output = 0; output < outputs; ++output) {
    RH_TRY(const std::span<const float> row, side.whole_rows(output, 1));
    const auto expected = reference::top_logits(row.first(static_cast<size_t>(pass.top_logits_of)));
    RH_TRY(const TopLogits top, side.top_logits(output));
    EXPECT_TRUE(std::ranges::equal(top.tokens, expected.tokens));
    EXPECT_TRUE(std::ranges::equal(top.logits, expected.logits));
    EXPECT_NEAR(top.exp_sum, expected.exp_sum, 1e-10 * expected.exp_sum);
    EXPECT_EQ(top.possible, expected.possible);
    EXPECT_FALSE(top.broken);
  }
  EXPECT_FALSE(side.top_logits(outputs).ok());
  EXPECT_FALSE(side.whole_rows(0, outputs + 1).ok());
  return side.whole_rows(0, outputs);
}

Result<std::vector<float>> run(Side& side, const Pass& pass) {
  const BatchPlan plan = plan_of(side, pass);
  RH_TRY_STATUS(validate(plan, side.kv()));
  std::vector<int32_t> outputs;
  for (int s = 0; s < pass.sequences; ++s) {
    for (int row = pass.rows - pass.outputs; row < pass.rows; ++row) outputs.push_back(s * pass.rows + row);
  }
  RH_TRY(std::span<const float> result,
         side.run({pass.tokens, &plan, outputs, pass.mass, pass.targets, {}, pass.top_logits_of}, pass.goal));
  if (pass.top_logits_of > 0) {
    EXPECT_TRUE(result.empty());
    RH_TRY(result, checked_rows(side, pass, static_cast<int>(outputs.size())));
  }
  for (int i = 0; pass.fills_context && i < kContextPages; ++i) side.context_page(i)->count = kPageTokens;
  std::vector<float> all(result.begin(), result.end());
  for (int s = 0; pass.mass && s < pass.sequences; ++s) {
    RH_TRY(const std::span<const double> mass, side.mass(s));
    for (const double one : mass) all.push_back(static_cast<float>(one));
  }
  return all;
}

void expect_alike(const Pass& pass, Side& replayed, Side& launched) {
  const auto actual = run(replayed, pass);
  const auto expected = run(launched, pass);
  ASSERT_TRUE(actual.ok()) << actual.error().message;
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  ASSERT_EQ(actual->size(), expected->size());
  for (size_t i = 0; i < expected->size(); ++i) {
    const float wanted = (*expected)[i];
    ASSERT_TRUE(std::isfinite(wanted)) << i;
    ASSERT_NEAR((*actual)[i], wanted, 1e-2f * std::max(1.0f, std::abs(wanted))) << i;
  }
}

class MixedPasses : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, MixedPasses, ::testing::ValuesIn(kShapes),
                         [](const auto& shape) { return std::string(shape.param.name); });

TEST_P(MixedPasses, ReplayedEqualLaunched) {
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device();
  Random random(7);
  const Model model(GetParam(), random);
  Side replayed(model, true);
  Side launched(model, false);
  ASSERT_FALSE(HasFailure());
  Pass context = context_pass();
  draw_tokens(random, context);
  expect_alike(context, replayed, launched);
  for (int i = 0; i < 600 && !HasFailure(); ++i) {
    Pass pass = random_pass(random);
    draw_tokens(random, pass);
    SCOPED_TRACE(fmt::format("pass {}: goal {}, {} sequences of {} rows, {} outputs, {} pages read", i,
                             static_cast<int>(pass.goal), pass.sequences, pass.rows, pass.outputs,
                             pass.read.size()));
    expect_alike(pass, replayed, launched);
  }
}

// Passes of some shards, side by side with one back end.
void expect_sharded_as_one(const Model& model, const std::vector<int>& gpus, int passes) {
  Random random(11);
  Side one(model, false);
  Side sharded(model, true, gpus);
  ASSERT_FALSE(::testing::Test::HasFailure());
  Pass context = context_pass();
  draw_tokens(random, context);
  expect_alike(context, sharded, one);
  for (int i = 0; i < passes && !::testing::Test::HasFailure(); ++i) {
    Pass pass = random_pass(random);
    pass.mass = pass.goal != kGoals && uniform(random, 0, 2) == 0;
    draw_tokens(random, pass);
    SCOPED_TRACE(
        fmt::format("pass {} on {} shards: goal {}, {} sequences of {} rows, {} outputs, {} pages read{}", i,
                    gpus.size(), static_cast<int>(pass.goal), pass.sequences, pass.rows, pass.outputs,
                    pass.read.size(), pass.mass ? ", mass" : ""));
    expect_alike(pass, sharded, one);
  }
}

TEST_P(MixedPasses, ShardsOnOneGpuEqualOne) {
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device();
  Random random(7);
  const Model model(GetParam(), random);
  expect_sharded_as_one(model, {0, 0}, 60);
  expect_sharded_as_one(model, {0, 0, 0}, 60);
}

// With as many GPUs as there are; one exchanges with itself.
TEST_P(MixedPasses, ShardsThatNcclJoinsEqualOne) {
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device();
  const auto nccl = nccl_library();
  if (!nccl.ok()) GTEST_SKIP() << nccl.error().message;
  Random random(7);
  const Model model(GetParam(), random);
  expect_sharded_as_one(model, {0}, 60);
  for (std::vector<int> gpus = {0, 1}; check_devices(gpus).ok();
       gpus.push_back(static_cast<int>(gpus.size()))) {
    expect_sharded_as_one(model, gpus, 60);
  }
}

TEST(ShardedCuda, RefusesGpusThatAreNotThere) {
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device();
  const auto refused = make_sharded_cuda_backend({}, std::vector<int>{0, 4096});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(refused.error().message.find("4096"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
