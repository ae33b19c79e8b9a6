// The transformer, once, for every architecture and back end.
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

}  // namespace

kernels::Recipe forward_recipe(const Architecture& architecture, const ModelWeights& weights) {
  return [&architecture, &weights](GraphBuilder& graph) {
    const Architecture& a = architecture;
    Value x = graph.token_rows(weights.embedding);
    if (a.embedding_scale != 1.0f) x = graph.scale(x, a.embedding_scale);
    for (int layer = 0; layer < a.layers; ++layer) {
      const LayerWeights& w = weights.layers[layer];
      Value h = attention(graph, a, w, layer, graph.rms_norm(x, w.attention_norm, a.norm_epsilon));
      if (layer == a.layers - 1) {
        // Nothing after the last attention mixes rows, so only the rows asked for go on.
        h = graph.output_rows(h);
        x = graph.output_rows(x);
      }
      h = apply(graph, w.output, h);
      if (a.post_norms) h = graph.rms_norm(h, w.post_attention_norm, a.norm_epsilon);
      x = graph.add(h, x);
      h = feed_forward(graph, a, w, graph.rms_norm(x, w.feed_forward_norm, a.norm_epsilon));
      if (a.post_norms) h = graph.rms_norm(h, w.post_feed_forward_norm, a.norm_epsilon);
      x = graph.add(h, x);
    }
    Value logits = apply(graph, weights.output, graph.rms_norm(x, weights.final_norm, a.norm_epsilon));
    return a.final_soft_cap > 0 ? graph.soft_cap(logits, a.final_soft_cap) : logits;
  };
}

}  // namespace rhapsode::model
