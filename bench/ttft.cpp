// Time to the first token over cached passages, by how they are read and where their KV lies; and how many
// such requests a second are answered in time.
//
//   rhapsode_ttft MODEL FOLDER TEXT... [--tokens 27000] [--runs 5] [--device cuda] [--load] [--disk-only]
//
// The TEXTs are read into a memory in FOLDER (which must not exist), with the KV of all passages. Three sets
// of passages of about `tokens` tokens take turns in a pool that holds two and a half of them, so that each
// finds itself gone from the pages and, on a GPU, in the host's memory. Rows: `full` (passages as text, no
// prefix cache), `reuse` and `blend` (15 %) from the pages, from the host's memory beside a GPU, and from
// disk: opened anew, or by a program that has read some before, whose host memory holds but one of the sets;
// each with the files in the system's cache, and with that let go as far as the system does so. "read" and
// "made" count passages of a row that were on disk: made are those whose text was faster. Medians over
// `runs`, each with a question of its own; `new length`: of a number of tokens that no pass had yet. --load:
// requests at Poisson times, one memory; the highest rate at which 95 % of them have their first token within
// twice the time of one undisturbed `full`. --disk-only: `full` and what comes from disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/result.h"
#include "rhapsode/memory.h"

namespace {

using namespace rhapsode;  // NOLINT(google-build-using-namespace)
namespace fs = std::filesystem;

constexpr int kSets = 3;
constexpr double kPoolSets = 2.5;
constexpr double kLoadPoolSets = 6;
constexpr double kRamSets = 1.2;  // in the host's memory of a program that reads set after set from disk
constexpr double kLateness = 2;   // of the undisturbed full one
constexpr int kLoadRequests = 32;
constexpr double kInTime = 0.95;
constexpr double kRateStep = 1.25;
constexpr int kMostRateSteps = 20;
constexpr double kGoalOfLoad = 4;  // times the rate of full prefill

struct Arguments {
  std::string model;
  fs::path folder;
  std::vector<std::string> texts;
  std::string device = "auto";
  int tokens = 27'000;
  int runs = 5;
  bool load = false;
  bool disk_only = false;
};

using PassageSet = std::vector<int64_t>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Asks the system to forget what it keeps of the files; those in use by nobody else.
void let_go_of_files(const fs::path& folder) {
  ::sync();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

class Bench {
 public:
  explicit Bench(Arguments arguments) : arguments_(std::move(arguments)) {}

  Status run() {
    RH_TRY_STATUS(open(0));
    RH_TRY_STATUS(fill());
    RH_TRY_STATUS(choose_sets());
    const double set_bytes = bytes_of_token_ * set_tokens_;
    pool_bytes_ = static_cast<uint64_t>(kPoolSets * set_bytes * kRoom);
    fmt::print("{} passages, {} sets of {} passages, {} tokens, {:.0f} MB\n", passages_, kSets,
               sets_[0].size(), set_tokens_, set_bytes / 1e6);
    RH_TRY_STATUS(open(pool_bytes_));
    RH_TRY_STATUS(measure_full());
    if (!arguments_.disk_only) RH_TRY_STATUS(measure_resident());
    RH_TRY_STATUS(measure_full_anew());
    for (const auto& [policy, name] : kStored) {
      for (const bool cold : {true, false}) {
        RH_TRY_STATUS(measure_disk(policy, name, cold));
        RH_TRY_STATUS(measure_known_disk(policy, name, cold));
      }
    }
    if (!arguments_.load) return {};
    // Requests that come while others are told read other passages beside them.
    RH_TRY_STATUS(open(static_cast<uint64_t>(kLoadPoolSets / kPoolSets * static_cast<double>(pool_bytes_))));
    RH_TRY_STATUS(measure_load());
    return {};
  }

 private:
  static constexpr double kRoom = 1.1;  // pages are not full to the last slot

  Status open(uint64_t pool_bytes, uint64_t ram_bytes = 0) {
    memory_.reset();
    engine_.reset();
    EngineOptions options;
    options.model = arguments_.model;
    if (arguments_.device != "auto") {
      options.device = arguments_.device == "cuda" ? Device::kCuda : Device::kCpu;
    }
    options.batch_tokens = 8192;
    options.prefix_cache = false;
    options.kv_cap_bytes = pool_bytes;
    options.kv_ram_cap_bytes = ram_bytes;
    RH_TRY(engine_, Engine::open(options));
    MemoryOptions memory;
    memory.folder = arguments_.folder;
    memory.create = true;
    RH_TRY(memory_, Memory::open(*engine_, memory));
    return {};
  }

  Status fill() {
    AddOptions add;
    add.paths = arguments_.texts;
    const int64_t begin = now_ns();
    RH_TRY(const AddReport report, memory_->add(add));
    if (!report.failed.empty()) {
      return make_error(ErrorKind::kIo, "{}: {}", report.failed[0].source, report.failed[0].reason);
    }
    RH_TRY(const MemoryStats stats, memory_->stats());
    passages_ = stats.passages;
    bytes_of_token_ = static_cast<double>(stats.kv_bytes) / static_cast<double>(stats.tokens);
    fmt::print("read {} tokens into a memory with their KV in {:.1f} s\n", stats.tokens,
               ms_between(begin, now_ns()) / 1e3);
    return {};
  }

  Status choose_sets() {
    std::vector<PassageInfo> all;
    RH_TRY(const std::vector<SourceInfo> sources, memory_->list({}));
    for (const SourceInfo& source : sources) {
      RH_TRY(const SourceDetail detail, memory_->show(source.source));
      all.insert(all.end(), detail.passages.begin(), detail.passages.end());
    }
    std::mt19937 random(1);
    std::shuffle(all.begin(), all.end(), random);
    sets_.assign(kSets, {});
    int tokens = 0;
    size_t set = 0;
    for (const PassageInfo& passage : all) {
      if (tokens + passage.tokens > arguments_.tokens) {
        set_tokens_ = tokens;
        tokens = 0;
        if (++set == kSets) return {};
      }
      sets_[set].push_back(passage.id);
      tokens += passage.tokens;
    }
    return make_error(ErrorKind::kInvalidArgument, "the texts do not hold {} sets of {} tokens: give more",
                      kSets, arguments_.tokens);
  }

  AskOptions asking(const PassageSet& set, ReadPolicy policy) {
    AskOptions ask;
    ask.question = fmt::format("Which rule of number {} matters most?", ++asked_);
    ask.passages = set;
    ask.policy = policy;
    ask.blend.share = 0.15;
    ask.budget_tokens = 1 << 20;
    ask.max_tokens = 2;
    ask.cite = false;
    ask.abstain = false;
    return ask;
  }

  Status row(const char* name, const char* from, const std::vector<Answer>& answers,
             const std::string& more = "") {
    std::vector<double> ttft, route, load, blend, prefill;
    for (const Answer& answer : answers) {
      ttft.push_back(answer.timing.ttft_ms);
      route.push_back(answer.timing.route_ms);
      load.push_back(answer.timing.load_ms);
      blend.push_back(answer.timing.blend_ms);
      prefill.push_back(answer.timing.prefill_ms);
    }
    if (full_ms_ == 0) full_ms_ = median(ttft);
    fmt::print(
        "{:6} {:26} TTFT {:8.1f} ms, {:5.1f} x; passages {:5.1f}, loading {:7.1f}, choosing {:6.1f}, passes "
        "{:6.1f} ms{}\n",
        name, from, median(ttft), full_ms_ / median(ttft), median(route), median(load), median(blend),
        median(prefill), more);
    std::cout << std::flush;
    return {};
  }

  Status measure_full() {
    std::vector<Answer> full;
    for (int i = 0; i <= arguments_.runs; ++i) {
      RH_TRY(Answer answer, memory_->ask(asking(sets_[0], ReadPolicy::kFull)));
      if (i > 0) full.push_back(std::move(answer));  // the first makes the graphs
    }
    return row("full", "as text", full);
  }

  // What a program that has just started takes without any KV: the measure of what it reads from disk.
  Status measure_full_anew() {
    std::vector<Answer> full;
    for (int i = 0; i < arguments_.runs; ++i) {
      RH_TRY_STATUS(open_anew(/*cold=*/false));
      RH_TRY(Answer answer, memory_->ask(asking(sets_[0], ReadPolicy::kFull)));
      full.push_back(std::move(answer));
    }
    return row("full", "as text, opened anew", full);
  }

  Status open_anew(bool cold) {
    memory_.reset();
    if (cold) let_go_of_files(arguments_.folder);
    RH_TRY_STATUS(open(pool_bytes_));
    RH_TRY_STATUS(discard({sets_[1].front()}, ReadPolicy::kFull));  // makes the graphs
    if (cold) let_go_of_files(arguments_.folder);
    return {};
  }

  Status measure_resident() {
    for (const auto& [policy, name] : kStored) {
      std::vector<Answer> pages, beside;
      for (int i = 0; i < kSets; ++i) RH_TRY_STATUS(discard(sets_[static_cast<size_t>(i)], policy));
      for (int i = 0; i < arguments_.runs; ++i) {
        const PassageSet& set = sets_[static_cast<size_t>(i % kSets)];
        RH_TRY(Answer first, memory_->ask(asking(set, policy)));
        RH_TRY(Answer second, memory_->ask(asking(set, policy)));
        beside.push_back(std::move(first));
        pages.push_back(std::move(second));
      }
      RH_TRY_STATUS(row(name, "pages", pages));
      RH_TRY_STATUS(measure_new_lengths(policy, name));
      RH_TRY_STATUS(row(name, "host memory beside", beside));
    }
    return {};
  }

  // Questions of lengths that no pass had yet.
  Status measure_new_lengths(ReadPolicy policy, const char* name) {
    std::vector<Answer> answers;
    for (int i = 0; i < arguments_.runs; ++i) {
      AskOptions ask = asking(sets_[(arguments_.runs - 1) % kSets], policy);
      ++new_lengths_;
      for (int word = 0; word < new_lengths_; ++word) ask.question += " Think of it.";
      RH_TRY(Answer answer, memory_->ask(ask));
      answers.push_back(std::move(answer));
    }
    return row(name, "pages, new length", answers);
  }

  Status discard(const PassageSet& set, ReadPolicy policy) {
    RH_TRY(const Answer answer, memory_->ask(asking(set, policy)));
    return {};
  }

  // Of passages that were on disk.
  struct Taken {
    uint64_t read = 0;
    uint64_t made = 0;
    std::string text() const { return fmt::format("; {} read, {} made", read, made); }
  };
  Status ask_and_count(const PassageSet& set, ReadPolicy policy, std::vector<Answer>& answers, Taken& taken) {
    RH_TRY(const MemoryStats before, memory_->stats());
    RH_TRY(Answer answer, memory_->ask(asking(set, policy)));
    RH_TRY(const MemoryStats after, memory_->stats());
    answers.push_back(std::move(answer));
    const uint64_t made = after.kv_outrun - before.kv_outrun;
    taken.made += made;
    taken.read += set.size() - made;
    return {};
  }

  // By a program that has just started.
  Status measure_disk(ReadPolicy policy, const char* name, bool cold) {
    std::vector<Answer> answers;
    Taken taken;
    for (int i = 0; i < arguments_.runs; ++i) {
      RH_TRY_STATUS(open_anew(cold));
      RH_TRY_STATUS(ask_and_count(sets_[0], policy, answers, taken));
    }
    return row(name, cold ? "disk, opened anew" : "file cache, opened anew", answers, taken.text());
  }

  // By one that knows how fast both ways are, and whose host memory never holds what is asked for.
  Status measure_known_disk(ReadPolicy policy, const char* name, bool cold) {
    const double set_bytes = bytes_of_token_ * set_tokens_;
    RH_TRY_STATUS(open(pool_bytes_, static_cast<uint64_t>(kRamSets * kRoom * set_bytes)));
    std::vector<Answer> answers;
    Taken taken;
    for (int i = 0; i < kSets + arguments_.runs; ++i) {
      if (cold) let_go_of_files(arguments_.folder);
      if (i == kSets) {
        answers.clear();
        taken = {};
      }
      RH_TRY_STATUS(ask_and_count(sets_[static_cast<size_t>(i % kSets)], policy, answers, taken));
    }
    return row(name, cold ? "disk" : "file cache", answers, taken.text());
  }

  // Seconds to the first token of requests that come at Poisson times.
  Result<double> late_share(ReadPolicy policy, double rate, double limit_ms) {
    std::mt19937 random(7);
    std::exponential_distribution<double> gap(rate);
    std::vector<std::thread> clients;
    std::mutex mutex;
    int late = 0;
    Status problem;
    auto at = std::chrono::steady_clock::now();
    for (int i = 0; i < kLoadRequests; ++i) {
      at += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(gap(random)));
      AskOptions ask = asking(sets_[static_cast<size_t>(i % kSets)], policy);
      std::this_thread::sleep_until(at);
      clients.emplace_back([&, ask = std::move(ask), at]() mutable {
        double first_ms = 0;
        ask.on_text = [&](std::string_view) {
          if (first_ms == 0) {
            first_ms =
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - at).count();
          }
          return true;
        };
        const auto answer = memory_->ask(ask);
        const std::lock_guard lock(mutex);
        if (!answer.ok()) problem = answer.error();
        late += first_ms == 0 || first_ms > limit_ms;
      });
    }
    for (std::thread& client : clients) client.join();
    if (!problem.ok()) return problem.error();
    return static_cast<double>(late) / kLoadRequests;
  }

