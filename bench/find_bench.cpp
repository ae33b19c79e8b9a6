// Finding at scale on real states: the exact scan, the approximate index in memory and on the disk, and
// (--faiss, where faiss was found) faiss's indices. Files come from dump_routing_states; beyond their size
// the corpus is tiled with noise (find_corpus.h: tile). Prints a table for docs/results.md.
#include "find_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "index/index_folder.h"

namespace rhapsode::bench {

double process_cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

double seconds_since(int64_t ns) {
  return ms_between(ns, now_ns()) / 1e3;
}

double FindScore::quantile(double share) const {
  std::vector<double> sorted = ms;
  std::sort(sorted.begin(), sorted.end());
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

void print_row(const std::string& name, const FindScore& score, double build_s, double bytes_a_token) {
  fmt::print("| {} | {:.3f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} |\n", name, score.recall,
             score.quantile(0.5), score.quantile(0.99), score.cpu_ms, build_s, bytes_a_token);
  std::fflush(stdout);
}

namespace {

struct Arguments {
  std::vector<std::string> codes;
  std::string questions;
  std::vector<std::string> training;
  int64_t chunks = 0;
  double keep = -1;
  int most_questions = 200;
  int threads = 2;
  int anchors = 4096;
  index::ListOptions lists;
  std::vector<int> probes = {4, 8};
  std::vector<size_t> candidates = {2000, 4000, 8000, 16000};
  std::string folder;
  bool faiss = false;
  bool faiss_floats = false;
};

std::string load_average() {
  double loads[3] = {};
  if (getloadavg(loads, 3) != 3) return "unknown";
  return fmt::format("{:.1f} {:.1f} {:.1f}", loads[0], loads[1], loads[2]);
}

template <class T>
T checked(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.error().message);
    std::exit(1);
  }
  return std::move(result).value();
}

FindSetting make_setting(const Arguments& arguments) {
  FindSetting setting;
  setting.threads = arguments.threads;
  FindCorpus real;
  for (const std::string& path : arguments.codes) append(real, load_corpus(path + ".codes"));
  const SourceSpread spread = measure_spread(real);
  const double keep = arguments.keep >= 0 ? arguments.keep : spread.nearest;
  fmt::print(
      "real: {} passages, {} chunks; within a source the nearest other chunk has a dot product of "
      "{:.3f}, the mean one {:.3f}; copies are made at {:.3f}\n",
      real.passages.size(), real.chunks(), spread.nearest, spread.mean, keep);
  setting.corpus = tile(real, std::max(arguments.chunks, real.chunks()), keep);
  const std::byte* codes = reinterpret_cast<const std::byte*>(setting.corpus.codes.data());
  for (const CorpusPassage& passage : setting.corpus.passages) {
    setting.passages.push_back({static_cast<int64_t>(setting.passages.size()), codes, passage.chunks});
    codes += static_cast<size_t>(passage.chunks) * static_cast<size_t>(setting.corpus.words()) * 8;
  }
  const auto questions = load_questions(arguments.questions + ".questions");
  const size_t wanted = std::min(questions.size(), static_cast<size_t>(arguments.most_questions));
  size_t tokens = 0;
  for (size_t i = 0; i < wanted; ++i) {
    setting.questions.push_back(questions[i * questions.size() / wanted]);
    tokens += setting.questions.back().weights.size();
  }
  fmt::print("{} passages, {} chunks ({} tokens), {} questions of {:.1f} tokens, {} threads; load {}\n\n",
             setting.passages.size(), setting.corpus.chunks(), setting.corpus.chunks() * 16, wanted,
             static_cast<double>(tokens) / static_cast<double>(wanted), arguments.threads, load_average());
  return setting;
}

double code_bytes_a_token(const FindSetting& setting) {
  return setting.corpus.words() * 8 / 16.0;
}

void run_exact(FindSetting& setting) {
  setting.exact.resize(setting.questions.size());
  index::FindOptions options;
  options.count = setting.count;
  options.threads = setting.threads;
  const FindScore exact = score(setting, [&](size_t q) {
    setting.exact[q] = index::find_exactly(setting.questions[q], setting.passages, options).hits;
    return setting.exact[q];
  });
  print_row("exact scan", exact, 0, code_bytes_a_token(setting));
}

index::AnchorSet train(const Arguments& arguments, const FindSetting& setting) {
  std::vector<float> states;
  for (const std::string& path : arguments.training) {
    for (const auto& question : load_questions(path + ".questions")) {
      states.insert(states.end(), question.vectors.begin(), question.vectors.end());
    }
  }
  index::AnchorTraining training;
  training.count = arguments.anchors;
  training.threads = arguments.threads;
  return checked(index::AnchorSet::train(setting.corpus.dimensions, states, training));
}

void run_index(const Arguments& arguments, const FindSetting& setting, const index::PassageIndex& index,
               const std::string& name, double build_s) {
  uint64_t bytes = 0;
  for (const index::IndexSegment& segment : index.state()->segments) bytes += segment.lists->bytes();
  const double a_token = static_cast<double>(bytes) / static_cast<double>(setting.corpus.chunks()) / 16.0;
  ArrayCodes codes(setting.passages);
  const index::Scope scope = index.scope();
  for (const int probes : arguments.probes) {
    for (const size_t candidates : arguments.candidates) {
      index::FindOptions options;
      options.count = setting.count;
      options.threads = setting.threads;
      options.probes = probes;
      options.candidates = candidates;
      const FindScore found = score(setting, [&](size_t q) {
        return checked(index.find(setting.questions[q], scope, codes, options)).hits;
      });
      print_row(fmt::format("{}, {} probes, {} candidates", name, probes, candidates), found, build_s,
                code_bytes_a_token(setting) + a_token);
    }
  }
}

void run(const Arguments& arguments) {
  FindSetting setting = make_setting(arguments);
  fmt::print(
      "| search | recall@{} | p50 ms | p99 ms | CPU ms | build s | B a token "
      "|\n|---|---|---|---|---|---|---|\n",
      setting.count);
  run_exact(setting);
  int64_t begin = now_ns();
  const auto anchors = std::make_shared<const index::AnchorSet>(train(arguments, setting));
  const double train_s = seconds_since(begin);
  begin = now_ns();
  index::PassageIndex index(anchors, arguments.lists);
  checked(index.add(setting.passages));
  const double build_s = seconds_since(begin);
  run_index(arguments, setting, index, "lists in memory", build_s);
  if (!arguments.folder.empty()) {
    index::IndexFolderOptions options;
    options.resident = false;
    index::IndexFolder folder(arguments.folder, options);
    checked(folder.save(*index.state()));
    const index::PassageIndex stored(checked(folder.load()), arguments.lists);
    run_index(arguments, setting, stored, "lists on disk", build_s);
    if (!folder.clear().ok()) fmt::print(stderr, "cannot remove {}\n", arguments.folder);
  }
  fmt::print("\nanchors: {} of {} bytes each, trained in {:.1f} s once a model; load {}\n", anchors->count(),
             anchors->encode().size() / static_cast<size_t>(anchors->count()), train_s, load_average());
  if (arguments.faiss) compare_with_faiss(setting, arguments.candidates.front(), arguments.faiss_floats);
}

}  // namespace
}  // namespace rhapsode::bench

