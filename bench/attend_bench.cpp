// attend on the CPU at the shapes of three models: decode in GB/s of K and V read, prefill in GFLOP/s, and
// the share of what this machine was measured to do at most in the same run (read bandwidth; float32
// multiply-adds). One decode iteration is all layers of a model, so that a long context does not fit the
// caches, as in a real step. sparse: the same step where every KV head reads a budget of tokens chosen by
// bounds; its GB/s count what it reads, bounds included.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attend.h"
#include "machine_peak.h"
#include "thread_team.h"

namespace {

using rhapsode::bench::MachinePeak;
using rhapsode::bench::ThreadTeam;
using namespace rhapsode::kernels;  // NOLINT(google-build-using-namespace)

struct Model {
  const char* name;
  int layers;
  int heads;
  int kv_heads;
  int head_dim;
};
constexpr Model kModels[] = {
    {"smollm2-135m", 30, 9, 3, 64}, {"qwen2.5-0.5b", 24, 14, 2, 64}, {"qwen2.5-1.5b", 28, 12, 2, 128}};

ThreadTeam& team_of(int threads) {
  static std::map<int, std::unique_ptr<ThreadTeam>> teams;
  auto& team = teams[threads];
  if (!team) team = std::make_unique<ThreadTeam>(threads);
  return *team;
}

const MachinePeak& peak_of(int threads) {
  static std::map<int, MachinePeak> peaks;
  const auto [entry, fresh] = peaks.try_emplace(threads);
  if (fresh) {
    entry->second = rhapsode::bench::measure_machine_peak(team_of(threads));
    benchmark::AddCustomContext("peak of " + std::to_string(threads) + " threads",
                                std::to_string(entry->second.read_gb_per_s) + " GB/s, " +
                                    std::to_string(entry->second.gflop_per_s) + " GFLOP/s");
  }
  return entry->second;
}

// Page storage as the page pool gives it: on huge pages where the system has them.
class Storage {
 public:
  explicit Storage(size_t bytes) : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage) {
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, bytes_)));
    madvise(data_.get(), bytes_, MADV_HUGEPAGE);
  }
  std::byte* data() { return data_.get(); }
  size_t size() const { return bytes_; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// A conversation of `context` tokens whose last `rows` tokens are being computed.
struct Conversation {
  KvShape shape;
  Storage storage;
  std::deque<Page> pages;
  std::deque<PageBounds> bounds;
  std::unique_ptr<Storage> bounds_storage;
  BatchPlan plan;
  std::vector<float> q, k, v, out;
  std::unique_ptr<cpu::CpuAttention> attention;

  Conversation(const Model& model, int layers, KvType type, int context, int rows);
  void fill(const Model& model, int rows);
  // Lets the row read `budget` tokens in each layer and KV head.
  void limit(const Model& model, int budget, const SparseOptions& sparse);
};

Conversation::Conversation(const Model& model, int layers, KvType type, int context, int rows)
    : shape{layers, model.kv_heads, model.head_dim, type},
      storage(shape.block_bytes() * static_cast<size_t>((context + kPageTokens - 1) / kPageTokens)) {
  const int count = (context + kPageTokens - 1) / kPageTokens;
  SequencePlan sequence{0, rows, {}, {}, {}};
  for (int i = 0; i < count; ++i) {
    Page& page = pages.emplace_back();
    page.data = storage.data() + shape.block_bytes() * static_cast<size_t>(i);
    page.count = std::clamp(context - rows - i * kPageTokens, 0, kPageTokens);
    for (int slot = 0; slot < kPageTokens; ++slot)
      page.positions[static_cast<size_t>(slot)] = i * kPageTokens + slot;
    sequence.references.push_back({&page, 0, false, ~0ull});
  }
  for (int position = context - rows; position < context; ++position) {
    plan.positions.push_back(position);
    plan.writes.push_back({&pages[static_cast<size_t>(position / kPageTokens)], position % kPageTokens});
  }
  plan.sequences.push_back(std::move(sequence));
  fill(model, rows);
  AttendLayer layer{model.heads, 1.0f / std::sqrt(static_cast<float>(model.head_dim)), 0, 0.0f, {}};
  layer.rope.dimensions = model.head_dim;
  attention = std::make_unique<cpu::CpuAttention>(
      shape, std::vector<AttendLayer>(static_cast<size_t>(layers), layer));
}

// Small numbers of every type, so that nothing is subnormal or infinite; their values do not matter for
// speed.
void Conversation::fill(const Model& model, int rows) {
  std::mt19937 random(1);
  for (size_t i = 0; i + 1 < storage.size(); i += 2) {
    const auto bits =
        static_cast<uint16_t>(0x3800u + (random() & 0x83ffu));  // f16 and bf16: 0.5 to 1, either sign
    storage.data()[i] = static_cast<std::byte>(bits & 0xffu);
    storage.data()[i + 1] = static_cast<std::byte>(bits >> 8);
  }
  const auto elements = static_cast<size_t>(rows * model.head_dim);
  std::normal_distribution<float> normal;
  q.resize(elements * static_cast<size_t>(model.heads));
  k.resize(elements * static_cast<size_t>(model.kv_heads));
  v.resize(k.size());
  out.resize(q.size());
  for (auto* tensor : {&q, &k, &v}) {
    for (float& value : *tensor) value = normal(random);
  }
}

void Conversation::limit(const Model& model, int budget, const SparseOptions& sparse) {
  const size_t bytes = sparse.bounds.block_bytes(shape);
  bounds_storage = std::make_unique<Storage>(bytes * pages.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    bounds.push_back({bounds_storage->data() + i * bytes, 0, 0});
    pages[i].bounds = &bounds.back();
  }
  plan.sequences.front().read_budget = budget;
  AttendLayer layer{model.heads, 1.0f / std::sqrt(static_cast<float>(model.head_dim)), 0, 0.0f, {}};
  layer.rope.dimensions = model.head_dim;
  attention = std::make_unique<cpu::CpuAttention>(
      shape, std::vector<AttendLayer>(static_cast<size_t>(model.layers), layer), sparse);
}

void run_layer(Conversation& conversation, ThreadTeam& team, int layer) {
  const int64_t q_stride = static_cast<int64_t>(conversation.q.size()) / conversation.plan.rows();
  const int64_t k_stride = static_cast<int64_t>(conversation.k.size()) / conversation.plan.rows();
  const cpu::AttendTensors tensors{conversation.q.data(),
                                   conversation.k.data(),
                                   conversation.v.data(),
                                   q_stride,
                                   k_stride,
                                   k_stride,
                                   conversation.out.data(),
                                   q_stride};
  const int nth = team.size();
  team.run([&](int ith) { conversation.attention->write(layer, tensors, ith, nth); });
  if (conversation.attention->selects()) {
    team.run([&](int ith) { conversation.attention->select(layer, tensors, ith, nth); });
  }
  team.run([&](int ith) { conversation.attention->attend(layer, tensors, ith, nth); });
  team.run([&](int ith) { conversation.attention->combine(layer, tensors, ith, nth); });
}

struct BenchCase {
  Model model;
  KvType type;
  int context;
  int threads;
  bool deterministic;
};

void decode(benchmark::State& state, const BenchCase& c) {
  Conversation conversation(c.model, c.model.layers, c.type, c.context, 1);
  ThreadTeam& team = team_of(c.threads);
  for (auto _ : state) {
    conversation.attention->begin(conversation.plan, {c.threads, c.deterministic, false, false});
    for (int layer = 0; layer < c.model.layers; ++layer) run_layer(conversation, team, layer);
  }
  const double bytes = static_cast<double>(conversation.shape.page_bytes()) / kPageTokens * c.context *
                       c.model.layers * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_peak"] =
      benchmark::Counter(bytes * 1e-9 / peak_of(c.threads).read_gb_per_s, benchmark::Counter::kIsRate);
}

struct SparseCase {
  BenchCase decode;
  int budget;
  SparseOptions options;
};

void sparse(benchmark::State& state, const SparseCase& c) {
  const Model& model = c.decode.model;
  Conversation conversation(model, model.layers, c.decode.type, c.decode.context, 1);
  conversation.limit(model, c.budget, c.options);
  ThreadTeam& team = team_of(c.decode.threads);
  const auto step = [&] {
    conversation.attention->begin(conversation.plan, {c.decode.threads, false, false, false});
    for (int layer = 0; layer < model.layers; ++layer) run_layer(conversation, team, layer);
  };
  step();  // makes the bounds
  for (auto _ : state) step();
  const double page = static_cast<double>(conversation.shape.page_bytes()) * model.layers;
  const double bounds = static_cast<double>(c.options.bounds.block_bytes(conversation.shape));
  const double bytes = (page * c.budget + bounds * c.decode.context) / kPageTokens;
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void prefill(benchmark::State& state, const BenchCase& c) {
  constexpr int kRows = 512;
  Conversation conversation(c.model, 1, c.type, c.context, kRows);
  ThreadTeam& team = team_of(c.threads);
  for (auto _ : state) {
    conversation.attention->begin(conversation.plan, {c.threads, c.deterministic, false, false});
    run_layer(conversation, team, 0);
  }
  const double pairs = static_cast<double>(kRows) * (c.context - kRows) + kRows * (kRows + 1) / 2.0;
  const double operations =
      4.0 * pairs * c.model.heads * c.model.head_dim * static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_peak"] =
      benchmark::Counter(operations * 1e-9 / peak_of(c.threads).gflop_per_s, benchmark::Counter::kIsRate);
}

void add(const std::string& kind, void (*run)(benchmark::State&, const BenchCase&), const BenchCase& c) {
  const std::string name = kind + "/" + c.model.name + "/" + to_string(c.type) +
                           "/context:" + std::to_string(c.context) + "/threads:" + std::to_string(c.threads) +
                           (c.deterministic ? "/deterministic" : "");
  benchmark::RegisterBenchmark(name.c_str(), [run, c](benchmark::State& state) { run(state, c); })
      ->UseRealTime()
      ->MinTime(0.2)
      ->Unit(benchmark::kMicrosecond);
}

void add_sparse(const SparseCase& c) {
  const std::string name = std::string("sparse/") + c.decode.model.name +
                           "/context:" + std::to_string(c.decode.context) +
                           "/budget:" + std::to_string(c.budget) + "/" + to_string(c.options.bounds.kind) +
                           std::to_string(c.options.bounds.group_slots) +
                           (c.options.scope == SelectionScope::kLayer ? "/layer" : "") +
                           "/threads:" + std::to_string(c.decode.threads);
  benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) { sparse(state, c); })
      ->UseRealTime()
      ->MinTime(0.2)
      ->Unit(benchmark::kMicrosecond);
}

