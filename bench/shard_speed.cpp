// How long passes over a memory take when its pages are spread over several devices.
//
//   rhapsode_shard_speed MODEL.gguf [--gpus 0,1]... [--shards N]... [--passages 64] [--tokens 512] [--readers
//   16]
//                        [--rows 64] [--runs 30]
//
// For each --gpus list (a GPU named twice takes two shares) and each --shards count (of the CPU): passages of
// random tokens are encoded, spread over the devices; then readers, each of whom sees all of them, take
// passes of one row each (decode) and of --rows rows each (questions). The first two passes of a shape are
// not timed. Prints the median a pass, the rate at which pages are read, and the largest difference of logits
// from the first line's. Errors end the program with a sentence.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <random>

#include "engine/model_runner.h"
#include "engine/sequence.h"

namespace {

using namespace rhapsode;  // NOLINT(google-build-using-namespace)
using engine::Sequence;

struct Setting {
  std::string model;
  std::vector<std::string> gpus;
  std::vector<int> shards;
  int passages = 64;
  int tokens = 512;
  int readers = 16;
  int rows = 64;
  int runs = 30;
};

class Bench {
 public:
  Bench(const Setting& setting, engine::ModelRunner& runner, store::PagePool& pool)
      : setting_(setting), runner_(runner), pool_(pool) {}

  // Eight passages a pass, each one sequence.
  Status encode() {
    std::vector<Sequence> passages;
    for (int i = 0; i < setting_.passages; ++i) passages.emplace_back(pool_);
    for (size_t begin = 0; begin < passages.size(); begin += 8) {
      const auto some = std::span(passages).subspan(begin, std::min<size_t>(8, passages.size() - begin));
      RH_TRY_STATUS(run(some, setting_.tokens, {}));
      for (Sequence& passage : some) passage.commit(setting_.tokens);
    }
    for (int r = 0; r < setting_.readers; ++r) {
      Sequence& reader = readers_.emplace_back(pool_);
      for (const Sequence& passage : passages) {
        reader.adopt_passage(passage.share_pages(0), setting_.tokens, reader.position());
      }
    }
    return {};
  }

  // The median of a pass in milliseconds, and the last row's logits.
  Result<double> time(int rows, std::vector<float>& logits) {
    std::vector<double> times;
    for (int i = -2; i < setting_.runs; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const int32_t last = setting_.readers * rows - 1;
      RH_TRY_STATUS(run(readers_, rows, std::span(&last, 1)));
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      if (i >= 0) times.push_back(took.count());
    }
    logits.assign(result_.begin(), result_.end());
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  Status run(std::span<Sequence> sequences, int rows, std::span<const int32_t> outputs) {
    kernels::BatchPlan plan;
    std::vector<int32_t> tokens;
    std::mt19937 random(5);
    for (Sequence& sequence : sequences) {
      if (!sequence.reserve(rows)) return make_error(ErrorKind::kNoSpace, "the pages do not suffice");
      sequence.add_to_plan(rows, plan);
      for (int i = 0; i < rows; ++i) tokens.push_back(static_cast<int32_t>(random() % 8000));
    }
    RH_TRY(result_, runner_.evaluate({tokens, &plan, outputs}));
    return {};
  }

  const Setting& setting_;
  engine::ModelRunner& runner_;
  store::PagePool& pool_;
  std::vector<Sequence> readers_;
  std::span<const float> result_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most;
}

Status measure(const Setting& setting, const engine::RunnerOptions& options, const std::string& name,
               std::vector<std::vector<float>>& first) {
  RH_TRY(const auto runner, engine::ModelRunner::open(options));
  const kernels::KvShape& kv = runner->kv_shape();
  const uint64_t pages =
      static_cast<uint64_t>(setting.passages) * static_cast<uint64_t>(setting.tokens / 64 + 1) +
      static_cast<uint64_t>(setting.readers) * static_cast<uint64_t>(setting.rows / 64 + 2);
  RH_TRY(const auto pool, runner->make_pool((pages + 64) * kv.block_bytes()));
  Bench bench(setting, *runner, *pool);
  RH_TRY_STATUS(bench.encode());
  const double read_gb = static_cast<double>(kv.block_bytes()) / kernels::kPageTokens * setting.passages *
                         setting.tokens * setting.readers * 1e-9;
  size_t shape = 0;
  for (const int rows : {1, setting.rows}) {
    std::vector<float> logits;
    RH_TRY(const double ms, bench.time(rows, logits));
    if (first.size() <= shape) first.push_back(logits);
    fmt::print("{:<16} {} readers x {:>4} rows over {} tokens: {:8.3f} ms", name, setting.readers, rows,
               setting.passages * setting.tokens, ms);
    if (rows == 1) fmt::print(", {:.0f} GB/s of pages", read_gb / ms * 1e3);
    fmt::print(", logits within {:.2g}\n", largest_difference(logits, first[shape++]));
  }
  return {};
}

// "0,1"; "-" for none.
Result<std::vector<int>> numbers_of(const std::string& list) {
  std::vector<int> numbers;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (list != "-" && at < end) {
    const auto [rest, code] = std::from_chars(at, end, numbers.emplace_back());
    if (code != std::errc() || (rest != end && *rest != ',')) {
      return make_error(ErrorKind::kInvalidArgument, "'{}' is no list of GPUs, such as 0,1", list);
    }
    at = rest + 1;
  }
  return numbers;
}

Status run(const Setting& setting) {
  engine::RunnerOptions options;
  options.model = options.vocabulary = setting.model;
  std::vector<std::vector<float>> first;
  options.device = Device::kCuda;
  options.threads = 8;
  for (const std::string& list : setting.gpus) {
    RH_TRY(options.gpus, numbers_of(list));
    RH_TRY_STATUS(measure(setting, options, options.gpus.empty() ? "one GPU" : "GPUs " + list, first));
  }
  options.device = Device::kCpu;
  options.gpus.clear();
  options.threads = 2;
  for (const int shards : setting.shards) {
    options.devices = shards;
    RH_TRY_STATUS(measure(setting, options, fmt::format("{} of the CPU", shards), first));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  CLI::App app("How long passes over a memory on several devices take");
  app.add_option("model", setting.model, "a GGUF file")->required();
  app.add_option("--gpus", setting.gpus, "numbers of GPUs, such as 0,1; -: one, without shards");
  app.add_option("--shards", setting.shards)->check(CLI::Range(1, 64));
  app.add_option("--passages", setting.passages)->check(CLI::Range(1, 100'000));
  app.add_option("--tokens", setting.tokens)->check(CLI::Range(1, 4096));
  app.add_option("--readers", setting.readers)->check(CLI::Range(1, 1000));
  app.add_option("--rows", setting.rows)->check(CLI::Range(1, 4096));
  app.add_option("--runs", setting.runs)->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  const Status status = run(setting);
  if (!status.ok()) std::cerr << status.error().message << "\n";
  return status.ok() ? 0 : 1;
}
