#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "kernels/collective.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/code_search.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_page_memory.h"
#include "kernels/cuda/device_scope.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/layer_clock.h"
#include "kernels/cuda/op_clock.h"
#include "kernels/cuda/page_arrivals.h"
#include "kernels/cuda/pass_graphs.h"
#include "kernels/cuda/pass_mass.h"
#include "kernels/cuda/plan_upload.h"
#include "kernels/cuda/program.h"
#include "kernels/cuda/rope_tables.h"
#include "kernels/cuda/shard_merge.h"
#include "kernels/cuda/top_finder.h"
#include "kernels/cuda/weight_store.h"
#include "kernels/shard_exchange.h"

namespace rhapsode::kernels::cuda {

namespace {

// Passes of so few rows are over sooner than their kernels can be launched one by one.
constexpr int kMostGraphRows = 128;

class CudaBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> make(BackendOptions options, OpClock* clock);
  ~CudaBackend() override;

  Result<Weight> add_weight(const WeightSource& source, WeightUse use) override {
    const DeviceScope scope(options_.device);
    return weights_.add(source, use);
  }
  int add_recipe(Recipe recipe) override {
    recipes_.push_back({std::move(recipe), {}});
    return static_cast<int>(recipes_.size()) - 1;
  }
  Result<std::span<const float>> run(const BatchInput& batch, int recipe) override;
  int fixed_rows() const override { return 0; }
  bool scores_targets() const override { return true; }
  bool pools_outputs() const override { return true; }
  bool finds_top_logits() const override { return true; }
  Result<TopLogits> top_logits(int output) const override { return top_.of(output); }
  Result<std::span<const float>> whole_rows(int first_output, int count) override;
  uint64_t weight_copy_bytes() const override { return weights_.bytes(); }
  std::unique_ptr<PageMemory> new_page_memory() override {
    return device_page_memory(options_.device, arrivals_);
  }
  bool searches_codes() const override { return true; }
  Result<std::unique_ptr<CodeSearch>> new_code_search(int dimensions) override {
    return make_code_search(dimensions, options_.device);
  }
  std::string_view numerics() const override { return weights_.rounds_to_bf16() ? "bf16" : ""; }
  std::vector<LayerSpan> layer_spans() const override { return clock_.spans(); }
  Result<std::span<const double>> mass_per_token(int sequence) const override { return mass_.of(sequence); }

 private:
  explicit CudaBackend(BackendOptions options)
      : options_(std::move(options)),
        weights_(options_.threads),
        ropes_(options_.layers),
        attention_(options_.kv, options_.layers),
        packer_(options_.kv.layers, attention_.rule()),
        arrivals_(std::make_shared<PageArrivals>(options_.kv)),
        mass_(options_.kv),
        clock_(options_.layer_times ? options_.kv.layers : 0) {}

  struct Recorded {
    Recipe recipe;
    std::optional<Program> program;
  };

  Result<const Program*> program_of(int recipe);
  Status join_weights(Program& program);
  // Everything of a pass that may fail before it begins.
  Result<const Program*> prepare(const BatchInput& batch, int recipe);
  Status upload(const BatchInput& batch);
  Status place(const Program& program);
  Status reserve_results(const Program& program, const BatchInput& batch);
  Result<std::span<const float>> evaluate(const Program& program, const BatchInput& batch, int recipe);
  Status launch(const Program& program);
  PassKey pass_key(int recipe) const;
  void mark(const Program& program, const Op& op);
  Status execute(const Program& program, const Op& op);
  Status multiply(const Program& program, const Op& op);
  Status attend(const Program& program, const Op& op);
  Status exchange(DeviceAttend& call, DeviceValue out);
  Status wait();
  Result<std::span<const float>> result_of(const Program& program, const BatchInput& batch);
  Status pool(const RowShape& shape, const float* rows, std::span<const int32_t> pools);
  Status score(const RowShape& shape, const float* rows, std::span<const int32_t> targets);

