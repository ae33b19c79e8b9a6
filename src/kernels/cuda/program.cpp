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

// Readers that take any distance from row to row.
bool reads_strided(const Op& op) {
  return op.kind == OpKind::kAttend || op.kind == OpKind::kGate || op.kind == OpKind::kHeadRmsNorm;
}

// Matmuls of one input, next to one another and read only by such, become one.
void join_matmuls(Program& program, std::span<const WeightShape> weights, std::span<const int> roots) {
  std::vector<bool> joinable(program.values.size(), true);
  for (const int root : roots) joinable[root] = false;
  for (const Op& op : program.ops) {
    for (const int in : op.in) {
      if (in >= 0 && !reads_strided(op)) joinable[in] = false;
    }
  }
  const auto fits = [&](const Op& op, const Op& first) {
    return op.kind == OpKind::kMatmul && op.in[0] == first.in[0] && op.in[1] < 0 && joinable[op.out] &&
           weights[op.weight].element == weights[first.weight].element && (op.bias >= 0) == (first.bias >= 0);
  };
  std::vector<Op> ops;
  for (size_t i = 0; i < program.ops.size();) {
    const Op& first = program.ops[i];
    size_t end = i;
    while (end < program.ops.size() && end < i + kMostJoined && fits(program.ops[end], first)) ++end;
    if (end < i + 2) {
      ops.push_back(first);
      ++i;
      continue;
    }
    Op op = first;
    op.out = static_cast<int>(program.values.size());
    ProgramValue whole = program.values[first.out];
    whole.features = 0;
    for (; i < end; ++i, ++op.joined) {
      op.weights[op.joined] = program.ops[i].weight;
      op.biases[op.joined] = program.ops[i].bias;
      ProgramValue& part = program.values[program.ops[i].out];
      part.parent = op.out;
      part.offset = whole.features;
      whole.features += part.features;
    }
    program.values.push_back(whole);
    ops.push_back(op);
  }
  program.ops = std::move(ops);
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
  // What is only multiplied with one another by a gate is rounded behind it anyway.
  std::vector<bool> gated(program.values.size(), true);
  const auto is_root = [&](int value) { return std::find(roots.begin(), roots.end(), value) != roots.end(); };
  const auto whole_of = [&](int value) {
    return program.values[value].parent < 0 ? value : program.values[value].parent;
  };
  for (const Op& op : program.ops) {
    for (const int in : op.in) {
      if (in >= 0 && op.kind != OpKind::kGate) gated[whole_of(in)] = false;
    }
  }
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
    const bool bf16_product = op.joined > 0 && weights[op.weight].element == Element::kBF16;
    if (bf16_product && op.bias < 0 && gated[op.out] && !is_root(op.out)) {
      program.values[op.out].element = Element::kBF16;
    }
  }
  for (ProgramValue& value : program.values) {
    if (value.parent >= 0) value.element = program.values[value.parent].element;
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

void find_unread(Program& program) {
  const std::vector<int> uses = count_uses(program, {});
  std::vector<int> gathers(program.values.size());
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kOutputRows) ++gathers[op.in[0]];
  }
  for (Op& op : program.ops) {
    // A root that is not the result is there for what its making leaves behind.
    const bool read_inside = op.kind == OpKind::kAttend && op.out != program.result;
    op.writes_only = read_inside && uses[op.out] == 0;
    op.outputs_only = read_inside && uses[op.out] > 0 && uses[op.out] == gathers[op.out];
  }
}

// The value whose slot holds a value.
int holder(const Program& program, int value) {
  return program.values[value].parent < 0 ? value : program.values[value].parent;
}

// The free slot that grows least by a value, or a new one.
int take_slot(Program& program, std::vector<int>& free, const ProgramValue& value) {
  const auto growth = [&](int slot) {
    const Slot& s = program.slots[slot];
    const size_t now = value.outputs_only ? s.output_row_bytes : s.all_row_bytes;
    return value.row_bytes() > now ? value.row_bytes() - now : 0;
  };
  const auto best =
      std::min_element(free.begin(), free.end(), [&](int a, int b) { return growth(a) < growth(b); });
  if (best == free.end()) {
    program.slots.emplace_back();
    return static_cast<int>(program.slots.size()) - 1;
  }
  const int slot = *best;
  free.erase(best);
  return slot;
}

// Linear scan: a slot is free again once the last reader of its value has run.
void assign_slots(Program& program, std::span<const int> roots) {
  std::vector<size_t> last_use(program.values.size());
  for (size_t i = 0; i < program.ops.size(); ++i) {
    for (const int in : program.ops[i].in) {
      if (in >= 0) last_use[holder(program, in)] = i;
    }
  }
  for (const int root : roots) last_use[holder(program, root)] = program.ops.size();
  std::vector<int> free;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    ProgramValue& out = program.values[op.out];
    out.slot = take_slot(program, free, out);
    Slot& slot = program.slots[out.slot];
    size_t& row_bytes = out.outputs_only ? slot.output_row_bytes : slot.all_row_bytes;
    row_bytes = std::max(row_bytes, out.row_bytes());
    std::vector<int> ended;
    for (const int in : op.in) {
      if (in >= 0 && last_use[holder(program, in)] == i)
        ended.push_back(program.values[holder(program, in)].slot);
    }
    std::sort(ended.begin(), ended.end());
    ended.erase(std::unique(ended.begin(), ended.end()), ended.end());
    free.insert(free.end(), ended.begin(), ended.end());
    if (last_use[op.out] <= i) free.push_back(out.slot);  // nobody reads it: attention's writes
  }
  for (ProgramValue& value : program.values) {
    if (value.parent >= 0) value.slot = program.values[value.parent].slot;
  }
}

}  // namespace

size_t Slot::bytes(int rows, int outputs) const {
  constexpr size_t kAlignment = 256;
  const size_t bytes =
      std::max(all_row_bytes * static_cast<size_t>(rows), output_row_bytes * static_cast<size_t>(outputs));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Program record_program(const Recipe& recipe, std::span<const WeightShape> weights) {
  Recorder recorder(weights);
  const Value result = recipe(recorder);
  Program program = recorder.finish(result);
  const std::vector<int>& roots = recorder.roots();
  drop_dead(program, roots);
  fuse_matmuls(program, roots);
  join_matmuls(program, weights, roots);
  choose_elements(program, weights, roots);
  find_unread(program);
  assign_slots(program, roots);
  return program;
}

}  // namespace rhapsode::kernels::cuda
