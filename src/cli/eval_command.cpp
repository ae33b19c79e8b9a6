// `rhapsode eval`: measures a model and its memory on a task, or compares two results files.
#include <algorithm>
#include <ctime>

#include "cli/asker.h"
#include "cli/command.h"
#include "cli/eval_output.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/quantity.h"
#include "cli/scratch_folder.h"
#include "eval/evaluation.h"
#include "eval/machine.h"
#include "eval/memory_subject.h"
#include "eval/memory_talk.h"
#include "eval/readers.h"
#include "eval/replay_subject.h"
#include "model/pull.h"
#include "rhapsode/version.h"

namespace rhapsode::cli {
namespace {

constexpr int kChainPassages = 4;  // of the context chain, unless --chain says otherwise

std::string command_line(const Invocation& invocation) {
  std::string line = fmt::format("rhapsode eval {}", fmt::join(invocation.arguments, " "));
  for (const auto& [option, values] : invocation.sources.flags) {
    for (const std::string& value : values) {
      line += ' ' + option->flag();
      if (!option->is_switch()) line += ' ' + value;
    }
  }
  return line;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

class Evaluator {
 public:
  explicit Evaluator(Invocation& invocation)
      : invocation_(invocation),
        settings_(invocation.settings),
        options_(eval_options(settings_)),
        terminal_(invocation.terminal) {}

  Result<int> run(const std::string& name) {
    RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
    RH_TRY(task_, eval::find_task(name));
    if (options_.pool != "own" && options_.pool != "all") {
      return make_error(ErrorKind::kInvalidArgument, "--pool must be own or all; '{}' given", options_.pool);
    }
    terminal_.show_status(fmt::format("Reading the data of {} …", task_.name));
    RH_TRY(dataset_, eval::load_dataset(task_, options_.data, options_.pool == "all"));
    if (task_.kind == eval::TaskKind::kTalk) return run_talk(interrupts);
    RH_TRY(const eval::Plan plan, eval::Plan::make(task_, dataset_, options_));
    RH_TRY(const auto subject, open_subject(plan, interrupts));
    baseline_ = plan.baseline();
    eval::Evaluation evaluation(plan, options_, *subject);
    RH_TRY(eval::ResultsFile results,
           eval::ResultsFile::open(output_path(), described(evaluation), options_.resume));
    if (results.done_before() > 0) note(fmt::format("{} results are there already", results.done_before()));
    const Status ran = evaluation.run(results, [&](const eval::EvaluationProgress& progress) {
      show(progress);
      return interrupts.signal_number() == 0;
    });
    return finish(ran, results.path(), interrupts);
  }

 private:
  static eval::Options eval_options(const Settings& settings) {
    eval::Options options = settings.eval;
    options.seed = settings.request.sampling.seed;
    options.limit = settings.limit;
    options.memory = settings.memory.options.folder;
    options.passages = settings.memory.ask.most_passages;
    options.best_first = settings.memory.ask.best_first;
    options.reroute = settings.memory.ask.reroute;
    options.heed_times = settings.memory.ask.heed_times;
    options.budget_tokens = settings.memory.ask.budget_tokens;
    options.live_budget_tokens = settings.memory.live_budget_tokens;
    // What `auto` would do for this model is what evaluations find out.
    options.policy =
        settings.memory.ask.policy == ReadPolicy::kAuto ? ReadPolicy::kReuse : settings.memory.ask.policy;
    return options;
  }

  Result<std::unique_ptr<eval::Subject>> open_subject(const eval::Plan& plan,
                                                      const InterruptGuard& interrupts) {
    RH_TRY(eval::MemorySubjectOptions subject, subject_options());
    if (task_.kind == eval::TaskKind::kReplay) return open_replay(std::move(subject), interrupts);
    subject.documents = plan.needed_documents();
    subject.encode = options_.encode;
    subject.on_progress = [&](const AddProgress& progress) {
      terminal_.show_status(fmt::format("Making the memory: {} of {} documents, {:.0f} tokens/s …",
                                        progress.sources_done, progress.sources_total,
                                        progress.tokens_per_s));
      return interrupts.signal_number() == 0;
    };
    terminal_.show_status(fmt::format("Loading {} …", model_name_));
    RH_TRY(auto opened, eval::MemorySubject::open(dataset_, std::move(subject)));
    terminal_.clear_status();
    for (const std::string& problem : opened->notes()) note(problem);
    return std::unique_ptr<eval::Subject>(std::move(opened));
  }

  Result<std::unique_ptr<eval::Subject>> open_replay(eval::MemorySubjectOptions memory,
                                                     const InterruptGuard& interrupts) {
    eval::ReplayOptions replay;
    replay.memory = std::move(memory);
    replay.live_budget_tokens = options_.live_budget_tokens;
    replay.on_message = [&](const std::string& conversation, size_t done, size_t total) {
      terminal_.show_status(fmt::format("Replaying {}: {} of {} messages …", conversation, done, total));
      return interrupts.signal_number() == 0;
    };
    terminal_.show_status(fmt::format("Loading {} …", model_name_));
    RH_TRY(auto opened, eval::ReplaySubject::open(dataset_, std::move(replay)));
    return std::unique_ptr<eval::Subject>(std::move(opened));
  }

  // One long conversation, measured as it goes.
  Result<int> run_talk(const InterruptGuard& interrupts) {
    if (options_.resume) {
      return make_error(ErrorKind::kInvalidArgument,
                        "a long conversation is measured from its beginning: leave out --resume");
    }
    const eval::LongNumbers numbers =
        options_.limit > 0 ? eval::scaled(task_.talk, options_.limit) : task_.talk;
    RH_TRY(const eval::Script script, eval::write_script(dataset_, numbers, task_.seed + options_.seed));
    RH_TRY(const eval::MemorySubjectOptions subject, subject_options());
    eval::LongOptions talking;
    RH_TRY(talking.saying, said_as_in_a_chat());
    talking.answer_tokens = task_.max_tokens;
    talking.window = numbers.window;
    terminal_.show_status(fmt::format("Loading {} …", model_name_));
    RH_TRY(const auto talk, eval::MemoryTalk::open(subject, options_.live_budget_tokens));
    RH_TRY(eval::ResultsFile results,
           eval::ResultsFile::open(
               output_path(), stamped(eval::talk_settings(task_, numbers, talking, options_, talk->info())),
               false));
    eval::LongConversation conversation(script, talking, *talk);
    const Status ran = conversation.run(results, [&](size_t done, size_t total) {
      terminal_.show_status(fmt::format("Talking: {} of {} turns …", done, total));
      return interrupts.signal_number() == 0;
    });
    return finish(ran, results.path(), interrupts);
  }

  // What was measured is shown also when a signal ended the run.
  Result<int> finish(const Status& ran, const std::filesystem::path& results,
                     const InterruptGuard& interrupts) {
    terminal_.clear_status();
    if (!ran.ok() && ran.error().kind != ErrorKind::kCancelled) return ran.error();
    if (!ran.ok()) note(ran.error().message);
    RH_TRY(const bool any, print(results));
    if (!ran.ok()) return 128 + interrupts.signal_number();
    return any ? kExitOk : kExitFailed;
  }

  Result<SayOptions> said_as_in_a_chat() const {
    RH_TRY(const AskOptions asking, ask_options(settings_));
    SayOptions saying;
    saying.budget_tokens = asking.budget_tokens;
    saying.most_passages = asking.most_passages;
    saying.judge = asking.judge;
    saying.chain = asking.chain;
    saying.links = asking.links;
    saying.policy = asking.policy;
    saying.sampling = asking.sampling;
    return saying;
  }

  // As every kind of task needs them.
  Result<eval::MemorySubjectOptions> subject_options() {
    eval::MemorySubjectOptions subject;
    subject.engine = settings_.engine;
    RH_TRY(subject.engine.model, model::resolve_model(settings_.model));
    model_name_ = subject.engine.model.stem().string();
    // One memory for each pool, task and model: none ever holds more than what it is asked about.
    subject.folder =
        (options_.memory.empty() ? scratch_.make("eval") : options_.memory) /
        fmt::format("{}-{}-{}-{}", task_.name, pool_name(), model_name_, task_.sha256.substr(0, 8));
    subject.stored_kv = settings_.memory.options.stored_kv;
    subject.disk_cap_bytes = settings_.memory.options.disk_cap_bytes;
    subject.whitening = settings_.memory.options.whitening;
    subject.ranker = settings_.memory.options.ranker;
    subject.instruction = task_.instruction;
    // All of them are judged, however long it takes to read them.
    subject.judge = {settings_.memory.ask.judge.candidates > 0 ? settings_.memory.ask.judge.candidates : 40,
                     3600000};
    subject.chain = settings_.memory.ask.chain;
    if (subject.chain.passages < 2) {
      subject.chain.passages = kChainPassages;
      subject.chain.candidates = subject.judge.candidates;
    }
    subject.chain.deadline_ms = subject.judge.deadline_ms;
    subject.links = settings_.memory.ask.links;
    subject.heed_times = options_.heed_times;
    return subject;
  }

  // A pool of limited size is another one for other questions.
  std::string pool_name() const {
    if (options_.pool_tokens == 0) return options_.pool;
    std::string part = options_.part.empty() ? "all" : options_.part;
    std::replace(part.begin(), part.end(), '/', 'o');
    return fmt::format("{}-{}-{}-of-{}-seed-{}", options_.pool, options_.pool_tokens, part, options_.limit,
                       options_.seed);
  }

  std::filesystem::path output_path() const {
    if (!options_.output.empty()) return options_.output;
    return fmt::format("{}-{}.jsonl", task_.name, model_name_);
  }

  Json described(const eval::Evaluation& evaluation) const { return stamped(evaluation.settings()); }
  Json stamped(Json json) const {
    json["version"] = kVersion;
    json["commit"] = options_.commit.empty() ? Json(nullptr) : Json(options_.commit);
    json["command"] = command_line(invocation_);
    json["machine"] = eval::describe_machine();
    json["started"] = utc_now();
    return json;
  }

  void show(const eval::EvaluationProgress& progress) {
    terminal_.show_status(fmt::format("{}: {} of {}, {} {} …", task_.name, progress.done, progress.total,
                                      progress.question->id, to_string(progress.context)));
  }

  // False when no question was answered at all.
  Result<bool> print(const std::filesystem::path& path) {
    RH_TRY(const eval::ResultLines lines, eval::read_results(path));
    eval::Summary summary = eval::summarise(lines.records, baseline_, options_.seed);
    bool any = false;
    for (const eval::GroupSummary& group : summary.groups) {
      for (const eval::ContextSummary& context : group.contexts) any |= context.questions > 0;
    }
    // Windows of turns and facts are nothing together; windows have a table of their own.
    if (task_.kind == eval::TaskKind::kTalk) {
      std::erase_if(summary.groups, [&](const auto& group) {
        return group.group == "all" || (group.group == "turns" && !settings_.json);
      });
    }
    if (settings_.json) {
      Json json{{"task", task_.name}, {"results", path.string()}, {"settings", lines.settings}};
      json.update(eval::to_json(summary));
      terminal_.print(to_text(json));
    } else {
      terminal_.print(
          fmt::format("{}, {}\n{}", task_.title, model_name_, render_summary(summary, terminal_)));
      if (task_.kind == eval::TaskKind::kTalk)
        terminal_.print("\n" + render_windows(lines.records, terminal_));
      note(fmt::format("every answer is in {}", path.string()));
    }
    return any;
  }

  void note(const std::string& text) {
    terminal_.clear_status();
    terminal_.print_err(terminal_.paint_err(Style::kDim, text) + "\n");
  }

  Invocation& invocation_;
  const Settings& settings_;
  const eval::Options options_;
  Terminal& terminal_;
  ScratchFolder scratch_;
  std::string model_name_;
  std::string baseline_;
  eval::Task task_;
  eval::Dataset dataset_;
};

Result<int> compare(Invocation& invocation, const std::string& first, const std::string& second) {
  RH_TRY(const eval::ResultLines a, eval::read_results(first));
  RH_TRY(const eval::ResultLines b, eval::read_results(second));
  const std::vector<std::string> different = eval::differing_settings(a.settings, b.settings);
  const eval::Summary summary =
      eval::compare_results(a.records, b.records, invocation.settings.request.sampling.seed);
  if (summary.groups.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "{} and {} share no group and context", first, second);
  }
  if (invocation.settings.json) {
    Json json{{"first", first}, {"second", second}, {"different_settings", different}};
    json.update(eval::to_json(summary));
    invocation.terminal.print(to_text(json));
    return kExitOk;
  }
  const std::string names = different.empty() ? "none" : fmt::format("{}", fmt::join(different, ", "));
  invocation.terminal.print(fmt::format("{} less {}; settings that differ: {}\n{}", second, first, names,
                                        render_summary(summary, invocation.terminal)));
  return kExitOk;
}

}  // namespace

Result<int> run_eval(Invocation& invocation) {
  const std::vector<std::string>& arguments = invocation.arguments;
  if (arguments.front() == "compare") {
    if (arguments.size() == 3) return compare(invocation, arguments[1], arguments[2]);
    return make_error(ErrorKind::kInvalidArgument, "eval compare needs two results files");
  }
  if (arguments.size() == 1) return Evaluator(invocation).run(arguments.front());
  return make_error(ErrorKind::kInvalidArgument, "eval takes one task, or compare and two results files");
}

}  // namespace rhapsode::cli
