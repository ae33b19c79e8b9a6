#include "kernels/cuda/program.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rhapsode::kernels::cuda {
namespace {

// Weights by name: square bf16 matrices, vectors and one float32 matrix.
const std::vector<WeightShape> kWeights = {
    {64, 1000, Element::kBF16},  // 0: table
    {64, 1, Element::kF32},      // 1: gain or bias
    {64, 64, Element::kBF16},    // 2: matrix
    {64, 64, Element::kF32},     // 3: exact matrix
    {64, 256, Element::kBF16},   // 4: gate, up
    {256, 64, Element::kBF16},   // 5: down
};
constexpr Weight kTable{0}, kVector{1}, kMatrix{2}, kExact{3}, kWide{4}, kDown{5};

int count(const Program& program, OpKind kind) {
  return static_cast<int>(
      std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

const Op& only(const Program& program, OpKind kind) {
  return *std::find_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; });
}

Value block(GraphBuilder& graph, Value x, bool last) {
  const Value normed = graph.rms_norm(x, kVector, 1e-5f);
  const Value q = graph.add_bias(graph.matmul(kMatrix, normed), kVector);
  const Value k = graph.matmul(kMatrix, normed);
  const Value v = graph.matmul(kMatrix, normed);
  Value h = graph.attend(0, q, k, v);
  if (last) {
    h = graph.output_rows(h);
    x = graph.output_rows(x);
  }
  x = graph.add(graph.matmul(kMatrix, h), x);
  const Value y = graph.rms_norm(x, kVector, 1e-5f);
  const Value gated = graph.gate(Activation::kSilu, graph.matmul(kWide, y), graph.matmul(kWide, y));
  return graph.add(graph.matmul(kDown, gated), x);
}

// Every value is read only while its slot still holds it.
void expect_slots_hold(const Program& program) {
  std::vector<int> holder(program.slots.size(), -1);
  for (const Op& op : program.ops) {
    for (const int in : op.in) {
      if (in < 0) continue;
      const int parent = program.values[in].parent;
      EXPECT_EQ(holder[program.values[in].slot], parent < 0 ? in : parent);
      EXPECT_NE(program.values[in].slot, program.values[op.out].slot) << "overwrites its input";
    }
    holder[program.values[op.out].slot] = op.out;
    const ProgramValue& value = program.values[op.out];
    EXPECT_GE(program.slots[value.slot].bytes(7, 3), value.row_bytes() * (value.outputs_only ? 3 : 7));
  }
  EXPECT_EQ(holder[program.values[program.result].slot], program.result);
}

TEST(Program, BiasesAndResidualsBecomePartOfTheirMatmuls) {
  const Program program = record_program(
      [](GraphBuilder& graph) { return block(graph, graph.token_rows(kTable), true); }, kWeights);
  EXPECT_EQ(count(program, OpKind::kAdd), 0);
  EXPECT_EQ(count(program, OpKind::kAddBias), 0);
  EXPECT_EQ(count(program, OpKind::kMatmul), 5) << "k with v and gate with up are one each";
  EXPECT_EQ(count(program, OpKind::kConvert), 0);
  int biased = 0;
  int added = 0;
  for (const Op& op : program.ops) {
    biased += op.bias >= 0;
    added += op.kind == OpKind::kMatmul && op.in[1] >= 0;
  }
  EXPECT_EQ(biased, 1);
  EXPECT_EQ(added, 2);
  expect_slots_hold(program);
}

TEST(Program, WhatOnlyBf16MatmulsReadIsMadeAsBf16) {
  const Program program = record_program(
      [](GraphBuilder& graph) { return block(graph, graph.token_rows(kTable), true); }, kWeights);
  const auto element = [&](OpKind kind) { return program.values[only(program, kind).out].element; };
  EXPECT_EQ(element(OpKind::kTokenRows), Element::kF32);
  EXPECT_EQ(element(OpKind::kRmsNorm), Element::kBF16);
  EXPECT_EQ(element(OpKind::kAttend), Element::kBF16);
  EXPECT_EQ(element(OpKind::kGate), Element::kBF16);
  EXPECT_EQ(program.values[program.result].element, Element::kF32);
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::kMatmul) continue;
    EXPECT_EQ(program.values[op.in[0]].element, Element::kBF16);
    const bool gated = program.values[op.out].features == 512;
    EXPECT_EQ(program.values[op.out].element, gated ? Element::kBF16 : Element::kF32);
  }
}

