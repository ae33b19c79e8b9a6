// What block-sparse decode gains and loses on real text: speed and agreement with full attention.
//
//   sparse_decode MODEL TEXT... [--context 32000] [--steps 200] [--budgets 512,1024,...] [--groups 16,64]
//                 [--bounds mean,box,ball] [--scopes head,layer] [--batch 1] [--begin 0]
//                 [--threads 2] [--json]
//
// The TEXTs, one after another, are tokenised; `context` tokens from --begin on are prefilled once, in full.
// Then every setting decodes the following `steps` tokens of the text, teacher-forced, on its own fork, and
// is compared row by row with full attention on another: share of equal likeliest tokens, mean KL(full ||
// sparse), and both mean negative log-likelihoods of the text. Every fourth step the full step is timed right
// behind the sparse one, so the ratio of the medians is taken under one load of the machine. With --batch N,
// N sequences over physical copies of the context are decoded in one pass, as a server would: weights are
// then read once for all.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/clock.h"
#include "engine/model_runner.h"
#include "engine/sequence.h"

namespace rhapsode::engine {
namespace {

constexpr int kPrefillRows = 512;
constexpr int kTimedEvery = 4;

struct Arguments {
  std::string model;
  std::vector<std::string> texts;
  int context = 32000;
  int steps = 200;
  std::vector<int> budgets{512, 1024, 2048, 4096, 8192};
  std::vector<int> groups{16, 64};
  std::vector<std::string> bounds{"mean", "box", "ball"};
  std::vector<std::string> scopes{"head", "layer"};
  int batch = 1;
  int begin = 0;
  int threads = 2;
  bool json = false;
};

struct Outcome {
  int rows = 0;
  int equal = 0;
  double kl = 0;
  double full_nll = 0;
  double sparse_nll = 0;
  std::vector<double> sparse_ms;
  std::vector<double> full_ms;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> log_softmax(std::span<const float> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(x - largest);
  const double lse = largest + std::log(sum);
  std::vector<double> result(row.size());
  for (size_t i = 0; i < row.size(); ++i) result[i] = row[i] - lse;
  return result;
}

void compare(std::span<const float> full, std::span<const float> sparse, int32_t next, Outcome& outcome) {
  const std::vector<double> p = log_softmax(full);
  const std::vector<double> q = log_softmax(sparse);
  for (size_t i = 0; i < p.size(); ++i) outcome.kl += std::exp(p[i]) * (p[i] - q[i]);
  ++outcome.rows;
  outcome.equal +=
      std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
  outcome.full_nll -= p[static_cast<size_t>(next)];
  outcome.sparse_nll -= q[static_cast<size_t>(next)];
}

// One pass in which every sequence reads the same token.
Result<std::vector<float>> step(ModelRunner& runner, std::vector<Sequence>& sequences, int32_t token,
                                int budget, double& ms) {
  kernels::BatchPlan plan;
  std::vector<int32_t> tokens;
  std::vector<int32_t> outputs;
  for (Sequence& sequence : sequences) {
    if (!sequence.reserve(1)) return make_error(ErrorKind::kNoSpace, "the page pool is full");
    outputs.push_back(plan.rows());
    sequence.add_to_plan(1, plan);
    plan.sequences.back().read_budget = budget;
    tokens.push_back(token);
  }
  const int64_t begin = now_ns();
  RH_TRY(const std::span<const float> logits, runner.evaluate({tokens, &plan, outputs}));
  ms = ms_between(begin, now_ns());
  for (Sequence& sequence : sequences) sequence.commit(1);
  const auto row = logits.first(logits.size() / sequences.size());
  return std::vector<float>(row.begin(), row.end());
}

class Measurement {
 public:
  Measurement(const Arguments& arguments, RunnerOptions options)
      : arguments_(arguments), options_(std::move(options)) {}

  Status prepare() {
    RH_TRY(auto runner, ModelRunner::open(options_));
    RH_TRY_STATUS(read_text(runner->tokenizer()));
    // Room for the context, for as many copies of it, and for what is decoded behind.
    const kernels::KvShape& shape = runner->kv_shape();
    const size_t bounds = kernels::BoundsShape{}.block_bytes(shape);
    const auto pages = static_cast<uint64_t>((arguments_.context + 63) / 64);
    const uint64_t blocks = pages * static_cast<uint64_t>(arguments_.batch) +
                            4 * static_cast<uint64_t>(arguments_.batch * (arguments_.steps / 64 + 2));
    RH_TRY(pool_, store::PagePool::create(shape, blocks * (shape.block_bytes() + bounds), bounds));
    sequences_.emplace_back(*pool_);
    RH_TRY_STATUS(prefill(*runner));
    while (sequences_.size() < static_cast<size_t>(arguments_.batch)) RH_TRY_STATUS(copy_context());
    RH_TRY_STATUS(decode_in_full(*runner));
    return {};
  }

