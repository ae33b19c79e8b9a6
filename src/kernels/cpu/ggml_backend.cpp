#include "kernels/cpu/ggml_backend.h"

#include <dlfcn.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "kernels/collective.h"
#include "kernels/cpu/ggml_graph.h"
#include "kernels/reference/top_logits.h"

namespace rhapsode::kernels::cpu {

namespace {

constexpr size_t kGraphsKept = 12;
constexpr size_t kMaxWeights = 16384;
constexpr int kLayerGroup = 4;  // layers a trace span

struct GraphKey {
  int recipe;
  GraphSize size;
  bool operator==(const GraphKey&) const = default;
};

class GgmlBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> make(BackendOptions options);

  Result<Weight> add_weight(const WeightSource& source, WeightUse use) override;
  int add_recipe(Recipe recipe) override {
    recipes_.push_back(std::move(recipe));
    return static_cast<int>(recipes_.size()) - 1;
  }
  Result<std::span<const float>> run(const BatchInput& batch, int recipe) override;
  int fixed_rows() const override { return options_.deterministic ? kDeterministicRows : 0; }
  bool finds_top_logits() const override { return options_.reference_top_logits; }
  Result<TopLogits> top_logits(int output) const override;
  Result<std::span<const float>> whole_rows(int first_output, int count) override;
  uint64_t weight_copy_bytes() const override { return copy_bytes_; }
  std::unique_ptr<PageMemory> new_page_memory() override { return host_page_memory(); }
  std::vector<LayerSpan> layer_spans() const override;
  Result<std::span<const double>> mass_per_token(int sequence) const override {
    if (mass_kept_) return attention_.mass_per_token(sequence);
    return make_error(ErrorKind::kInternal, "the last pass was not asked for attention mass");
  }

 private:
  explicit GgmlBackend(BackendOptions options);
  Status start(ggml_backend_dev_t device);
  // Everything of a pass that may fail before it begins.
  Result<GgmlGraph*> prepare(const BatchInput& batch, int recipe);
  Result<GgmlGraph*> graph_for(const GraphKey& key);
  // A copy of `source` in the first packed layout that can multiply it; null if there is none.
  ggml_tensor* packed(const WeightSource& source);
  // The tensor where its file is mapped, or a copy when that is not aligned as ggml needs.
  ggml_tensor* in_place(const WeightSource& source);
  ggml_tensor* converted_to_f32(const WeightSource& source);
  ggml_tensor* adopt(ggml_tensor* tensor, ggml_backend_buffer_type_t type, const void* data);
  ggml_tensor* new_tensor(const WeightSource& source, ggml_type type);