const bool kSparseRegistered = [] {
  for (const int threads : {1, 2}) {
    const BenchCase decode_32k{kModels[1], KvType::kF16, 32768, threads, false};
    add("decode", decode, decode_32k);
    for (const int budget : {512, 1024, 2048, 4096, 8192}) add_sparse({decode_32k, budget, {}});
    add_sparse({decode_32k, 2048, {{BoundKind::kBox, 64}, SelectionScope::kKvHead}});
    add_sparse({decode_32k, 2048, {{BoundKind::kBall, 16}, SelectionScope::kKvHead}});
    add_sparse({decode_32k, 2048, {{BoundKind::kBox, 16}, SelectionScope::kLayer}});
  }
  return true;
}();

const bool kRegistered = [] {
  for (const Model& model : kModels) {
    for (const int context : {512, 2048, 16384}) {
      for (const int threads : {1, 2}) {
        add("decode", decode, {model, KvType::kF16, context, threads, false});
        add("prefill", prefill, {model, KvType::kF16, context, threads, false});
      }
    }
    add("decode", decode, {model, KvType::kF16, 16384, 2, true});
    add("prefill", prefill, {model, KvType::kF16, 16384, 2, true});
  }
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kI8}) {
    add("decode", decode, {kModels[0], type, 16384, 2, false});
    add("prefill", prefill, {kModels[0], type, 2048, 2, false});
  }
  return true;
}();

}  // namespace
