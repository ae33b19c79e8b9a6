#include "kernels/cuda/program.h"

#include <algorithm>
#include <cassert>

namespace rhapsode::kernels::cuda {

namespace {

// The GraphBuilder: one operation a call, nothing fused yet.
class Recorder final : public GraphBuilder {
 public:
  explicit Recorder(std::span<const WeightShape> weights) : weights_(weights) {}

  Value token_rows(Weight table) override {
    return emit({.kind = OpKind::kTokenRows, .weight = table.id}, weights_[table.id].columns, false);
  }
  Value matmul(Weight matrix, Value x) override {
    Op op{.kind = OpKind::kMatmul, .in = {x.id, -1, -1}, .weight = matrix.id};
    return emit(op, weights_[matrix.id].rows, like(x));
  }
  Value add(Value a, Value b) override {
    return emit({.kind = OpKind::kAdd, .in = {a.id, b.id, -1}}, features(a), like(a));
  }
  Value add_bias(Value x, Weight bias) override {
    Op op{.kind = OpKind::kAddBias, .in = {x.id, -1, -1}, .bias = bias.id};
    return emit(op, features(x), like(x));
  }
  Value scale(Value x, float factor) override {
    Op op{.kind = OpKind::kScale, .in = {x.id, -1, -1}, .number = factor};
    return emit(op, features(x), like(x));
  }
  Value rms_norm(Value x, Weight gain, float epsilon) override {
    Op op{.kind = OpKind::kRmsNorm, .in = {x.id, -1, -1}, .weight = gain.id, .number = epsilon};
    return emit(op, features(x), like(x));
  }
  Value head_rms_norm(Value x, int head_dim, Weight gain, float epsilon) override {
    Op op{.kind = OpKind::kHeadRmsNorm, .in = {x.id, -1, -1}, .weight = gain.id, .number = epsilon};
    op.head_dim = head_dim;
    return emit(op, features(x), like(x));
  }
  Value gate(Activation activation, Value gate, Value up) override {
    Op op{.kind = OpKind::kGate, .in = {gate.id, up.id, -1}, .activation = activation};
    return emit(op, features(gate), like(gate));
  }
  Value attend(int layer, Value q, Value k, Value v) override {
    return emit({.kind = OpKind::kAttend, .in = {q.id, k.id, v.id}, .layer = layer}, features(q), false);
  }
  Value output_rows(Value x) override {
    return emit({.kind = OpKind::kOutputRows, .in = {x.id, -1, -1}}, features(x), true);
  }
  Value soft_cap(Value x, float cap) override {
    Op op{.kind = OpKind::kSoftCap, .in = {x.id, -1, -1}, .number = cap};
    return emit(op, features(x), like(x));
  }
  void require(Value x) override { roots_.push_back(x.id); }

  Program finish(Value result) {
    program_.result = result.id;
    roots_.push_back(result.id);
    return std::move(program_);
  }
  const std::vector<int>& roots() const { return roots_; }

 private:
  int64_t features(Value x) const { return program_.values[x.id].features; }
  bool like(Value x) const { return program_.values[x.id].outputs_only; }
  Value emit(Op op, int64_t width, bool outputs_only) {
    op.out = static_cast<int>(program_.values.size());
    program_.values.push_back({width, outputs_only, Element::kF32, -1});
    program_.ops.push_back(op);
    return Value{op.out};
  }

