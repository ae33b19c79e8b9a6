// One recorded ggml graph of the CPU back end: the GraphBuilder that fills it and the nodes that call our
// attention. Internal to kernels/cpu.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <memory>
#include <vector>

#include "kernels/cpu/attend.h"
#include "kernels/graph.h"
#include "kernels/shard_exchange.h"

namespace rhapsode::kernels::cpu {

// What attention nodes read at run time; shared by every graph of a back end.
struct AttentionContext {
  CpuAttention* attention = nullptr;
  int plan_rows = 0;  // rows of the batch; rows beyond are padding
  bool layer_times = false;
  std::vector<int64_t> layer_begin_ns;  // [layers], when each layer's attention began; with layer_times
  Collective* group = nullptr;  // what the shares of several back ends are joined through; may be null
  int head_dim = 0;
  ShardExchange exchange;
  Status exchanged;  // the first failure of this pass
};

struct GgmlFree {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
};
using ContextPtr = std::unique_ptr<ggml_context, GgmlFree>;
using AllocatorPtr = std::unique_ptr<ggml_gallocr, GgmlFree>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, GgmlFree>;
using BackendPtr = std::unique_ptr<ggml_backend, GgmlFree>;

// What graphs of one recipe differ in.
struct GraphSize {
  int rows = 0;
  int output_rows = 0;
  bool mass = false;  // also sums attention mass, in a node behind each layer's attention
  bool selects =
      false;  // rows with read budgets choose what they read, in a node before each layer's attention
  bool operator==(const GraphSize&) const = default;
};

class GgmlGraph final : public GraphBuilder {
 public:
  // weights[i] is the tensor of Weight{i}. All pointers outlive the graph.
  GgmlGraph(const std::vector<ggml_tensor*>& weights, AttentionContext& attention,
            ggml_backend_buffer_type_t buffer_type, GraphSize size);
  ~GgmlGraph() override;

  Status record(const Recipe& recipe);
  // Sets the inputs and computes. `tokens` and `outputs` have exactly the graph's sizes.
  Result<std::span<const float>> run(ggml_backend* backend, std::span<const int32_t> tokens,
                                     std::span<const int32_t> outputs);

  Value token_rows(Weight table) override;
  Value matmul(Weight matrix, Value x) override;
  Value add(Value a, Value b) override;
  Value add_bias(Value x, Weight bias) override;
  Value scale(Value x, float factor) override;
  Value rms_norm(Value x, Weight gain, float epsilon) override;
  Value head_rms_norm(Value x, int head_dim, Weight gain, float epsilon) override;
  Value gate(Activation activation, Value gate, Value up) override;
  Value attend(int layer, Value q, Value k, Value v) override;
  Value output_rows(Value x) override;
  Value soft_cap(Value x, float cap) override;
  void require(Value x) override;

 private:
  struct AttendNode;  // user data of the three attention nodes of one layer
  Value keep(ggml_tensor* tensor);
  ggml_tensor* tensor(Value value) const { return values_[value.id]; }

  const std::vector<ggml_tensor*>& weights_;
  AttentionContext& attention_;
  ggml_backend_buffer_type_t buffer_type_;
  GraphSize size_;
  ContextPtr context_;
  AllocatorPtr allocator_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* tokens_ = nullptr;
  ggml_tensor* outputs_ = nullptr;
  ggml_tensor* result_ = nullptr;
  std::vector<ggml_tensor*> values_;
  std::vector<ggml_tensor*> required_;
  std::vector<std::unique_ptr<AttendNode>> attend_nodes_;
};

}  // namespace rhapsode::kernels::cpu
