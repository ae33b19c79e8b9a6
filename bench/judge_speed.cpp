// How long judging takes: the question's likelihood over candidates whose KV lies ready, as routing does it.
//
//   rhapsode_judge_speed MODEL.gguf [--device cpu|cuda] [--candidates 40] [--tokens 512] [--runs 20]
//
// Candidates are passages of random tokens, encoded behind the prefix before anything is timed. The first
// call of a shape also makes its graph: it is reported by itself, then the median over the runs, each with a
// question of its own. Errors end the program with a sentence.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>

#include "engine/engine_passes.h"
#include "engine/runner_options.h"
#include "recall/encoder.h"
#include "recall/judge.h"

namespace {

using namespace rhapsode;  // NOLINT(google-build-using-namespace)

struct Setting {
  std::string model;
  std::string device = "auto";
  int candidates = 40;
  int tokens = 512;
  int runs = 20;
};

// Of the same number of tokens, so that passes have one shape; the years differ.
std::string question_of(int run) {
  return "Which harbour did the second expedition leave in the year " + std::to_string(1800 + run % 100) +
         "?";
}

std::vector<recall::PassageTokens> random_passages(const Setting& setting, int vocabulary) {
  std::mt19937 random(1);
  std::vector<recall::PassageTokens> passages(static_cast<size_t>(setting.candidates));
  for (recall::PassageTokens& passage : passages) {
    for (int i = 0; i < setting.tokens; ++i) {
      passage.tokens.push_back(
          static_cast<int32_t>(random() % std::min<unsigned>(20'000, static_cast<unsigned>(vocabulary))));
    }
    passage.text_tokens = setting.tokens;
  }
  return passages;
}

Status judge(const Setting& setting) {
  EngineOptions options;
  options.model = setting.model;
  if (setting.device != "auto") options.device = setting.device == "cuda" ? Device::kCuda : Device::kCpu;
  RH_TRY(const engine::RunnerOptions runner_options, engine::runner_options(options));
  RH_TRY(const auto runner, engine::ModelRunner::open(runner_options));
  const auto pages =
      static_cast<uint64_t>(setting.candidates + 4) * static_cast<uint64_t>(setting.tokens / 64 + 2);
  RH_TRY(const auto pool, runner->make_pool((pages + 256) * runner->kv_shape().block_bytes()));
  Tracer tracer;
  engine::Scheduler scheduler(*runner, *pool, tracer, {8192, 1000, false});
  engine::EnginePasses passes(*runner, scheduler);
  RH_TRY(const auto chat, text::ChatTemplate::load(runner->tokenizer()));
  RH_TRY(const recall::PromptFrame frame, recall::PromptFrame::make(runner->shared_tokenizer(), chat, ""));
  recall::Encoder encoder(passes, frame);
  const std::vector<recall::PassageTokens> texts = random_passages(setting, runner->tokenizer().size());
  RH_TRY(const std::vector<recall::Encoded> encoded, encoder.encode(texts, /*index_only=*/false));
  std::vector<recall::Candidate> candidates;
  for (const recall::Encoded& one : encoded) candidates.push_back({one.pages, setting.tokens});

  recall::LikelihoodJudge judge(passes, encoder, frame);
  std::vector<double> times;
  uint64_t rows = 0;
  for (int run = -1; run < setting.runs; ++run) {
    const uint64_t before = judge.evaluated_tokens();
    const auto begin = std::chrono::steady_clock::now();
    RH_TRY(const std::vector<double> scores, judge.scores(question_of(run + 1), candidates));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (static_cast<int>(scores.size()) != setting.candidates) {
      return make_error(ErrorKind::kInternal, "{} of {} candidates were judged", scores.size(),
                        setting.candidates);
    }
    rows = judge.evaluated_tokens() - before;
    if (run < 0) {
      fmt::print("first call of the shape: {:.2f} ms\n", took.count());
    } else {
      times.push_back(took.count());
    }
  }
  std::sort(times.begin(), times.end());
  fmt::print(
      "{} candidates of {} tokens, {} rows a question: median {:.2f} ms, fastest {:.2f}, slowest {:.2f}\n",
      setting.candidates, setting.tokens, rows, times[times.size() / 2], times.front(), times.back());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  CLI::App app("How long judging takes");
  app.add_option("model", setting.model, "a GGUF file")->required();
  app.add_option("--device", setting.device)->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--candidates", setting.candidates)->check(CLI::Range(1, 1000));
  app.add_option("--tokens", setting.tokens)->check(CLI::Range(1, 4096));
  app.add_option("--runs", setting.runs)->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  const Status status = judge(setting);
  if (!status.ok()) std::cerr << status.error().message << "\n";
  return status.ok() ? 0 : 1;
}
