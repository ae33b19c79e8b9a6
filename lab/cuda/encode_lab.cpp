// What the passes of encoding cost, operation by operation.
//
//   encode_lab MODEL.gguf [--rows 8192] [--document 512] [--passes 10] [--plain]
//
// A pass reads as many documents as it has rows for, each from an empty context, as the encoder does: keys
// and values of every layer, mean states of the routing layer. First passes are timed on the host's clock,
// from the plan to the states in host memory; then, unless --plain, with an event before every operation.
// Model FLOPs are 2 for each parameter of the layers' matrices and each token, and the causal pairs of
// attention once; the last layer counts its keys and values only. Utilisation is over `--peak` TFLOP/s (790
// unless given: what cuBLASLt does with large bf16 matrices on an H200).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/ggml_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/op_clock.h"
#include "model/weights.h"
#include "store/page_pool.h"

namespace rhapsode {
namespace {

struct Settings {
  std::string model;
  int rows = 8192;
  int document = 512;
  int passes = 10;
  double peak = 790e12;
  bool plain = false;
};

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "encode_lab: %s\n", message.c_str());
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) stop(result.error().message);
  return std::move(result.value());
}

// A model on the GPU, and documents for a pass.
class Bed {
 public:
  Bed(const Settings& settings, kernels::cuda::OpClock* clock)
      : settings_(settings),
        file_(must(model::GgufFile::open(settings.model))),
        architecture_(must(model::parse_architecture(file_))) {
    if (const Status status = kernels::cpu::load_ggml(); !status.ok()) stop(status.error().message);
    kernels::BackendOptions options;
    options.threads = 8;
    options.kv = architecture_.kv_shape(kernels::KvType::kF16);
    options.layers = architecture_.attention;
    backend_ = must(kernels::cuda::make_cuda_backend(options, clock));
    weights_ = must(model::ModelWeights::load(file_, architecture_, {}, *backend_));
    recipe_ = backend_->add_recipe(model::forward_recipe(architecture_, weights_, model::PassGoal::kEncode));
    make_batch(options.kv);
  }

  void run() {
    const Result<std::span<const float>> result =
        backend_->run({tokens_, &plan_, outputs_, false, {}, pools_}, recipe_);
    if (!result.ok()) stop(result.error().message);
  }

  double flops() const {
    const model::Architecture& a = architecture_;
    const double heads = static_cast<double>(a.heads) * a.head_dim;
    const double keys = 2.0 * a.kv_heads * a.head_dim;
    const double whole = a.embedding * (2 * heads + keys) + 3.0 * a.embedding * a.feed_forward;
    const double parameters = (a.layers - 1) * whole + a.embedding * keys;
    const double documents = static_cast<double>(settings_.rows) / settings_.document;
    const double pairs = documents * settings_.document * (settings_.document + 1) / 2;
    return 2.0 * parameters * settings_.rows + 4.0 * pairs * heads * (a.layers - 1);
  }