  Result<Outcome> measure(const kernels::SparseOptions& sparse, int budget) {
    RunnerOptions options = options_;
    options.sparse = sparse;
    RH_TRY(const auto runner, ModelRunner::open(options));
    // Bounds of another kind may lie in the pages.
    for (const Sequence& sequence : sequences_) {
      for (int i = 0; i < sequence.pages(); ++i) sequence.page(i)->bounds->slots = 0;
    }
    std::vector<Sequence> narrow = forks();
    std::vector<Sequence> wide = forks();
    Outcome outcome;
    for (int i = 0; i < arguments_.steps; ++i) {
      double ms = 0;
      const int32_t token = tokens_[static_cast<size_t>(arguments_.context + i)];
      RH_TRY(const auto row, step(*runner, narrow, token, budget, ms));
      compare(full_[static_cast<size_t>(i)], row, tokens_[static_cast<size_t>(arguments_.context + i + 1)],
              outcome);
      if (i % kTimedEvery != kTimedEvery - 1) continue;  // the first step also makes the bounds
      outcome.sparse_ms.push_back(ms);
      RH_TRY(const auto again, step(*runner, wide, token, 0, ms));
      outcome.full_ms.push_back(ms);
    }
    return outcome;
  }

 private:
  Status read_text(const text::Tokenizer& tokenizer) {
    std::string all;
    for (const std::string& path : arguments_.texts) {
      std::ifstream file(path);
      if (!file) return make_error(ErrorKind::kNotFound, "{} cannot be read", path);
      std::stringstream content;
      content << file.rdbuf();
      all += content.str();
    }
    RH_TRY(tokens_, tokenizer.encode(all, {}));
    const size_t needed = static_cast<size_t>(arguments_.begin + arguments_.context + arguments_.steps + 1);
    if (tokens_.size() < needed) {
      return make_error(ErrorKind::kInvalidArgument, "the texts have {} tokens; {} are needed",
                        tokens_.size(), needed);
    }
    tokens_.erase(tokens_.begin(), tokens_.begin() + arguments_.begin);
    return {};
  }

  Status prefill(ModelRunner& runner) {
    const int64_t begin = now_ns();
    for (int at = 0; at < arguments_.context; at += kPrefillRows) {
      const int rows = std::min(kPrefillRows, arguments_.context - at);
      if (!sequences_.front().reserve(rows)) return make_error(ErrorKind::kNoSpace, "the page pool is full");
      kernels::BatchPlan plan;
      sequences_.front().add_to_plan(rows, plan);
      const auto part = std::span(tokens_).subspan(static_cast<size_t>(at), static_cast<size_t>(rows));
      RH_TRY(const auto logits, runner.evaluate({part, &plan, {}}));
      static_cast<void>(logits);
      sequences_.front().commit(rows);
      fmt::print(stderr, "\rprefilled {} of {} tokens", at + rows, arguments_.context);
      std::fflush(stderr);
    }
    fmt::print(stderr, " in {:.0f} s\n", ms_between(begin, now_ns()) / 1e3);
    return {};
  }

  Status copy_context() {
    Sequence copy(*pool_);
    const Sequence& source = sequences_.front();
    for (int i = 0; i < source.pages(); ++i) {
      store::PagePin pin = pool_->copy(*source.page(i).get(), source.page(i)->count);
      if (!pin) return make_error(ErrorKind::kNoSpace, "the page pool is full");
      const int slots = pin->count;
      copy.adopt(std::move(pin), slots);
    }
    sequences_.push_back(std::move(copy));
    return {};
  }

  Status decode_in_full(ModelRunner& runner) {
    std::vector<Sequence> fork;
    fork.push_back(sequences_.front().fork());
    for (int i = 0; i < arguments_.steps; ++i) {
      double ms = 0;
      RH_TRY(auto row, step(runner, fork, tokens_[static_cast<size_t>(arguments_.context + i)], 0, ms));
      full_.push_back(std::move(row));
    }
    return {};
  }