  BackendOptions options_;
  ggml_backend_dev_t device_ = nullptr;
  BackendPtr backend_;
  ContextPtr weight_context_;
  std::vector<BufferPtr> buffers_;
  std::vector<ggml_tensor*> weights_;
  std::vector<Recipe> recipes_;
  CpuAttention attention_;
  AttentionContext attention_context_;
  // Most recently used first.
  std::list<std::pair<GraphKey, std::unique_ptr<GgmlGraph>>> graphs_;
  std::vector<int32_t> tokens_;  // the batch, padded
  std::vector<int32_t> outputs_;
  uint64_t copy_bytes_ = 0;
  int64_t run_end_ns_ = 0;
  bool mass_kept_ = false;  // by the last run
  // Of the last run, if it asked for them.
  std::vector<reference::SortedLogits> top_logits_;
  std::span<const float> whole_rows_;
};

GgmlBackend::GgmlBackend(BackendOptions options)
    : options_(std::move(options)), attention_(options_.kv, options_.layers, options_.sparse) {
  attention_context_.attention = &attention_;
  attention_context_.layer_times = options_.layer_times;
  attention_context_.layer_begin_ns.resize(options_.layers.size());
  attention_context_.group = options_.group;
  attention_context_.head_dim = options_.kv.head_dim;
}

Result<std::unique_ptr<Backend>> GgmlBackend::make(BackendOptions options) {
  RH_TRY_STATUS(load_ggml());
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (!device) return make_error(ErrorKind::kUnsupported, "ggml has no CPU back end for this machine");
  std::unique_ptr<GgmlBackend> backend(new GgmlBackend(std::move(options)));
  RH_TRY_STATUS(backend->start(device));
  return std::unique_ptr<Backend>(std::move(backend));
}

Status GgmlBackend::start(ggml_backend_dev_t device) {
  device_ = device;
  backend_.reset(ggml_backend_dev_init(device, nullptr));
  if (!backend_) return make_error(ErrorKind::kNoSpace, "ggml's CPU back end did not start");
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
  auto* set_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads"));
  if (!set_threads) return make_error(ErrorKind::kUnsupported, "ggml's CPU back end takes no thread count");
  set_threads(backend_.get(), options_.threads);
  weight_context_.reset(ggml_init({ggml_tensor_overhead() * kMaxWeights, nullptr, true}));
  return {};
}

ggml_tensor* GgmlBackend::new_tensor(const WeightSource& source, ggml_type type) {
  ggml_tensor* tensor = ggml_new_tensor_2d(weight_context_.get(), type, source.columns, source.rows);
  ggml_set_name(tensor, std::string(source.name).c_str());
  return tensor;
}

ggml_tensor* GgmlBackend::adopt(ggml_tensor* tensor, ggml_backend_buffer_type_t type, const void* data) {
  BufferPtr buffer(ggml_backend_buft_alloc_buffer(type, ggml_backend_buft_get_alloc_size(type, tensor)));
  if (!buffer) return nullptr;
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  ggml_backend_tensor_alloc(buffer.get(), tensor, ggml_backend_buffer_get_base(buffer.get()));
  ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
  copy_bytes_ += ggml_backend_buffer_get_size(buffer.get());
  buffers_.push_back(std::move(buffer));
  return tensor;
}

ggml_tensor* GgmlBackend::packed(const WeightSource& source) {
  ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device_);
  auto* extra_buffer_types = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts"));
  if (!extra_buffer_types) return nullptr;
  for (auto* type = extra_buffer_types(device_); type && *type; ++type) {
    // Whether a layout takes a tensor is only known by asking about a matmul with it in such a buffer.
    ContextPtr probe(ggml_init({ggml_tensor_overhead() * 4, nullptr, true}));
    ggml_tensor* weight =
        ggml_new_tensor_2d(probe.get(), static_cast<ggml_type>(source.type), source.columns, source.rows);
    ggml_tensor* input = ggml_new_tensor_2d(probe.get(), GGML_TYPE_F32, source.columns, 512);
    ggml_tensor* product = ggml_mul_mat(probe.get(), weight, input);
    BufferPtr empty(ggml_backend_buft_alloc_buffer(*type, 0));
    weight->buffer = empty.get();
    if (!ggml_backend_dev_supports_op(device_, product)) continue;
    return adopt(new_tensor(source, static_cast<ggml_type>(source.type)), *type, source.data.data());
  }
  return nullptr;
}

ggml_tensor* GgmlBackend::converted_to_f32(const WeightSource& source) {
  std::vector<float> values(source.columns * source.rows);
  if (source.type == GGML_TYPE_F32) {
    std::memcpy(values.data(), source.data.data(), values.size() * sizeof(float));
  } else {
    ggml_get_type_traits(static_cast<ggml_type>(source.type))
        ->to_float(source.data.data(), values.data(), values.size());
  }
  return adopt(new_tensor(source, GGML_TYPE_F32), ggml_backend_dev_buffer_type(device_), values.data());
}

