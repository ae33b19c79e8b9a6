// `rhapsode calibrate`: measures the ways of reading a model's stored KV and writes the verdict on it.
#include "base/iso_time.h"
#include "base/system.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/quantity.h"
#include "cli/scratch_folder.h"
#include "cli/table.h"
#include "engine/runner_options.h"
#include "eval/calibration.h"
#include "eval/evaluation.h"
#include "eval/memory_subject.h"
#include "model/file_hash.h"
#include "model/pull.h"
#include "model/verdict_file.h"
#include "rhapsode/version.h"
#include "text/reader.h"

namespace rhapsode::cli {
namespace {

const char* name_of(KvStorage type) {
  return engine::storage_name(engine::kv_type_of(type));
}

const char* name_of(WeightFormat format) {
  constexpr const char* kNames[] = {"shipped", "bf16", "mixed"};
  return kNames[static_cast<size_t>(format)];
}

std::string described(const model::MeasuredReading& row) {
  const std::string way =
      row.policy == "blend" ? fmt::format("blend {:.0f} % by {}", 100 * row.share, row.selector) : row.policy;
  const std::string size = row.most_tokens > 0 ? fmt::format("up to {} tokens", row.most_tokens)
                                               : fmt::format("{} tokens and more", row.least_tokens);
  return fmt::format("{}, {}", way, size);
}

class Calibrator {
 public:
  explicit Calibrator(Invocation& invocation)
      : invocation_(invocation),
        settings_(invocation.settings),
        terminal_(invocation.terminal),
        options_{settings_.calibrate.thorough, settings_.request.sampling.seed} {}

  Result<int> run() {
    RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
    RH_TRY(const std::vector<eval::CalibrationText> texts, read_texts());
    RH_TRY(const eval::Dataset dataset, eval::calibration_data(texts, options_));
    const eval::Task task = eval::calibration_task(options_);
    eval::Options measuring;
    measuring.seed = settings_.request.sampling.seed;
    RH_TRY(const eval::Plan plan, eval::Plan::make(task, dataset, measuring));
    RH_TRY(const auto subject, open_subject(dataset, task, interrupts));
    eval::Evaluation evaluation(plan, measuring, *subject);
    RH_TRY(eval::ResultsFile results,
           eval::ResultsFile::open(scratch_folder() / "results.jsonl", evaluation.settings(), false));
    const Status ran = evaluation.run(results, [&](const eval::EvaluationProgress& progress) {
      terminal_.show_status(fmt::format("{} of {} readings …", progress.done, progress.total));
      return interrupts.signal_number() == 0;
    });
    terminal_.clear_status();
    if (!ran.ok() && ran.error().kind == ErrorKind::kCancelled) return 128 + interrupts.signal_number();
    RH_TRY_STATUS(ran);
    RH_TRY(const eval::ResultLines lines, eval::read_results(results.path()));
    RH_TRY_STATUS(check(lines.records));
    return report(lines.records);
  }

 private:
  const std::filesystem::path& scratch_folder() {
    if (folder_.empty()) folder_ = scratch_.make("calibrate");
    return folder_;
  }

  void note_skipped(const std::string& name, const std::string& reason) {
    terminal_.print_err(terminal_.paint_err(Style::kDim, fmt::format("skipped {}: {}", name, reason)) + "\n");
  }

  Result<std::vector<eval::CalibrationText>> read_texts() {
    if (invocation_.arguments.empty()) return eval::built_in_calibration_texts();
    std::vector<eval::CalibrationText> texts;
    text::ScanCallbacks callbacks;
    callbacks.on_source = [&](text::SourceBytes source) {
      const auto document = text::read_document(source.name, std::move(source.bytes));
      if (document.ok()) {
        texts.push_back({source.name, document->text});
      } else {
        note_skipped(source.name, document.error().message);
      }
      return true;
    };
    callbacks.on_skip = [&](const text::Skip& skip) { note_skipped(skip.name, skip.reason); };
    RH_TRY_STATUS(text::scan_sources(invocation_.arguments, {}, callbacks));
    return texts;
  }

  Result<std::unique_ptr<eval::MemorySubject>> open_subject(const eval::Dataset& dataset,
                                                            const eval::Task& task,
                                                            const InterruptGuard& interrupts) {
    terminal_.show_status(fmt::format("Loading {} …", settings_.model));
    eval::MemorySubjectOptions subject;
    subject.engine = settings_.engine;
    RH_TRY(subject.engine.model, model::resolve_model(settings_.model));
    model_ = subject.engine.model;
    subject.folder = scratch_folder();
    subject.whitening = settings_.memory.options.whitening;
    subject.instruction = task.instruction;
    subject.stored_kv = settings_.memory.options.stored_kv;
    for (size_t i = 0; i < dataset.documents.size(); ++i) subject.documents.push_back(static_cast<int>(i));
    subject.encode = true;
    subject.on_progress = [&](const AddProgress& progress) {
      terminal_.show_status(fmt::format("Reading: {} of {} passages, {:.0f} tokens/s …",
                                        progress.sources_done, progress.sources_total,
                                        progress.tokens_per_s));
      return interrupts.signal_number() == 0;
    };
    auto opened = eval::MemorySubject::open(dataset, std::move(subject));
    terminal_.clear_status();
    return opened;
  }