  std::vector<Sequence> forks() const {
    std::vector<Sequence> forked;
    for (const Sequence& sequence : sequences_) forked.push_back(sequence.fork());
    return forked;
  }

  const Arguments& arguments_;
  RunnerOptions options_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<store::PagePool> pool_;
  std::vector<Sequence> sequences_;  // the context, [batch]
  std::vector<std::vector<float>> full_;
};

void print(const Arguments& arguments, const kernels::SparseOptions& sparse, int budget,
           const Outcome& outcome) {
  const double rows = outcome.rows;
  const double sparse_ms = median(outcome.sparse_ms);
  const double full_ms = median(outcome.full_ms);
  const char* scope = sparse.scope == kernels::SelectionScope::kKvHead ? "head" : "layer";
  const char* form =
      arguments.json ? "{{\"bounds\":\"{}\",\"group\":{},\"scope\":\"{}\",\"budget\":{},\"agreement\":{:.4f},"
                       "\"kl\":{:.6f},\"nll\":{:.4f},\"full_nll\":{:.4f},\"ms\":{:.3f},\"full_ms\":{:.3f},"
                       "\"ratio\":{:.3f}}}\n"
                     : "{:4} {:2} {:5}  budget {:5}  agreement {:.4f}  KL {:.6f}  NLL {:.4f} (full {:.4f})  "
                       "{:.2f} ms a step (full {:.2f})  {:.2f}x\n";
  fmt::print(fmt::runtime(form), kernels::to_string(sparse.bounds.kind), sparse.bounds.group_slots, scope,
             budget, outcome.equal / rows, outcome.kl / rows, outcome.sparse_nll / rows,
             outcome.full_nll / rows, sparse_ms, full_ms, full_ms / sparse_ms);
  std::fflush(stdout);
}

kernels::BoundKind kind_of(const std::string& name) {
  for (const auto kind : {kernels::BoundKind::kBox, kernels::BoundKind::kBall}) {
    if (name == kernels::to_string(kind)) return kind;
  }
  return kernels::BoundKind::kMean;
}

Status run(const Arguments& arguments) {
  if (arguments.context % kernels::kPageTokens != 0) {
    return make_error(ErrorKind::kInvalidArgument, "--context must be a multiple of {}",
                      kernels::kPageTokens);
  }
  RunnerOptions options;
  options.model = arguments.model;
  options.threads = arguments.threads;
  Measurement measurement(arguments, options);
  RH_TRY_STATUS(measurement.prepare());
  for (const std::string& kind : arguments.bounds) {
    for (const int group : arguments.groups) {
      for (const std::string& scope : arguments.scopes) {
        for (const int budget : arguments.budgets) {
          kernels::SparseOptions sparse;
          sparse.bounds = {kind_of(kind), group};
          sparse.scope = scope == "head" ? kernels::SelectionScope::kKvHead : kernels::SelectionScope::kLayer;
          RH_TRY(const Outcome outcome, measurement.measure(sparse, budget));
          print(arguments, sparse, budget, outcome);
        }
      }
    }
  }
  return {};
}

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Speed and agreement of block-sparse decode on real text");
  app.add_option("model", arguments.model)->required();
  app.add_option("texts", arguments.texts)->required();
  app.add_option("--context", arguments.context)->check(CLI::PositiveNumber);
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_option("--budgets", arguments.budgets)->delimiter(',');
  app.add_option("--groups", arguments.groups)->delimiter(',')->check(CLI::IsMember({16, 32, 64}));
  app.add_option("--bounds", arguments.bounds)->delimiter(',')->check(CLI::IsMember({"mean", "box", "ball"}));
  app.add_option("--scopes", arguments.scopes)->delimiter(',')->check(CLI::IsMember({"head", "layer"}));
  app.add_option("--batch", arguments.batch)->check(CLI::PositiveNumber);
  app.add_option("--begin", arguments.begin)->check(CLI::NonNegativeNumber);
  app.add_option("--threads", arguments.threads)->check(CLI::PositiveNumber);
  app.add_flag("--json", arguments.json);
  CLI11_PARSE(app, argc, argv);
  const Status status = run(arguments);
  if (status.ok()) return 0;
  std::cerr << "sparse_decode: " << status.error().message << "\n";
  return 1;
}

}  // namespace
}  // namespace rhapsode::engine

int main(int argc, char** argv) {
  return rhapsode::engine::main(argc, argv);
}