  std::span<const WeightShape> weights_;
  Program program_;
  std::vector<int> roots_;
};

std::vector<int> count_uses(const Program& program, std::span<const int> roots) {
  std::vector<int> uses(program.values.size());
  for (const Op& op : program.ops) {
    for (const int in : op.in) uses[in < 0 ? 0 : in] += in >= 0;
  }
  for (const int root : roots) ++uses[root];
  return uses;
}

// Keeps what the roots depend on.
void drop_dead(Program& program, std::span<const int> roots) {
  std::vector<bool> alive(program.values.size());
  for (const int root : roots) alive[root] = true;
  for (auto op = program.ops.rbegin(); op != program.ops.rend(); ++op) {
    if (!alive[op->out]) continue;
    for (const int in : op->in) {
      if (in >= 0) alive[in] = true;
    }
  }
  std::erase_if(program.ops, [&](const Op& op) { return !alive[op.out]; });
}

// A matmul whose result is only biased or only added to something does that itself, where the addition stood.
void fuse_matmuls(Program& program, std::span<const int> roots) {
  const std::vector<int> uses = count_uses(program, roots);
  std::vector<int> producer(program.values.size(), -1);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    const auto matmul_of = [&](int value) -> Op* {
      if (uses[value] != 1 || producer[value] < 0) return nullptr;
      Op& made_by = program.ops[producer[value]];
      return made_by.kind == OpKind::kMatmul && made_by.in[1] < 0 ? &made_by : nullptr;
    };
    Op* matmul = nullptr;
    Op fused;
    if (op.kind == OpKind::kAddBias) {
      matmul = matmul_of(op.in[0]);
      if (matmul && matmul->bias >= 0) matmul = nullptr;
      if (matmul) fused = *matmul;
      fused.bias = op.bias;
    } else if (op.kind == OpKind::kAdd && op.in[0] != op.in[1]) {
      const int first = matmul_of(op.in[0]) ? 0 : 1;
      matmul = matmul_of(op.in[first]);
      if (matmul) fused = *matmul;
      fused.in[1] = op.in[1 - first];
    }
    if (matmul) {
      matmul->out = -1;
      fused.out = op.out;
      op = fused;
    }
    producer[op.out] = static_cast<int>(i);
  }
  std::erase_if(program.ops, [](const Op& op) { return op.out < 0; });
}

bool can_make_bf16(OpKind kind) {
  return kind == OpKind::kRmsNorm || kind == OpKind::kGate || kind == OpKind::kAttend ||
         kind == OpKind::kOutputRows;
}

// What every reader multiplies in bf16 is made so; what only some do is converted for them.
void choose_elements(Program& program, std::span<const WeightShape> weights, std::span<const int> roots) {
  std::vector<bool> narrow(program.values.size(), true);
  std::vector<bool> read(program.values.size());
  for (const int root : roots) narrow[root] = false;
  for (auto op = program.ops.rbegin(); op != program.ops.rend(); ++op) {
    const bool passes_on = op->kind == OpKind::kOutputRows && read[op->out] && narrow[op->out];
    for (int i = 0; i < 3; ++i) {
      if (op->in[i] < 0) continue;
      const bool bf16_factor =
          op->kind == OpKind::kMatmul && i == 0 && weights[op->weight].element == Element::kBF16;
      read[op->in[i]] = true;
      if (!bf16_factor && !passes_on) narrow[op->in[i]] = false;
    }
  }
  for (const Op& op : program.ops) {
    // Gathering rows changes no element: it can make bf16 only of bf16.
    const bool source = op.kind != OpKind::kOutputRows || program.values[op.in[0]].element == Element::kBF16;
    if (can_make_bf16(op.kind) && source && read[op.out] && narrow[op.out]) {
      program.values[op.out].element = Element::kBF16;
    }
  }
  // A value that went through a gather stays wide when its gather could not be narrow.
  std::vector<Op> ops;
  std::vector<int> converted(program.values.size(), -1);
  for (Op op : program.ops) {
    const bool needs = op.kind == OpKind::kMatmul && weights[op.weight].element == Element::kBF16 &&
                       program.values[op.in[0]].element == Element::kF32;
    if (needs) {
      int& copy = converted[op.in[0]];
      if (copy < 0) {
        copy = static_cast<int>(program.values.size());
        ProgramValue value = program.values[op.in[0]];
        value.element = Element::kBF16;
        program.values.push_back(value);
        ops.push_back({.kind = OpKind::kConvert, .out = copy, .in = {op.in[0], -1, -1}});
      }
      op.in[0] = copy;
    }
    ops.push_back(op);
  }
  program.ops = std::move(ops);
}

// Linear scan: a slot is free again once the last reader of its value has run.
void assign_slots(Program& program, std::span<const int> roots) {
  std::vector<size_t> last_use(program.values.size());
  for (size_t i = 0; i < program.ops.size(); ++i) {
    for (const int in : program.ops[i].in) {
      if (in >= 0) last_use[in] = i;
    }
  }
  for (const int root : roots) last_use[root] = program.ops.size();
  std::vector<int> free;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    ProgramValue& out = program.values[program.ops[i].out];
    // The free slot that grows least by this value.
    const auto growth = [&](int slot) {
      const Slot& s = program.slots[slot];
      const size_t now = out.outputs_only ? s.output_row_bytes : s.all_row_bytes;
      return out.row_bytes() > now ? out.row_bytes() - now : 0;
    };
    const auto best = std::min_element(free.begin(), free.end(),
                                       [&](int a, int b) { return growth(a) < growth(b); });
    if (best == free.end()) {
      out.slot = static_cast<int>(program.slots.size());
      program.slots.emplace_back();
    } else {
      out.slot = *best;
      free.erase(best);
    }
    Slot& slot = program.slots[out.slot];
    size_t& row_bytes = out.outputs_only ? slot.output_row_bytes : slot.all_row_bytes;
    row_bytes = std::max(row_bytes, out.row_bytes());
    for (int n = 0; n < 3; ++n) {
      const int in = program.ops[i].in[n];
      const bool seen = std::find(program.ops[i].in, program.ops[i].in + n, in) != program.ops[i].in + n;
      if (in >= 0 && !seen && last_use[in] == i) free.push_back(program.values[in].slot);
    }
    if (last_use[program.ops[i].out] <= i) free.push_back(out.slot);  // nobody reads it: attention's writes
  }
}

}  // namespace

size_t Slot::bytes(int rows, int outputs) const {
  constexpr size_t kAlignment = 256;
  const size_t bytes = std::max(all_row_bytes * static_cast<size_t>(rows),
                                output_row_bytes * static_cast<size_t>(outputs));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Program record_program(const Recipe& recipe, std::span<const WeightShape> weights) {
  Recorder recorder(weights);
  const Value result = recipe(recorder);
  Program program = recorder.finish(result);
  const std::vector<int>& roots = recorder.roots();
  drop_dead(program, roots);
  fuse_matmuls(program, roots);
  choose_elements(program, weights, roots);
  assign_slots(program, roots);
  return program;
}

}  // namespace rhapsode::kernels::cuda
