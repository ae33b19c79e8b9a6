// How fast several sequences generate at once, sampling included, by how tokens are chosen.
//
//   rhapsode_decode_speed MODEL.gguf [--device cuda] [--sequences 1,8,32] [--tokens 200] [--runs 3]
//                         [--sampling greedy,top-k,top-p,min-p,plain]
//
// Every sequence reads a short prompt of its own and generates --tokens tokens; the end of generation is
// ignored. Prints, for each way of choosing and each number of sequences, the sum of the sequences' tokens a
// second behind their first ones (median of the runs), the mean time a token's choice took, and how many
// tokens were chosen from candidates and how many of these had to fetch the whole row after all. Errors end
// the program with a sentence.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "base/result.h"
#include "rhapsode/engine.h"

namespace {

using namespace rhapsode;  // NOLINT(google-build-using-namespace)

struct Setting {
  std::string model;
  std::string device = "cuda";
  std::vector<int> sequences = {1, 8, 32};
  std::vector<std::string> sampling = {"greedy", "top-k", "top-p", "min-p", "plain"};
  int tokens = 200;
  int runs = 3;
};

Result<SamplingOptions> sampling_of(const std::string& name) {
  SamplingOptions options;
  options.temperature = name == "greedy" ? 0.0f : 0.8f;
  if (name == "top-k") options.top_k = 40;
  if (name == "top-p") options.top_p = 0.95f;
  if (name == "min-p") options.min_p = 0.05f;
  const bool known =
      name == "greedy" || name == "top-k" || name == "top-p" || name == "min-p" || name == "plain";
  if (!known) return make_error(ErrorKind::kInvalidArgument, "no way of choosing is named '{}'", name);
  return options;
}

struct Speed {
  double tokens_per_s = 0;
  double choice_us = 0;  // of a token
};

Result<Speed> run(Engine& engine, const Setting& setting, const SamplingOptions& sampling, int sequences) {
  std::vector<Generation> generations;
  for (int i = 0; i < sequences; ++i) {
    Request request;
    request.text = fmt::format("Chapter {}. It was a dark and stormy night, and number {} said:", i + 1, i);
    request.max_tokens = setting.tokens;
    request.ignore_end = true;
    request.sampling = sampling;
    request.sampling.seed = static_cast<uint32_t>(i + 1);
    RH_TRY(Generation generation, engine.submit(std::move(request)));
    generations.push_back(std::move(generation));
  }
  double rate = 0;
  double choice_ms = 0;
  for (Generation& generation : generations) {
    RH_TRY(const Response response, generation.wait());
    rate += response.timing.decode_tokens_per_s;
    choice_ms += response.timing.sample_ms;
  }
  return Speed{rate, 1000 * choice_ms / (sequences * setting.tokens)};
}

Status measure(const Setting& setting) {
  EngineOptions options;
  options.model = setting.model;
  options.device = setting.device == "cpu" ? Device::kCpu : Device::kCuda;
  RH_TRY(const std::unique_ptr<Engine> engine, Engine::open(options));
  for (const std::string& name : setting.sampling) {
    RH_TRY(const SamplingOptions sampling, sampling_of(name));
    for (const int sequences : setting.sequences) {
      const EngineStats before = engine->stats();
      RH_TRY_STATUS(run(*engine, setting, sampling, sequences));
      std::vector<Speed> speeds;
      for (int i = 0; i < setting.runs; ++i) {
        RH_TRY(const Speed speed, run(*engine, setting, sampling, sequences));
        speeds.push_back(speed);
      }
      std::sort(speeds.begin(), speeds.end(),
                [](const Speed& a, const Speed& b) { return a.tokens_per_s < b.tokens_per_s; });
      const Speed& median = speeds[speeds.size() / 2];
      const EngineStats after = engine->stats();
      std::cout << fmt::format(
                       "{:<7} {:>4} sequences: {:>8.0f} tokens/s, {:>7.1f} us to choose a token; {} from "
                       "candidates, {} fetched again\n",
                       name, sequences, median.tokens_per_s, median.choice_us,
                       after.candidate_tokens - before.candidate_tokens,
                       after.refetched_tokens - before.refetched_tokens)
                << std::flush;
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  CLI::App app("How fast several sequences generate at once, by how tokens are chosen.");
  app.add_option("model", setting.model)->required();
  app.add_option("--device", setting.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--sequences", setting.sequences)->delimiter(',');
  app.add_option("--sampling", setting.sampling)->delimiter(',');
  app.add_option("--tokens", setting.tokens);
  app.add_option("--runs", setting.runs);
  CLI11_PARSE(app, argc, argv);
  const Status measured = measure(setting);
  if (!measured.ok()) std::cerr << measured.error().message << '\n';
  return measured.ok() ? 0 : 1;
}