int main(int argc, char** argv) {
  rhapsode::bench::Arguments arguments;
  CLI::App app("Finding at scale on real states");
  app.add_option("--codes", arguments.codes, "memories dumped by dump_routing_states (without .codes)")
      ->required();
  app.add_option("--questions", arguments.questions, "questions to ask (without .questions)")->required();
  app.add_option("--train", arguments.training, "questions to train anchors on")->required();
  app.add_option("--chunks", arguments.chunks, "size to tile to");
  app.add_option("--keep", arguments.keep, "dot product of a chunk and its copy; default: measured");
  app.add_option("--most-questions", arguments.most_questions);
  app.add_option("--threads", arguments.threads);
  app.add_option("--anchors", arguments.anchors);
  app.add_option("--postings", arguments.lists.postings_a_chunk);
  app.add_option("--probes", arguments.probes);
  app.add_option("--candidates", arguments.candidates);
  app.add_option("--disk", arguments.folder, "a new folder: measures lists on the disk as well");
  app.add_flag("--faiss", arguments.faiss, "compares faiss's binary indices");
  app.add_flag("--faiss-floats", arguments.faiss_floats, "and its float ones (3.6 KB a chunk)");
  CLI11_PARSE(app, argc, argv);
  arguments.lists.threads = arguments.threads;
  rhapsode::bench::run(arguments);
  return 0;
}
