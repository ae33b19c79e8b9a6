#include "kernels/cpu/ggml_graph.h"

#include <cstring>

#include "base/clock.h"

namespace rhapsode::kernels::cpu {

namespace {
constexpr int kMaxNodes = 8192;
}

struct GgmlGraph::AttendNode {
  AttentionContext* context = nullptr;
  int layer = 0;
  ggml_tensor* q = nullptr;
  ggml_tensor* k = nullptr;
  ggml_tensor* v = nullptr;
  ggml_tensor* out = nullptr;

  AttendTensors tensors() const {
    auto stride = [](const ggml_tensor* t) { return static_cast<int64_t>(t->nb[1] / sizeof(float)); };
    AttendTensors tensors;
    tensors.q = static_cast<const float*>(q->data);
    tensors.k = static_cast<const float*>(k->data);
    tensors.v = static_cast<const float*>(v->data);
    tensors.q_stride = stride(q);
    tensors.k_stride = stride(k);
    tensors.v_stride = stride(v);
    tensors.out = static_cast<float*>(out->data);
    tensors.out_stride = stride(out);
    return tensors;
  }

  static void write(ggml_tensor*, int ith, int nth, void* user_data) {
    const auto& node = *static_cast<AttendNode*>(user_data);
    if (ith == 0 && node.context->layer_times) node.context->layer_begin_ns[node.layer] = now_ns();
    node.context->attention->write(node.layer, node.tensors(), ith, nth);
  }
  static void select(ggml_tensor*, int ith, int nth, void* user_data) {
    const auto& node = *static_cast<AttendNode*>(user_data);
    node.context->attention->select(node.layer, node.tensors(), ith, nth);
  }
  static void attend(ggml_tensor*, int ith, int nth, void* user_data) {
    const auto& node = *static_cast<AttendNode*>(user_data);
    node.context->attention->attend(node.layer, node.tensors(), ith, nth);
    if (ith != 0) return;
    // Padding rows attend to nothing; what they hold must still be finite for the matmuls that follow.
    const int64_t padding = node.out->ne[1] - node.context->plan_rows;
    if (padding > 0) {
      std::memset(static_cast<char*>(node.out->data) + node.context->plan_rows * node.out->nb[1], 0,
                  padding * node.out->nb[1]);
    }
  }
  static void combine(ggml_tensor*, int ith, int nth, void* user_data) {
    const auto& node = *static_cast<AttendNode*>(user_data);
    node.context->attention->combine(node.layer, node.tensors(), ith, nth);
  }
  // On one thread: the other shards are waited for, and nodes have no errors, so that one is kept for the
  // end.
  static void exchange(ggml_tensor*, int ith, int, void* user_data) {
    if (ith != 0) return;
    const auto& node = *static_cast<AttendNode*>(user_data);
    AttentionContext& context = *node.context;
    if (!context.exchanged.ok()) return;
    const AttendTensors tensors = node.tensors();
    ShardRows part;
    part.rows = context.plan_rows;
    part.head_dim = context.head_dim;
    part.heads = static_cast<int>(node.out->ne[0]) / context.head_dim;
    part.out = tensors.out;
    part.out_stride = tensors.out_stride;
    part.lse = context.attention->lse();
    context.exchanged = context.exchange.run(*context.group, part);
  }
  static void mass(ggml_tensor*, int ith, int nth, void* user_data) {
    const auto& node = *static_cast<AttendNode*>(user_data);
    node.context->attention->mass(node.layer, node.tensors(), ith, nth);
  }
};

GgmlGraph::GgmlGraph(const std::vector<ggml_tensor*>& weights, AttentionContext& attention,
                     ggml_backend_buffer_type_t buffer_type, GraphSize size)
    : weights_(weights), attention_(attention), buffer_type_(buffer_type), size_(size) {
  const size_t bytes = ggml_tensor_overhead() * kMaxNodes + ggml_graph_overhead_custom(kMaxNodes, false);
  context_.reset(ggml_init({bytes, nullptr, true}));
  graph_ = ggml_new_graph_custom(context_.get(), kMaxNodes, false);
  tokens_ = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, size.rows);
  outputs_ = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, size.output_rows);
  ggml_set_input(tokens_);
  ggml_set_input(outputs_);
}

GgmlGraph::~GgmlGraph() = default;

Status GgmlGraph::record(const Recipe& recipe) {
  result_ = tensor(recipe(*this));
  ggml_set_output(result_);
  ggml_build_forward_expand(graph_, result_);
  for (ggml_tensor* required : required_) ggml_build_forward_expand(graph_, required);
  allocator_.reset(ggml_gallocr_new(buffer_type_));
  if (!ggml_gallocr_alloc_graph(allocator_.get(), graph_)) {
    return make_error(ErrorKind::kNoSpace, "no memory for the activations of {} rows: lower --batch",
                      size_.rows);
  }
  return {};
}