  // The batch's rows that a value has.
  int rows_of(const ProgramValue& value) const {
    return value.outputs_only ? packer_.sizes().outputs : packer_.sizes().rows;
  }
  RowShape shape_of(const Program& program, int value) const {
    return {rows_of(program.values[value]), program.values[value].features};
  }
  void* data(const Program& program, int value) const {
    const ProgramValue& v = program.values[value];
    const size_t within = static_cast<size_t>(v.offset) * element_bytes(v.element);
    return activations_.at<void>(slot_offsets_[v.slot] + within);
  }
  // Elements from row to row.
  int64_t stride(const Program& program, int value) const {
    const int parent = program.values[value].parent;
    return program.values[parent < 0 ? value : parent].features;
  }
  float* floats(const Program& program, int value) const { return static_cast<float*>(data(program, value)); }
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
  std::shared_ptr<PageArrivals> arrivals_;  // of this back end's page memory
  bool awaits_pages_ = false;               // the pass reads pages that are on their way
  PinnedBuffer plan_pinned_;
  DeviceBuffer plan_;
  DeviceBuffer activations_;
  std::vector<size_t> slot_offsets_;
  PinnedBuffer result_;
  TopFinder top_;
  DeviceBuffer targets_;
  DeviceBuffer scores_;
  PassMass mass_;
  DeviceBuffer shares_;  // of attention, of every shard
  LayerClock clock_;
  OpClock* op_clock_ = nullptr;
  PassGraphs graphs_;
};

CudaBackend::~CudaBackend() {
  const DeviceScope scope(options_.device);
  if (stream_) {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
}

Result<std::unique_ptr<Backend>> CudaBackend::make(BackendOptions options, OpClock* clock) {
  if (!why_no_device().empty()) return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
  if (options.deterministic) {
    return make_error(ErrorKind::kUnsupported, "deterministic passes run on the CPU only: use --device cpu");
  }
  const DeviceScope scope(options.device);
  std::unique_ptr<CudaBackend> backend(new CudaBackend(std::move(options)));
  RH_TRY_STATUS(
      check(cudaStreamCreateWithFlags(&backend->stream_, cudaStreamNonBlocking), "making a stream"));
  RH_TRY(backend->gemm_, Gemm::make());
  RH_TRY_STATUS(backend->ropes_.start());
  backend->op_clock_ = clock;
  return std::unique_ptr<Backend>(std::move(backend));
}

Result<const Program*> CudaBackend::program_of(int recipe) {
  Recorded& recorded = recipes_[recipe];
  if (!recorded.program) {
    Program program = record_program(recorded.recipe, weights_.shapes());
    weights_.finish();
    RH_TRY_STATUS(join_weights(program));
    recorded.program = std::move(program);
  }
  return &*recorded.program;
}

Status CudaBackend::join_weights(Program& program) {
  for (Op& op : program.ops) {
    if (op.joined == 0) continue;
    std::vector<int64_t> rows;
    for (int i = 0; i < op.joined; ++i) rows.push_back(weights_.shapes()[op.weights[i]].rows);
    RH_TRY(op.weight, weights_.join(std::span(op.weights, op.joined), rows));
    if (op.biases[0] < 0) continue;
    RH_TRY(op.bias, weights_.join(std::span(op.biases, op.joined), rows));
  }
  return {};
}

Status CudaBackend::upload(const BatchInput& batch) {
  packer_.pack(batch);
  const std::span<const std::byte> bytes = packer_.bytes();
  RH_TRY_STATUS(plan_pinned_.reserve(bytes.size(), "the context plan"));
  RH_TRY_STATUS(plan_.reserve(bytes.size(), "the context plan"));
  std::memcpy(plan_pinned_.data(), bytes.data(), bytes.size());
  RH_TRY_STATUS(check(
      cudaMemcpyAsync(plan_.as<void>(), plan_pinned_.data(), bytes.size(), cudaMemcpyHostToDevice, stream_),
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

// What a pass needs is there before its first kernel: a shard that lacks memory must not leave the others
// waiting, and allocating waits for kernels that may be waiting for other shards.
Result<const Program*> CudaBackend::prepare(const BatchInput& batch, int recipe) {
  RH_TRY_STATUS(check(cudaStreamSynchronize(stream_), "a pass before this one"));
  top_.begin(batch.top_logits_of);
  RH_TRY(const Program* const program, program_of(recipe));
  RH_TRY_STATUS(upload(batch));
  RH_TRY_STATUS(place(*program));
  mass_.skip();
  if (batch.mass) {
    const int query_parts = attention_.mass_parts_of_queries(packer_.sizes());
    RH_TRY_STATUS(mass_.begin(packer_, plan_, query_parts, stream_));
  }
  RH_TRY_STATUS(reserve_results(*program, batch));
  if (options_.group) {
    int heads = 0;
    for (const AttendLayer& layer : options_.layers) heads = std::max(heads, layer.heads);
    const size_t floats = shard_part_floats(packer_.sizes().rows, heads, options_.kv.head_dim);
    RH_TRY_STATUS(shares_.reserve(floats * sizeof(float) * static_cast<size_t>(options_.group->members()),
                                  "shares of attention: lower --batch"));
  }
  return program;
}

Result<std::span<const float>> CudaBackend::run(const BatchInput& batch, int recipe) {
  const DeviceScope scope(options_.device);
  const Result<const Program*> program = prepare(batch, recipe);
  if (options_.group) RH_TRY_STATUS(options_.group->agree(program.ok() ? Status() : program.error()));
  if (!program.ok()) return program.error();
  Result<std::span<const float>> result = evaluate(**program, batch, recipe);
  if (options_.group && !result.ok()) options_.group->fail(result.error());
  return result;
}

Result<std::span<const float>> CudaBackend::evaluate(const Program& program, const BatchInput& batch,
                                                     int recipe) {
  clock_.begin();
  if (op_clock_) op_clock_->begin();
  awaits_pages_ = arrivals_->on_the_way(packer_.arrival());
  const bool small = packer_.sizes().rows <= kMostGraphRows && !packer_.has_own_lists();
  if (small && !awaits_pages_ && !options_.layer_times && !op_clock_ && !batch.mass && !options_.group) {
    RH_TRY_STATUS(graphs_.run(pass_key(recipe), stream_, [&] { return launch(program); }));
  } else {
    RH_TRY_STATUS(launch(program));
  }
  clock_.end(stream_);
  if (op_clock_) op_clock_->mark("copying results", 0, stream_);
  if (mass_.kept()) RH_TRY_STATUS(mass_.finish(stream_));
  RH_TRY(const std::span<const float> result, result_of(program, batch));
  if (mass_.kept()) mass_.take(*batch.plan, packer_);
  return result;
}

Status CudaBackend::launch(const Program& program) {
  for (const Op& op : program.ops) {
    if (rows_of(program.values[op.out]) == 0) continue;
    if (op.kind == OpKind::kAttend) clock_.at_layer(op.layer, stream_);
    if (op_clock_) mark(program, op);
    if (op.kind == OpKind::kAttend && awaits_pages_) RH_TRY_STATUS(arrivals_->await(op.layer, stream_));
    RH_TRY_STATUS(execute(program, op));
  }
  if (top_.wanted()) {
    if (op_clock_) op_clock_->mark("largest logits", 0, stream_);
    top_.find(stream_);
  }
  return check(cudaGetLastError(), "starting a kernel");
}

void CudaBackend::mark(const Program& program, const Op& op) {
  static constexpr const char* kNames[] = {"token rows", "",          "add",  "bias",          "scale",
                                           "norm",       "head norm", "gate", "writing pages", "output rows",
                                           "soft cap",   "convert"};
  if (op.kind != OpKind::kMatmul) return op_clock_->mark(kNames[static_cast<int>(op.kind)], 0, stream_);
  const WeightShape& weight = weights_.shapes()[op.weight];
  const double products = static_cast<double>(weight.rows) * static_cast<double>(weight.columns);
  op_clock_->mark(fmt::format("matmul {} x {}{}", weight.columns, weight.rows, op.in[1] < 0 ? "" : ", added"),
                  2.0 * products * rows_of(program.values[op.out]), stream_);
}

PassKey CudaBackend::pass_key(int recipe) const {
  PassKey key;
  key.recipe = recipe;
  key.offsets = packer_.offsets();
  key.offsets.bytes = 0;
  key.sizes = packer_.sizes();
  key.sizes.most_references = 0;  // decides the splits and nothing else
  key.splits = attention_.splits(packer_.sizes());
  key.output_splits = attention_.splits(of_outputs(packer_.sizes()));
  key.top_logits_of = top_.vocabulary();
  key.buffers = {plan_.as<void>(),      activations_.as<void>(), ropes_.table(),  attention_.rooms()[0],
                 attention_.rooms()[1], attention_.rooms()[2],   top_.rooms()[0], top_.rooms()[1]};
  return key;
}

// The log-probability of each row's target takes the row's place: a number instead of a vocabulary comes
// back.
Status CudaBackend::score(const RowShape& shape, const float* rows, std::span<const int32_t> targets) {
  const size_t bytes = targets.size() * sizeof(int32_t);
  RH_TRY_STATUS(
      check(cudaMemcpyAsync(targets_.as<void>(), targets.data(), bytes, cudaMemcpyHostToDevice, stream_),
            "copying target tokens to the GPU"));
  log_softmax_at(shape, rows, targets_.as<const int32_t>(), scores_.as<float>(), stream_);
  return check(cudaGetLastError(), "scoring targets");
}

// What goes wrong in a kernel is reported here, so it says what kind of pass that was.
Status CudaBackend::wait() {
  const cudaError_t code = cudaStreamSynchronize(stream_);
  if (code == cudaSuccess) return {};
  const PlanSizes& sizes = packer_.sizes();
  const std::string what =
      fmt::format("evaluating {} rows of {} sequences over {} pages ({} outputs) on the GPU", sizes.rows,
                  sizes.sequences, packer_.reference_count(), sizes.outputs);
  return check(code, what.c_str());
}

// Sums take the place of the rows they add up.
Status CudaBackend::pool(const RowShape& shape, const float* rows, std::span<const int32_t> pools) {
  std::vector<int32_t> begins{0};
  for (const int32_t count : pools) begins.push_back(begins.back() + count);
  const size_t bytes = begins.size() * sizeof(int32_t);
  RH_TRY_STATUS(
      check(cudaMemcpyAsync(targets_.as<void>(), begins.data(), bytes, cudaMemcpyHostToDevice, stream_),
            "copying pools to the GPU"));
  pool_rows({static_cast<int>(pools.size()), shape.features}, rows, targets_.as<const int32_t>(),
            scores_.as<float>(), stream_);
  return check(cudaGetLastError(), "adding up output rows");
}

// Room for what result_of() takes; refuses what does not fit together.
Status CudaBackend::reserve_results(const Program& program, const BatchInput& batch) {
  RowShape shape = shape_of(program, program.result);
  if (top_.wanted()) return top_.reserve(shape, floats(program, program.result));
  if (!batch.pools.empty()) {
    shape.rows = static_cast<int>(batch.pools.size());
    RH_TRY_STATUS(targets_.reserve((batch.pools.size() + 1) * sizeof(int32_t), "pools of output rows"));
    const size_t sums = batch.pools.size() * static_cast<size_t>(shape.features);
    RH_TRY_STATUS(scores_.reserve(sums * sizeof(float), "pools"));
  }
  if (!batch.targets.empty()) {
    if (static_cast<int64_t>(batch.targets.size()) != shape.rows) {
      return make_error(ErrorKind::kInternal, "{} targets for {} output rows", batch.targets.size(),
                        shape.rows);
    }
    RH_TRY_STATUS(targets_.reserve(batch.targets.size() * sizeof(int32_t), "target tokens"));
    RH_TRY_STATUS(scores_.reserve(batch.targets.size() * sizeof(float), "scores"));
    shape.features = 1;
  }
  const size_t values = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.features);
  return result_.reserve(values * sizeof(float), "results");
}

Result<std::span<const float>> CudaBackend::result_of(const Program& program, const BatchInput& batch) {
  RowShape shape = shape_of(program, program.result);
  const float* from = floats(program, program.result);
  const std::span<const int32_t> targets = batch.targets;
  if (!batch.pools.empty()) {
    RH_TRY_STATUS(pool(shape, from, batch.pools));
    from = scores_.as<const float>();
    shape.rows = static_cast<int>(batch.pools.size());
  }
  if (!targets.empty()) {
    RH_TRY_STATUS(score(shape, from, targets));
    from = scores_.as<const float>();
    shape.features = 1;
  }
  if (top_.wanted()) {
    RH_TRY_STATUS(top_.copy(stream_));
    shape.rows = 0;
  }
  const size_t values = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.features);
  if (values > 0) {
    RH_TRY_STATUS(
        check(cudaMemcpyAsync(result_.data(), from, values * sizeof(float), cudaMemcpyDeviceToHost, stream_),
              "copying results from the GPU"));
  }
  RH_TRY_STATUS(wait());
  clock_.read();
  if (op_clock_) {
    op_clock_->end(stream_);
    RH_TRY_STATUS(check(cudaStreamSynchronize(stream_), "reading clocks"));
    op_clock_->read();
  }
  return std::span<const float>(reinterpret_cast<const float*>(result_.data()), values);
}

Result<std::span<const float>> CudaBackend::whole_rows(int first_output, int count) {
  const DeviceScope scope(options_.device);
  RH_TRY(const std::span<const float> rows, top_.fetch(first_output, count, stream_));
  RH_TRY_STATUS(wait());
  return rows;
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

// This shard's attention becomes that over every shard's pages.
Status CudaBackend::exchange(DeviceAttend& call, DeviceValue out) {
  const int rows = call.plan.rows;
  const size_t floats = shard_part_floats(rows, call.heads, call.shape.head_dim);
  RH_TRY_STATUS(options_.group->all_gather(shares_.as<std::byte>(), floats * sizeof(float), stream_));
  ShardMerge merge;
  merge.shards = options_.group->members();
  merge.rows = rows;
  merge.heads = call.heads;
  merge.head_dim = call.shape.head_dim;
  merge.parts = shares_.as<const float>();
  merge.part_floats = static_cast<int64_t>(floats);
  merge.out = out;
  merge.lse = attention_.lse();
  merge_shards(merge, stream_);
  return {};
}

Status CudaBackend::attend(const Program& program, const Op& op) {
  const AttendLayer& layer = options_.layers[op.layer];
  const PlanOffsets& offsets = packer_.offsets();
  // Mass is summed, and shares are exchanged, of all rows.
  const bool outputs_only = op.outputs_only && !mass_.kept() && !options_.group;
  const PlanSizes sizes = outputs_only ? of_outputs(packer_.sizes()) : packer_.sizes();
  const size_t tiles = outputs_only ? offsets.output_tiles : offsets.tiles;
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
  call.q_stride = stride(program, op.in[0]);
  call.k_stride = stride(program, op.in[1]);
  call.v_stride = stride(program, op.in[2]);
  call.out = device_value(program, op.out);
  attention_.write(call, sizes, mass_.kept(), stream_);
  if (op.writes_only && !mass_.kept()) return {};
  if (op_clock_) op_clock_->mark("attention", 0, stream_);
  const DeviceValue out = call.out;
  if (options_.group) {
    const size_t part = shard_part_floats(sizes.rows, call.heads, call.shape.head_dim);
    float* const own = shares_.as<float>() + part * static_cast<size_t>(options_.group->member());
    call.out = {own, Element::kF32};
    call.lse = own + int64_t{sizes.rows} * call.heads * call.shape.head_dim;
  }
  attention_.run(call, sizes,
                 {plan_.at<const DeviceTile>(tiles), plan_.at<const DevicePart>(offsets.parts),
                  plan_.at<const DeviceMerge>(offsets.merges)},
                 stream_);
  if (options_.group) RH_TRY_STATUS(exchange(call, out));
  if (!mass_.kept()) return {};
  attention_.add_mass(call, mass_.target(), stream_);
  return {};
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
    case OpKind::kHeadRmsNorm:
      rms_norm(shape,
               {op.kind == OpKind::kRmsNorm ? shape.features : op.head_dim, in(0), stride(program, op.in[0]),
                weights_.vector(op.weight), op.number},
               device_value(program, op.out), stream_);
      break;
    case OpKind::kGate:
      gate(shape,
           {device_input(program, op.in[0]), device_input(program, op.in[1]), stride(program, op.in[0]),
            op.activation == Activation::kGelu},
           device_value(program, op.out), stream_);
      break;
    case OpKind::kSoftCap:
      soft_cap(shape, in(0), op.number, floats(program, op.out), stream_);
      break;
    case OpKind::kConvert:
      to_bf16(shape, in(0), data(program, op.out), stream_);
      break;
    case OpKind::kAttend:
      return attend(program, op);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(BackendOptions options, OpClock* clock) {
  return CudaBackend::make(std::move(options), clock);
}

}  // namespace rhapsode::kernels::cuda
