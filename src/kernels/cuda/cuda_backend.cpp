#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_page_memory.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/layer_clock.h"
#include "kernels/cuda/plan_upload.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/rope_tables.h"
#include "kernels/cuda/weight_store.h"

namespace rhapsode::kernels::cuda {

namespace {

class CudaBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> make(BackendOptions options);
  ~CudaBackend() override;

  Result<Weight> add_weight(const WeightSource& source, WeightUse use) override {
    return weights_.add(source, use);
  }
  int add_recipe(Recipe recipe) override {
    recipes_.push_back({std::move(recipe), {}});
    return static_cast<int>(recipes_.size()) - 1;
  }
  Result<std::span<const float>> run(const BatchInput& batch, int recipe) override;
  int fixed_rows() const override { return 0; }
  uint64_t weight_copy_bytes() const override { return weights_.bytes(); }
  std::unique_ptr<PageMemory> new_page_memory() override { return device_page_memory(); }
  std::string_view numerics() const override { return weights_.rounds_to_bf16() ? "bf16" : ""; }
  std::vector<LayerSpan> layer_spans() const override { return clock_.spans(); }

 private:
  explicit CudaBackend(BackendOptions options)
      : options_(std::move(options)),
        weights_(options_.threads),
        ropes_(options_.layers),
        attention_(options_.kv, options_.layers),
        packer_(options_.kv.layers, attention_.rule()),
        clock_(options_.layer_times ? options_.kv.layers : 0) {}

  struct Recorded {
    Recipe recipe;
    std::optional<Program> program;
  };

  const Program& program_of(int recipe);
  Status upload(const BatchInput& batch);
  Status place(const Program& program);
  Status execute(const Program& program, const Op& op);
  Status multiply(const Program& program, const Op& op);
  void attend(const Program& program, const Op& op);
  Result<std::span<const float>> result_of(const Program& program);

  // The batch's rows that a value has.
  int rows_of(const ProgramValue& value) const {
    return value.outputs_only ? packer_.sizes().outputs : packer_.sizes().rows;
  }
  RowShape shape_of(const Program& program, int value) const {
    return {rows_of(program.values[value]), program.values[value].features};
  }
  void* data(const Program& program, int value) const {
    return activations_.at<void>(slot_offsets_[program.values[value].slot]);
  }
  float* floats(const Program& program, int value) const {
    return static_cast<float*>(data(program, value));
  }
  DeviceValue device_value(const Program& program, int value) const {
    return {data(program, value), program.values[value].element};
  }
  DeviceInput device_input(const Program& program, int value) const {
    return {data(program, value), program.values[value].element};
  }