Result<std::span<const float>> GgmlGraph::run(ggml_backend* backend, std::span<const int32_t> tokens,
                                              std::span<const int32_t> outputs) {
  ggml_backend_tensor_set(tokens_, tokens.data(), 0, tokens.size_bytes());
  // A recipe may leave an input unused; the allocator then gives it no memory.
  if (outputs_->data) ggml_backend_tensor_set(outputs_, outputs.data(), 0, outputs.size_bytes());
  const ggml_status status = ggml_backend_graph_compute(backend, graph_);
  if (status != GGML_STATUS_SUCCESS) {
    return make_error(status == GGML_STATUS_ALLOC_FAILED ? ErrorKind::kNoSpace : ErrorKind::kInternal,
                      "evaluating {} rows failed: {}", size_.rows, ggml_status_to_string(status));
  }
  return std::span<const float>(static_cast<const float*>(result_->data), ggml_nelements(result_));
}

Value GgmlGraph::keep(ggml_tensor* tensor) {
  values_.push_back(tensor);
  return Value{static_cast<int32_t>(values_.size()) - 1};
}

Value GgmlGraph::token_rows(Weight table) {
  return keep(ggml_get_rows(context_.get(), weights_[table.id], tokens_));
}

Value GgmlGraph::matmul(Weight matrix, Value x) {
  return keep(ggml_mul_mat(context_.get(), weights_[matrix.id], tensor(x)));
}

Value GgmlGraph::add(Value a, Value b) {
  return keep(ggml_add(context_.get(), tensor(a), tensor(b)));
}

Value GgmlGraph::add_bias(Value x, Weight bias) {
  return keep(ggml_add(context_.get(), tensor(x), weights_[bias.id]));
}

Value GgmlGraph::scale(Value x, float factor) {
  return keep(ggml_scale(context_.get(), tensor(x), factor));
}

Value GgmlGraph::rms_norm(Value x, Weight gain, float epsilon) {
  return keep(ggml_mul(context_.get(), ggml_rms_norm(context_.get(), tensor(x), epsilon), weights_[gain.id]));
}

Value GgmlGraph::head_rms_norm(Value x, int head_dim, Weight gain, float epsilon) {
  ggml_tensor* flat = tensor(x);
  ggml_tensor* heads = ggml_reshape_3d(context_.get(), flat, head_dim, flat->ne[0] / head_dim, flat->ne[1]);
  ggml_tensor* normed =
      ggml_mul(context_.get(), ggml_rms_norm(context_.get(), heads, epsilon), weights_[gain.id]);
  return keep(ggml_reshape_2d(context_.get(), normed, flat->ne[0], flat->ne[1]));
}

Value GgmlGraph::gate(Activation activation, Value gate, Value up) {
  auto* apply = activation == Activation::kSilu ? ggml_swiglu_split : ggml_geglu_split;
  return keep(apply(context_.get(), tensor(gate), tensor(up)));
}

Value GgmlGraph::attend(int layer, Value q, Value k, Value v) {
  auto node = std::make_unique<AttendNode>();
  AttendNode& n = *node;
  n.context = &attention_;
  n.layer = layer;
  n.q = tensor(q);
  n.k = tensor(k);
  n.v = tensor(v);
  // ggml runs every node on all threads with a barrier between nodes and none inside: writing, attending and
  // combining are three nodes, chained by sources so that none is reordered or its memory reused too early.
  ggml_tensor* write_sources[] = {n.k, n.v};
  ggml_tensor* written = ggml_custom_4d(context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, write_sources, 2,
                                        &AttendNode::write, GGML_N_TASKS_MAX, &n);
  ggml_tensor* before = written;
  if (size_.selects) {
    ggml_tensor* select_sources[] = {n.q, written};
    before = ggml_custom_4d(context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, select_sources, 2, &AttendNode::select,
                            GGML_N_TASKS_MAX, &n);
  }
  ggml_tensor* attend_sources[] = {n.q, before};
  n.out = ggml_custom_4d(context_.get(), GGML_TYPE_F32, n.q->ne[0], size_.rows, 1, 1, attend_sources, 2,
                         &AttendNode::attend, GGML_N_TASKS_MAX, &n);
  // The queries are sources here too: combining may still need them, so their memory must live on.
  ggml_tensor* combine_sources[] = {n.q};
  ggml_tensor* combined = ggml_custom_inplace(context_.get(), n.out, combine_sources, 1, &AttendNode::combine,
                                              GGML_N_TASKS_MAX, &n);
  ggml_tensor* result = combined;
  ggml_tensor* later_sources[] = {n.q};
  if (attention_.group) {
    result = ggml_custom_inplace(context_.get(), result, later_sources, 1, &AttendNode::exchange, 1, &n);
  }
  if (size_.mass) {
    result = ggml_custom_inplace(context_.get(), result, later_sources, 1, &AttendNode::mass,
                                 GGML_N_TASKS_MAX, &n);
  }
  attend_nodes_.push_back(std::move(node));
  return keep(result);
}

Value GgmlGraph::output_rows(Value x) {
  return keep(ggml_get_rows(context_.get(), tensor(x), outputs_));
}

Value GgmlGraph::soft_cap(Value x, float cap) {
  ggml_tensor* squashed = ggml_tanh(context_.get(), ggml_scale(context_.get(), tensor(x), 1.0f / cap));
  return keep(ggml_scale(context_.get(), squashed, cap));
}

void GgmlGraph::require(Value x) {
  required_.push_back(tensor(x));
}

}  // namespace rhapsode::kernels::cpu