  // The highest rate, by steps of kRateStep from `rate` up or, where that is too much, down.
  Result<double> highest_rate(ReadPolicy policy, double rate, double limit_ms) {
    double held = 0;
    bool too_much = false;
    for (int step = 0; step < kMostRateSteps && !(held > 0 && too_much); ++step) {
      RH_TRY(const double late, late_share(policy, rate, limit_ms));
      const bool in_time = late <= 1 - kInTime;
      if (in_time) held = rate;
      too_much = too_much || !in_time;
      rate = in_time ? rate * kRateStep : rate / kRateStep;
    }
    return held;
  }

  Status measure_load() {
    const double limit_ms = kLateness * full_ms_;
    double full_rate = 0;
    for (const auto& [policy, name] : {std::pair{ReadPolicy::kFull, "full"}, kStored[0], kStored[1]}) {
      const bool full = policy == ReadPolicy::kFull;
      for (const PassageSet& set : sets_) RH_TRY_STATUS(discard(set, policy));
      const double start = full ? 250 / full_ms_ : kGoalOfLoad * full_rate;
      RH_TRY(const double held, highest_rate(policy, start, limit_ms));
      if (full) full_rate = std::max(held, 1e-3);
      fmt::print("{:6} {:.2f} requests a second within {:.0f} ms, {:.1f} x\n", name, held, limit_ms,
                 held / full_rate);
      std::cout << std::flush;
    }
    return {};
  }

  static constexpr std::pair<ReadPolicy, const char*> kStored[] = {{ReadPolicy::kReuse, "reuse"},
                                                                   {ReadPolicy::kBlend, "blend"}};
  Arguments arguments_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;
  std::vector<PassageSet> sets_;
  int set_tokens_ = 0;
  int passages_ = 0;
  int asked_ = 0;
  int new_lengths_ = 0;
  double bytes_of_token_ = 0;
  uint64_t pool_bytes_ = 0;
  double full_ms_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Time to the first token over cached passages.");
  app.add_option("model", arguments.model)->required();
  app.add_option("folder", arguments.folder)->required();
  app.add_option("texts", arguments.texts)->required();
  app.add_option("--tokens", arguments.tokens)->check(CLI::Range(100, 1'000'000));
  app.add_option("--runs", arguments.runs)->check(CLI::Range(1, 100));
  app.add_option("--device", arguments.device);
  app.add_flag("--load", arguments.load);
  app.add_flag("--disk-only", arguments.disk_only);
  CLI11_PARSE(app, argc, argv);
  const Status status = Bench(std::move(arguments)).run();
  if (status.ok()) return 0;
  fmt::print(stderr, "rhapsode_ttft: {}\n", status.error().message);
  return 1;
}