 private:
  void make_batch(const kernels::KvShape& shape) {
    const int pages = (settings_.document + kernels::kPageTokens - 1) / kernels::kPageTokens;
    const int documents = settings_.rows / settings_.document;
    pool_ = must(store::PagePool::create(shape, shape.block_bytes() * (pages * documents + 1), 0,
                                         backend_->new_page_memory()));
    std::mt19937 random(5);
    for (int document = 0; document < documents; ++document) {
      kernels::SequencePlan sequence;
      sequence.row_begin = plan_.rows();
      sequence.row_count = settings_.document;
      for (int page = 0; page < pages; ++page) {
        pins_.push_back(pool_->allocate());
        if (!pins_.back()) stop("no room for pages");
        for (int slot = 0; slot < kernels::kPageTokens; ++slot) {
          pins_.back()->positions[static_cast<size_t>(slot)] = page * kernels::kPageTokens + slot;
        }
        const int filled = std::min(kernels::kPageTokens, settings_.document - page * kernels::kPageTokens);
        sequence.references.push_back({pins_.back().get(), 0, false, kernels::first_slots(filled)});
      }
      for (int token = 0; token < settings_.document; ++token) {
        plan_.positions.push_back(token);
        const size_t page = pins_.size() - static_cast<size_t>(pages - token / kernels::kPageTokens);
        plan_.writes.push_back({pins_[page].get(), token % kernels::kPageTokens});
        outputs_.push_back(static_cast<int32_t>(tokens_.size()));
        tokens_.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(architecture_.vocabulary)));
      }
      for (int token = 0; token < settings_.document; token += 16) {
        pools_.push_back(std::min(16, settings_.document - token));
      }
      plan_.sequences.push_back(std::move(sequence));
    }
    if (const Status status = kernels::validate(plan_, shape); !status.ok()) stop(status.error().message);
  }

  const Settings& settings_;
  model::GgufFile file_;
  model::Architecture architecture_;
  std::unique_ptr<kernels::Backend> backend_;
  model::ModelWeights weights_;
  std::unique_ptr<store::PagePool> pool_;
  std::vector<store::PagePin> pins_;
  kernels::BatchPlan plan_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> outputs_;
  std::vector<int32_t> pools_;
  int recipe_ = 0;
};

double median_seconds(int passes, Bed& bed) {
  std::vector<double> seconds;
  for (int pass = -2; pass < passes; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    bed.run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (pass >= 0) seconds.push_back(took.count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

void show_stages(const Settings& settings, Bed& bed, kernels::cuda::OpClock& clock) {
  bed.run();
  clock.clear();
  for (int pass = 0; pass < settings.passes; ++pass) bed.run();
  double whole = 0;
  for (const auto& stage : clock.stages()) whole += stage.ms / settings.passes;
  for (const auto& stage : clock.stages()) {
    const double ms = stage.ms / settings.passes;
    const double rate = stage.flops > 0 ? stage.flops / (stage.ms * 1e-3) / 1e12 : 0.0;
    std::printf("  %-28s %4d x  %8.3f ms  %4.1f %%  %6.0f TFLOP/s\n", stage.name.c_str(),
                stage.count / settings.passes, ms, 100 * ms / whole, rate);
  }
  std::printf("  %-28s         %8.3f ms\n", "all", whole);
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::atof(argv[++i]) : 0.0; };
    if (argument == "--rows") {
      settings.rows = static_cast<int>(number());
    } else if (argument == "--document") {
      settings.document = static_cast<int>(number());
    } else if (argument == "--passes") {
      settings.passes = static_cast<int>(number());
    } else if (argument == "--peak") {
      settings.peak = number() * 1e12;
    } else if (argument == "--plain") {
      settings.plain = true;
    } else {
      settings.model = argument;
    }
  }
  const bool sensible = settings.document > 0 && settings.rows >= settings.document && settings.passes > 0;
  if (settings.model.empty() || !sensible) stop("see the head of the source for how to call it");
  settings.rows = settings.rows / settings.document * settings.document;
  return settings;
}

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  if (!kernels::cuda::why_no_device().empty()) stop(kernels::cuda::why_no_device());
  double seconds = 0;
  {
    Bed bed(settings, nullptr);
    seconds = median_seconds(settings.passes, bed);
    const double rate = bed.flops() / seconds;
    std::printf("%s: %d rows, documents of %d: %.3f ms a pass, %.0f tokens/s, %.0f TFLOP/s (%.1f %%)\n",
                settings.model.c_str(), settings.rows, settings.document, seconds * 1e3,
                settings.rows / seconds, rate / 1e12, 100 * rate / settings.peak);
  }
  if (settings.plain) return 0;
  kernels::cuda::OpClock clock;
  Bed bed(settings, &clock);
  show_stages(settings, bed, clock);
  return 0;
}

}  // namespace
}  // namespace rhapsode

int main(int argc, char** argv) {
  return rhapsode::main(argc, argv);
}