TEST(Program, MatmulsOfOneInputAreJoinedAndReadInPlace) {
  const auto qkv = [](bool biased) {
    return [biased](GraphBuilder& graph) {
      const Value x = graph.rms_norm(graph.token_rows(kTable), kVector, 1e-5f);
      const auto linear = [&](Value in) {
        const Value y = graph.matmul(kMatrix, in);
        return biased ? graph.add_bias(y, kVector) : y;
      };
      const Value q = linear(x);
      const Value k = linear(x);
      const Value v = linear(x);
      return graph.attend(0, q, k, v);
    };
  };
  for (const bool biased : {false, true}) {
    const Program program = record_program(qkv(biased), kWeights);
    ASSERT_EQ(count(program, OpKind::kMatmul), 1);
    const Op& op = only(program, OpKind::kMatmul);
    EXPECT_EQ(op.joined, 3);
    EXPECT_EQ(program.values[op.out].features, 192);
    EXPECT_EQ(op.biases[2], biased ? kVector.id : -1);
    const Op& attend = only(program, OpKind::kAttend);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(program.values[attend.in[i]].parent, op.out);
      EXPECT_EQ(program.values[attend.in[i]].offset, 64 * i);
    }
    expect_slots_hold(program);
  }
}

TEST(Program, AValueReadBothWaysIsConvertedOnce) {
  const Program program = record_program(
      [](GraphBuilder& graph) {
        const Value x = graph.rms_norm(graph.token_rows(kTable), kVector, 1e-5f);
        const Value a = graph.add(graph.matmul(kMatrix, x), graph.matmul(kExact, x));
        return graph.add(a, graph.matmul(kMatrix, x));
      },
      kWeights);
  EXPECT_EQ(count(program, OpKind::kConvert), 1);
  EXPECT_EQ(program.values[only(program, OpKind::kRmsNorm).out].element, Element::kF32);
  expect_slots_hold(program);
}

TEST(Program, WhatNothingNeedsIsLeftOutUnlessRequired) {
  const auto recipe = [](bool required) {
    return [required](GraphBuilder& graph) {
      const Value x = graph.token_rows(kTable);
      const Value tapped = graph.output_rows(x);
      const Value y = block(graph, x, false);
      if (required) graph.require(y);
      return tapped;
    };
  };
  const Program bare = record_program(recipe(false), kWeights);
  EXPECT_EQ(bare.ops.size(), 2u);
  const Program full = record_program(recipe(true), kWeights);
  EXPECT_EQ(count(full, OpKind::kAttend), 1);
  expect_slots_hold(full);
}

TEST(Program, AttentionThatIsOnlyRequiredOnlyWrites) {
  const auto recipe = [](bool read) {
    return [read](GraphBuilder& graph) {
      const Value x = graph.token_rows(kTable);
      const Value q = graph.matmul(kMatrix, x);
      const Value attended = graph.attend(0, q, q, q);
      graph.require(attended);
      return read ? graph.add(x, attended) : graph.output_rows(x);
    };
  };
  EXPECT_TRUE(only(record_program(recipe(false), kWeights), OpKind::kAttend).writes_only);
  EXPECT_FALSE(only(record_program(recipe(true), kWeights), OpKind::kAttend).writes_only);
}

TEST(Program, AttentionWhoseOutputRowsAreReadIsOfThoseOnly) {
  const auto recipe = [](bool read_whole) {
    return [read_whole](GraphBuilder& graph) {
      const Value x = graph.token_rows(kTable);
      const Value q = graph.matmul(kMatrix, x);
      const Value attended = graph.attend(0, q, q, q);
      if (read_whole) graph.require(graph.add(x, attended));
      return graph.output_rows(attended);
    };
  };
  EXPECT_TRUE(only(record_program(recipe(false), kWeights), OpKind::kAttend).outputs_only);
  EXPECT_FALSE(only(record_program(recipe(true), kWeights), OpKind::kAttend).outputs_only);
}

TEST(Program, SlotsAreFewAndSharedBetweenLayers) {
  const auto layers = [](int layer_count) {
    return record_program(
        [layer_count](GraphBuilder& graph) {
          Value x = graph.token_rows(kTable);
          for (int layer = 0; layer < layer_count; ++layer) x = block(graph, x, layer == layer_count - 1);
          return x;
        },
        kWeights);
  };
  const Program program = layers(12);
  expect_slots_hold(program);
  EXPECT_LE(program.slots.size(), 6u);
}

TEST(Program, ABiasOfAResultThatIsReadTwiceStaysOnItsOwn) {
  const Program program = record_program(
      [](GraphBuilder& graph) {
        const Value y = graph.matmul(kExact, graph.token_rows(kTable));
        return graph.add(graph.add_bias(y, kVector), y);
      },
      kWeights);
  EXPECT_EQ(count(program, OpKind::kAddBias), 1);
  EXPECT_EQ(count(program, OpKind::kAdd), 1);
  expect_slots_hold(program);
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