  BackendOptions options_;
  WeightStore weights_;
  RopeTables ropes_;
  std::unique_ptr<Gemm> gemm_;
  cudaStream_t stream_ = nullptr;
  std::vector<Recorded> recipes_;
  Attention attention_;
  PlanPacker packer_;
  PinnedBuffer plan_pinned_;
  DeviceBuffer plan_;
  DeviceBuffer activations_;
  std::vector<size_t> slot_offsets_;
  PinnedBuffer result_;
  LayerClock clock_;
};

CudaBackend::~CudaBackend() {
  if (stream_) {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
}

Result<std::unique_ptr<Backend>> CudaBackend::make(BackendOptions options) {
  if (!why_no_device().empty()) return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
  if (options.deterministic) {
    return make_error(ErrorKind::kUnsupported, "deterministic passes run on the CPU only: use --device cpu");
  }
  std::unique_ptr<CudaBackend> backend(new CudaBackend(std::move(options)));
  RH_TRY_STATUS(check(cudaStreamCreateWithFlags(&backend->stream_, cudaStreamNonBlocking), "making a stream"));
  RH_TRY(backend->gemm_, Gemm::make());
  RH_TRY_STATUS(backend->ropes_.start());
  return std::unique_ptr<Backend>(std::move(backend));
}

const Program& CudaBackend::program_of(int recipe) {
  Recorded& recorded = recipes_[recipe];
  if (!recorded.program) {
    recorded.program = record_program(recorded.recipe, weights_.shapes());
    weights_.finish();
  }
  return *recorded.program;
}

Status CudaBackend::upload(const BatchInput& batch) {
  packer_.pack(batch);
  const std::span<const std::byte> bytes = packer_.bytes();
  RH_TRY_STATUS(plan_pinned_.reserve(bytes.size(), "the context plan"));
  RH_TRY_STATUS(plan_.reserve(bytes.size(), "the context plan"));
  std::memcpy(plan_pinned_.data(), bytes.data(), bytes.size());
  RH_TRY_STATUS(check(cudaMemcpyAsync(plan_.as<void>(), plan_pinned_.data(), bytes.size(),
                                      cudaMemcpyHostToDevice, stream_),
                      "copying the context plan to the GPU"));
  const PlanSizes& sizes = packer_.sizes();
  RH_TRY_STATUS(attention_.reserve(sizes));
  return ropes_.fill(plan_.at<const int32_t>(packer_.offsets().angles), sizes.rows, sizes.shifts, stream_);
}

Status CudaBackend::place(const Program& program) {
  size_t bytes = 0;
  slot_offsets_.clear();
  for (const Slot& slot : program.slots) {
    slot_offsets_.push_back(bytes);
    bytes += slot.bytes(packer_.sizes().rows, packer_.sizes().outputs);
  }
  return activations_.reserve(bytes, "activations: lower --batch");
}

Result<std::span<const float>> CudaBackend::run(const BatchInput& batch, int recipe) {
  RH_TRY_STATUS(check(cudaStreamSynchronize(stream_), "a pass before this one"));
  const Program& program = program_of(recipe);
  RH_TRY_STATUS(upload(batch));
  RH_TRY_STATUS(place(program));
  clock_.begin();
  for (const Op& op : program.ops) {
    if (rows_of(program.values[op.out]) == 0) continue;
    if (op.kind == OpKind::kAttend) clock_.at_layer(op.layer, stream_);
    RH_TRY_STATUS(execute(program, op));
  }
  RH_TRY_STATUS(check(cudaGetLastError(), "starting a kernel"));
  clock_.end(stream_);
  return result_of(program);
}

Result<std::span<const float>> CudaBackend::result_of(const Program& program) {
  const RowShape shape = shape_of(program, program.result);
  const size_t values = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.features);
  RH_TRY_STATUS(result_.reserve(values * sizeof(float), "results"));
  if (values > 0) {
    RH_TRY_STATUS(check(cudaMemcpyAsync(result_.data(), data(program, program.result), values * sizeof(float),
                                        cudaMemcpyDeviceToHost, stream_),
                        "copying results from the GPU"));
  }
  RH_TRY_STATUS(check(cudaStreamSynchronize(stream_), "evaluating on the GPU"));
  clock_.read();
  return std::span<const float>(reinterpret_cast<const float*>(result_.data()), values);
}

Status CudaBackend::multiply(const Program& program, const Op& op) {
  const WeightShape& weight = weights_.shapes()[op.weight];
  GemmCall call;
  call.weight = weights_.at(op.weight);
  call.x = device_input(program, op.in[0]);
  call.out = device_value(program, op.out);
  call.bias = op.bias < 0 ? nullptr : weights_.vector(op.bias);
  call.residual = op.in[1] < 0 ? nullptr : floats(program, op.in[1]);
  call.m = weight.rows;
  call.k = weight.columns;
  call.rows = rows_of(program.values[op.out]);
  return gemm_->run(call, stream_);
}

void CudaBackend::attend(const Program& program, const Op& op) {
  const AttendLayer& layer = options_.layers[op.layer];
  const PlanOffsets& offsets = packer_.offsets();
  const PlanSizes& sizes = packer_.sizes();
  const int head_dim = options_.kv.head_dim;
  DeviceAttend call;
  call.shape = options_.kv;
  call.plan.rows = sizes.rows;
  call.plan.positions = plan_.at<const int32_t>(offsets.angles);
  call.plan.row_sequence = plan_.at<const int32_t>(offsets.row_sequence);
  call.plan.writes = plan_.at<const DeviceWrite>(offsets.writes);
  call.plan.lists = plan_.at<const DeviceList>(offsets.lists) +
                    static_cast<int64_t>(packer_.list_row(op.layer)) * sizes.sequences;
  call.plan.references = plan_.at<const DeviceReference>(offsets.references);
  call.plan.gathered = plan_.at<const int32_t>(offsets.gathered);
  call.layer = op.layer;
  call.heads = layer.heads;
  call.scale = layer.scale;
  call.window = layer.window;
  call.soft_cap = layer.soft_cap;
  const RopeRows rope = ropes_.of_layer(op.layer);
  call.pairs = rope.pairs;
  call.adjacent = rope.adjacent;
  call.row_angles = rope.rows;
  call.write_angles = rope.writes;
  call.shift_angles = rope.shifts;
  call.q = floats(program, op.in[0]);
  call.k = floats(program, op.in[1]);
  call.v = floats(program, op.in[2]);
  call.q_stride = int64_t{layer.heads} * head_dim;
  call.k_stride = call.v_stride = int64_t{options_.kv.kv_heads} * head_dim;
  call.out = device_value(program, op.out);
  attention_.run(call, sizes, plan_.at<const DeviceTile>(offsets.tiles), stream_);
}

Status CudaBackend::execute(const Program& program, const Op& op) {
  const RowShape shape = shape_of(program, op.out);
  const auto in = [&](int n) { return floats(program, op.in[n]); };
  const PlanOffsets& offsets = packer_.offsets();
  switch (op.kind) {
    case OpKind::kTokenRows:
      gather_rows(shape, weights_.at(op.weight), plan_.at<const int32_t>(offsets.tokens),
                  device_value(program, op.out), stream_);
      break;
    case OpKind::kOutputRows:
      gather_rows(shape, device_input(program, op.in[0]), plan_.at<const int32_t>(offsets.output_rows),
                  device_value(program, op.out), stream_);
      break;
    case OpKind::kMatmul:
      return multiply(program, op);
    case OpKind::kAdd:
      add(shape, in(0), in(1), floats(program, op.out), stream_);
      break;
    case OpKind::kAddBias:
      add_bias(shape, in(0), weights_.vector(op.bias), floats(program, op.out), stream_);
      break;
    case OpKind::kScale:
      scale(shape, in(0), op.number, floats(program, op.out), stream_);
      break;
    case OpKind::kRmsNorm:
      rms_norm(shape, shape.features, in(0), weights_.vector(op.weight), op.number,
               device_value(program, op.out), stream_);
      break;
    case OpKind::kHeadRmsNorm:
      rms_norm(shape, op.head_dim, in(0), weights_.vector(op.weight), op.number,
               device_value(program, op.out), stream_);
      break;
    case OpKind::kGate:
      gate(shape, op.activation == Activation::kGelu, in(0), in(1), device_value(program, op.out), stream_);
      break;
    case OpKind::kSoftCap:
      soft_cap(shape, in(0), op.number, floats(program, op.out), stream_);
      break;
    case OpKind::kConvert:
      to_bf16(shape, in(0), data(program, op.out), stream_);
      break;
    case OpKind::kAttend:
      attend(program, op);
      break;
  }
  return {};
}

struct DeviceCheck {
  std::string reason;
  std::string name;
};

DeviceCheck look_for_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    return {fmt::format("no NVIDIA GPU can be used here ({}): use --device cpu",
                        code == cudaSuccess ? "none is visible" : cudaGetErrorString(code)),
            ""};
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    return {"the GPU does not answer: use --device cpu", ""};
  }
  if (properties.major != 9 || properties.minor != 0) {
    return {fmt::format("{} has compute capability {}.{}; this program is built for 9.0 (Hopper): use --device cpu",
                        properties.name, properties.major, properties.minor),
            ""};
  }
  return {"", properties.name};
}

const DeviceCheck& device_check() {
  static const DeviceCheck found = look_for_device();
  return found;
}

}  // namespace

const std::string& why_no_device() {
  return device_check().reason;
}

std::string device_name() {
  return device_check().name;
}

Result<std::unique_ptr<Backend>> make_cuda_backend(BackendOptions options) {
  return CudaBackend::make(std::move(options));
}

}  // namespace rhapsode::kernels::cuda
