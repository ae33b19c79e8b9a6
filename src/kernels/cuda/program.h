// A recipe as the CUDA back end runs it: a list of operations over values in a few shared slots of memory.
//
// Recorded once a recipe, for any number of rows: a value is [rows][features] with rows = all rows of the
// batch or the output rows only. Recording fuses biases and residual additions into matmuls, joins matmuls of
// one input (q, k and v; gate and up) into one whose parts are read in place, chooses each value's element
// (what only bf16 matmuls read is made as bf16), drops what nothing needs and gives every value a slot that
// no value alive at the same time has. Pure host code. Threads: const once made. Cost: O(operations).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device_types.h"
#include "kernels/graph.h"

namespace rhapsode::kernels::cuda {

struct WeightShape {
  int64_t columns = 0;
  int64_t rows = 0;
  Element element = Element::kF32;  // as it lies on the device
};

enum class OpKind : uint8_t {
  kTokenRows,
  kMatmul,  // also adds `bias` and `residual`, where there are any
  kAdd,
  kAddBias,
  kScale,
  kRmsNorm,
  kHeadRmsNorm,
  kGate,
  kAttend,
  kOutputRows,
  kSoftCap,
  kConvert,  // f32 to bf16
};

constexpr int kMostJoined = 3;

struct Op {
  OpKind kind = OpKind::kAdd;
  int out = -1;              // values
  int in[3] = {-1, -1, -1};  // the second of a matmul is its residual
  int weight = -1;
  int bias = -1;
  // A joined matmul: the matrices that lie one below the other, and the biases where there are any. `weight`
  // and `bias` are then the joined ones, made by whoever holds the weights.
  int joined = 0;
  int weights[kMostJoined] = {-1, -1, -1};
  int biases[kMostJoined] = {-1, -1, -1};
  int layer = 0;
  bool writes_only = false;   // nobody reads what attention gives: only its keys and values are wanted
  bool outputs_only = false;  // nobody reads what attention gives but of output rows
  int head_dim = 0;
  float number = 0.0f;  // scale, epsilon or cap
  Activation activation = Activation::kSilu;
};

struct ProgramValue {
  int64_t features = 0;
  bool outputs_only = false;
  Element element = Element::kF32;
  int slot = -1;
  int parent = -1;  // a part of each row of another value, `offset` features in; has no slot of its own
  int64_t offset = 0;

  size_t row_bytes() const { return static_cast<size_t>(features) * element_bytes(element); }
};

// The largest value of each kind of row that a slot holds.
struct Slot {
  size_t all_row_bytes = 0;
  size_t output_row_bytes = 0;

  size_t bytes(int rows, int outputs) const;
};

struct Program {
  std::vector<Op> ops;
  std::vector<ProgramValue> values;
  std::vector<Slot> slots;
  int result = -1;
};

// weights[i] is Weight{i}.
Program record_program(const Recipe& recipe, std::span<const WeightShape> weights);

}  // namespace rhapsode::kernels::cuda