  // A verdict from half of its questions would say more than was measured.
  static Status check(const std::vector<eval::Record>& records) {
    for (const eval::Record& record : records) {
      if (!record.error.empty()) {
        return make_error(ErrorKind::kInternal, "question {} could not be measured as {}: {}", record.id,
                          record.context, record.error);
      }
    }
    return {};
  }

  Result<int> report(const std::vector<eval::Record>& records) {
    const KvStorage stored = settings_.memory.options.stored_kv.value_or(settings_.engine.kv_type);
    const auto home = settings_.engine.cache_folder.empty() ? home_folder() : settings_.engine.cache_folder;
    model::Verdict verdict;
    RH_TRY(verdict.model_sha256, model::known_hash(model_, home));
    verdict.title = model_.stem().string();
    verdict.weights = name_of(settings_.engine.weights);
    verdict.kv = name_of(settings_.engine.kv_type);
    verdict.program = kVersion;
    verdict.created = format_iso_time(wall_clock_ms());
    verdict.texts =
        invocation_.arguments.empty() ? "built in" : fmt::format("{}", fmt::join(invocation_.arguments, " "));
    verdict.readings = eval::measured_readings(records, settings_.request.sampling.seed, name_of(stored));
    const auto path = settings_.calibrate.file.empty() ? model::verdict_path(home, verdict.model_sha256)
                                                       : settings_.calibrate.file;
    RH_TRY_STATUS(keep_other_types(path, name_of(stored), verdict));
    RH_TRY_STATUS(model::save_verdict(verdict, path));
    print(verdict, path);
    return kExitOk;
  }

  // Measurements of the same model with KV stored as another type still hold.
  static Status keep_other_types(const std::filesystem::path& path, const std::string& stored,
                                 model::Verdict& verdict) {
    const Result<model::Verdict> before = model::load_verdict(path);
    if (!before.ok()) {
      return before.error().kind == ErrorKind::kNotFound ? Status() : Status(before.error());
    }
    if (before->model_sha256 != verdict.model_sha256) return {};
    for (const model::MeasuredReading& reading : before->readings) {
      if (reading.stored != stored) verdict.readings.push_back(reading);
    }
    return {};
  }

  void print(const model::Verdict& verdict, const std::filesystem::path& path) {
    Json rows = Json::array();
    Table table({{"passages read as"},
                 {"KL", true},
                 {"top-1", true},
                 {"F1 lost", true},
                 {"KL at length", true},
                 {"alike for", true},
                 {"charged", true},
                 {"first token", true},
                 {"n", true}});
    for (const model::MeasuredReading& row : verdict.readings) {
      rows.push_back({{"policy", row.policy},
                      {"selector", row.selector},
                      {"share", row.share},
                      {"stored", row.stored},
                      {"least_tokens", row.least_tokens},
                      {"most_tokens", row.most_tokens},
                      {"kl", row.kl},
                      {"top1", row.top1},
                      {"f1_loss", row.f1_loss},
                      {"f1_half_width", row.f1_half_width},
                      {"long_kl", row.long_kl},
                      {"first_divergence", row.first_divergence},
                      {"charged", row.charged},
                      {"ttft_ratio", row.ttft_ratio},
                      {"questions", row.questions}});
      table.add({described(row), fmt::format("{:.3f}", row.kl), fmt::format("{:.2f}", row.top1),
                 fmt::format("{:+.3f} ±{:.3f}", row.f1_loss, row.f1_half_width),
                 fmt::format("{:.3f}", row.long_kl), fmt::format("{:.0f} tokens", row.first_divergence),
                 fmt::format("{:.0f} %", 100 * row.charged), fmt::format("{:.1f}x sooner", row.ttft_ratio),
                 fmt::format("{}", row.questions)});
    }
    if (settings_.json) {
      terminal_.print(
          to_text({{"model_sha256", verdict.model_sha256}, {"file", path.string()}, {"readings", rows}}));
    } else {
      terminal_.print(fmt::format("{}, against full attention\n{}", verdict.title, table.render(terminal_)));
      terminal_.print_err(terminal_.paint_err(Style::kDim, fmt::format("the verdict is {}", path.string())) +
                          "\n");
    }
  }

  Invocation& invocation_;
  const Settings& settings_;
  Terminal& terminal_;
  const eval::CalibrationOptions options_;
  ScratchFolder scratch_;
  std::filesystem::path folder_;
  std::filesystem::path model_;
};

}  // namespace

Result<int> run_calibrate(Invocation& invocation) {
  return Calibrator(invocation).run();
}

}  // namespace rhapsode::cli