ggml_tensor* GgmlBackend::in_place(const WeightSource& source) {
  ggml_tensor* tensor = new_tensor(source, static_cast<ggml_type>(source.type));
  ggml_backend_buffer_type_t host = ggml_backend_dev_buffer_type(device_);
  // A file may align its tensors to less than ggml asks of memory; those are copied.
  const auto address = reinterpret_cast<uintptr_t>(source.data.data());
  if (address % ggml_backend_buft_get_alignment(host) != 0) return adopt(tensor, host, source.data.data());
  auto* bytes = const_cast<std::byte*>(source.data.data());
  BufferPtr view(ggml_backend_dev_buffer_from_host_ptr(device_, bytes, source.data.size(), 0));
  if (!view) return nullptr;
  ggml_backend_buffer_set_usage(view.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  ggml_backend_tensor_alloc(view.get(), tensor, bytes);
  buffers_.push_back(std::move(view));
  return tensor;
}

Result<Weight> GgmlBackend::add_weight(const WeightSource& source, WeightUse use) {
  if (weights_.size() + 8 >= kMaxWeights)
    return make_error(ErrorKind::kTooLarge, "more than {} weights", kMaxWeights);
  const auto type = static_cast<ggml_type>(source.type);
  const bool plain = type == GGML_TYPE_F32;
  if (!plain && !ggml_get_type_traits(type)->to_float) {
    return make_error(ErrorKind::kUnsupported, "tensor '{}' has type {}, which cannot be multiplied",
                      source.name, ggml_type_name(type));
  }
  ggml_tensor* tensor = nullptr;
  if (use == WeightUse::kVector) {
    tensor = converted_to_f32(source);
    if (!tensor) return make_error(ErrorKind::kNoSpace, "no memory for tensor '{}'", source.name);
  } else {
    if (use == WeightUse::kMatrix) tensor = packed(source);
    if (!tensor) tensor = in_place(source);
    if (!tensor) return make_error(ErrorKind::kNoSpace, "no memory for tensor '{}'", source.name);
  }
  weights_.push_back(tensor);
  return Weight{static_cast<int32_t>(weights_.size()) - 1};
}

Result<GgmlGraph*> GgmlBackend::graph_for(const GraphKey& key) {
  auto found =
      std::find_if(graphs_.begin(), graphs_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != graphs_.end()) {
    graphs_.splice(graphs_.begin(), graphs_, found);
    return graphs_.front().second.get();
  }
  auto graph = std::make_unique<GgmlGraph>(weights_, attention_context_,
                                           ggml_backend_dev_buffer_type(device_), key.size);
  RH_TRY_STATUS(graph->record(recipes_[key.recipe]));
  graphs_.emplace_front(key, std::move(graph));
  if (graphs_.size() > kGraphsKept) graphs_.pop_back();
  return graphs_.front().second.get();
}

Result<std::span<const float>> GgmlBackend::run(const BatchInput& batch, int recipe) {
  top_logits_.clear();
  Result<GgmlGraph*> graph = prepare(batch, recipe);
  if (options_.group) {
    const Status agreed = options_.group->agree(graph.ok() ? Status() : Status(graph.error()));
    if (!agreed.ok()) return agreed.error();
  }
  if (!graph.ok()) return graph.error();
  Result<std::span<const float>> result = (*graph)->run(backend_.get(), tokens_, outputs_);
  if (options_.group && !result.ok()) options_.group->fail(result.error());
  RH_TRY_STATUS(result);
  RH_TRY_STATUS(attention_context_.exchanged);
  run_end_ns_ = options_.layer_times ? now_ns() : 0;
  const size_t width = result->size() / outputs_.size();
  const std::span<const float> rows = result->first(width * batch.output_rows.size());
  if (batch.top_logits_of == 0) return rows;
  for (size_t begin = 0; begin < rows.size(); begin += width) {
    const auto vocabulary = static_cast<size_t>(batch.top_logits_of);
    top_logits_.push_back(reference::top_logits(rows.subspan(begin, vocabulary)));
  }
  whole_rows_ = rows;
  return std::span<const float>();
}

Result<TopLogits> GgmlBackend::top_logits(int output) const {
  if (output < 0 || static_cast<size_t>(output) >= top_logits_.size()) {
    return make_error(ErrorKind::kInternal, "the last pass found no largest logits of row {}", output);
  }
  const reference::SortedLogits& top = top_logits_[static_cast<size_t>(output)];
  return TopLogits{top.tokens, top.logits, top.exp_sum, top.possible, top.broken};
}

Result<std::span<const float>> GgmlBackend::whole_rows(int first_output, int count) {
  if (first_output < 0 || count < 0 || static_cast<size_t>(first_output + count) > top_logits_.size()) {
    return make_error(ErrorKind::kInternal, "the last pass kept no output rows {} to {}", first_output,
                      first_output + count - 1);
  }
  if (count == 0) return std::span<const float>();
  const size_t width = whole_rows_.size() / top_logits_.size();
  return whole_rows_.subspan(static_cast<size_t>(first_output) * width, static_cast<size_t>(count) * width);
}

Result<GgmlGraph*> GgmlBackend::prepare(const BatchInput& batch, int recipe) {
  const int rows = static_cast<int>(batch.tokens.size());
  AttendOptions attend_options;
  attend_options.threads = options_.threads;
  attend_options.deterministic = options_.deterministic;
  attend_options.mass = mass_kept_ = batch.mass;
  attend_options.keep_lse = options_.group != nullptr;
  attention_.begin(*batch.plan, attend_options);
  GraphKey key{recipe, {rows, static_cast<int>(batch.output_rows.size()), batch.mass, attention_.selects()}};
  tokens_.assign(batch.tokens.begin(), batch.tokens.end());
  outputs_.assign(batch.output_rows.begin(), batch.output_rows.end());
  if (options_.deterministic) {
    if (rows > kDeterministicRows) {
      return make_error(ErrorKind::kInternal, "a deterministic pass of {} rows; {} is the most", rows,
                        kDeterministicRows);
    }
    key.size.rows = key.size.output_rows = kDeterministicRows;
    tokens_.resize(kDeterministicRows, 0);
    outputs_.resize(kDeterministicRows, 0);
  }
  // A pass that asks for no row still needs an index to look up; its result is not handed out.
  if (outputs_.empty()) {
    outputs_.push_back(0);
    key.size.output_rows = 1;
  }
  attention_context_.plan_rows = rows;
  attention_context_.exchanged = Status();
  return graph_for(key);
}

std::vector<LayerSpan> GgmlBackend::layer_spans() const {
  std::vector<LayerSpan> spans;
  if (run_end_ns_ == 0) return spans;
  const int layers = static_cast<int>(options_.layers.size());
  for (int first = 0; first < layers; first += kLayerGroup) {
    const int next = std::min(first + kLayerGroup, layers);
    const int64_t end = next < layers ? attention_context_.layer_begin_ns[next] : run_end_ns_;
    spans.push_back({first, next - 1, attention_context_.layer_begin_ns[first], end});
  }
  return spans;
}

}  // namespace

namespace {

// Where libggml itself was loaded from: run-time loadable variants lie beside it, wherever the tree was
// moved.
std::filesystem::path folder_of_ggml() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&ggml_backend_load_all), &info) == 0 || !info.dli_fname)
    return ".";
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace

Status load_ggml(const std::filesystem::path& folder) {
  static std::once_flag once;
  std::call_once(once, [&] {
    ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    // A linked back end is registered by itself. ggml's own search would also try the current folder.
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) return;
    ggml_backend_load_all_from_path((folder.empty() ? folder_of_ggml() : folder).c_str());
  });
  return {};
}

Result<std::unique_ptr<Backend>> make_ggml_backend(BackendOptions options) {
  return GgmlBackend::make(std::move(options));
}

}  // namespace rhapsode::kernels::cpu
