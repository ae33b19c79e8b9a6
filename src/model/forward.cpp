// The transformer, once, for every architecture and back end.
#include <algorithm>

#include "model/weights.h"

namespace rhapsode::model {

namespace {

using kernels::GraphBuilder;
using kernels::Value;

Value apply(GraphBuilder& graph, const Linear& linear, Value x) {
  Value y = graph.matmul(linear.matrix, x);
  for (const LoraDelta& delta : linear.deltas) {
    y = graph.add(y, graph.scale(graph.matmul(delta.b, graph.matmul(delta.a, x)), delta.scale));
  }
  return linear.bias ? graph.add_bias(y, linear.bias) : y;
}

Value attention(GraphBuilder& graph, const Architecture& a, const LayerWeights& w, int layer, Value x) {
  Value q = apply(graph, w.q, x);
  Value k = apply(graph, w.k, x);
  Value v = apply(graph, w.v, x);
  if (a.query_key_norm) {
    q = graph.head_rms_norm(q, a.head_dim, w.q_norm, a.norm_epsilon);
    k = graph.head_rms_norm(k, a.head_dim, w.k_norm, a.norm_epsilon);
  }
  return graph.attend(layer, q, k, v);
}

Value feed_forward(GraphBuilder& graph, const Architecture& a, const LayerWeights& w, Value x) {
  return apply(graph, w.down, graph.gate(a.activation, apply(graph, w.gate, x), apply(graph, w.up, x)));
}

// One block. The last one goes on with the output rows only, since nothing after its attention mixes rows.
Value block(GraphBuilder& graph, const Architecture& a, const LayerWeights& w, int layer, Value x) {
  Value h = attention(graph, a, w, layer, graph.rms_norm(x, w.attention_norm, a.norm_epsilon));
  if (layer == a.layers - 1) {
    h = graph.output_rows(h);
    x = graph.output_rows(x);
  }
  h = apply(graph, w.output, h);
  if (a.post_norms) h = graph.rms_norm(h, w.post_attention_norm, a.norm_epsilon);
  x = graph.add(h, x);
  h = feed_forward(graph, a, w, graph.rms_norm(x, w.feed_forward_norm, a.norm_epsilon));
  if (a.post_norms) h = graph.rms_norm(h, w.post_feed_forward_norm, a.norm_epsilon);
  return graph.add(h, x);
}

Value embed(GraphBuilder& graph, const Architecture& a, const ModelWeights& weights) {
  const Value x = graph.token_rows(weights.embedding);
  return a.embedding_scale != 1.0f ? graph.scale(x, a.embedding_scale) : x;
}

Value logits(GraphBuilder& graph, const Architecture& a, const ModelWeights& weights) {
  Value x = embed(graph, a, weights);
  for (int layer = 0; layer < a.layers; ++layer) x = block(graph, a, weights.layers[layer], layer, x);
  x = apply(graph, weights.output, graph.rms_norm(x, weights.final_norm, a.norm_epsilon));
  return a.final_soft_cap > 0 ? graph.soft_cap(x, a.final_soft_cap) : x;
}

Value states(GraphBuilder& graph, const Architecture& a, const ModelWeights& weights, bool encode) {
  const int tap = state_layer(a);
  Value x = embed(graph, a, weights);
  for (int layer = 0; layer < tap; ++layer) x = block(graph, a, weights.layers[layer], layer, x);
  const Value tapped = graph.output_rows(x);
  if (!encode) return tapped;
  const int last = a.layers - 1;
  for (int layer = tap; layer < last; ++layer) x = block(graph, a, weights.layers[layer], layer, x);
  // Of the last block only its keys and values are wanted; attention keeps them.
  const LayerWeights& w = weights.layers[last];
  graph.require(attention(graph, a, w, last, graph.rms_norm(x, w.attention_norm, a.norm_epsilon)));
  return tapped;
}

Value early_kv(GraphBuilder& graph, const Architecture& a, const ModelWeights& weights) {
  const int last = early_layer(a);
  Value x = embed(graph, a, weights);
  for (int layer = 0; layer < last; ++layer) x = block(graph, a, weights.layers[layer], layer, x);
  const LayerWeights& w = weights.layers[last];
  graph.require(attention(graph, a, w, last, graph.rms_norm(x, w.attention_norm, a.norm_epsilon)));
  return graph.output_rows(x);
}

}  // namespace

int state_layer(const Architecture& architecture) {
  return std::min((architecture.layers + 4) / 5, architecture.layers - 1);
}

int early_layer(const Architecture& architecture) {
  return std::min(1, architecture.layers - 1);
}

kernels::Recipe forward_recipe(const Architecture& architecture, const ModelWeights& weights, PassGoal goal) {
  return [&architecture, &weights, goal](GraphBuilder& graph) {
    if (goal == PassGoal::kLogits) return logits(graph, architecture, weights);
    if (goal == PassGoal::kEarlyKv) return early_kv(graph, architecture, weights);
    return states(graph, architecture, weights, goal == PassGoal::kEncode);
  };
}

}  // namespace rhapsode::model
