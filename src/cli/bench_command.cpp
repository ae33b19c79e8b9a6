// `rhapsode bench`: prefill and decode speed by length, next to libllama's when asked.
#include <algorithm>
#include <map>

#include "base/system.h"
#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/quantity.h"
#include "cli/speed_meter.h"
#include "cli/table.h"
#include "engine/llama_peer.h"
#include "engine/parity.h"
#include "engine/runner_options.h"
#include "model/pull.h"

namespace rhapsode::cli {
namespace {

constexpr int kLong = 8192;  // from this length on, --runs-long counts
constexpr int kDocumentTokens = 512;
constexpr int kComparedSteps = 16;  // rows compared behind each prompt

// Text of several kinds for comparing likeliest tokens; speed is measured on other tokens.
constexpr const char* kPrompts[] = {
    "The capital of France is",
    "def quicksort(items):\n    if len(items) < 2:\n        return items\n    pivot = items[0]\n",
    "Sing, goddess, of the anger of Achilles son of Peleus, that brought countless ills upon the Achaeans.",
    "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"known_for\": [\"the first program\", ",
    "SELECT customers.name, SUM(orders.total) AS spent FROM customers JOIN orders ON",
    "In an experiment, the temperature of a gas was measured ten times. The mean of the measurements was",
};

struct Report {
  std::string model;
  std::string weights;
  int threads = 0;
  int trained_tokens = 0;
  std::optional<engine::ParityReport> parity;
  std::vector<SpeedRow> prefill, decode, encode;
};

class Bench {
 public:
  explicit Bench(Invocation& invocation)
      : settings_(invocation.settings), bench_(settings_.bench), terminal_(invocation.terminal) {}

  Result<Report> run() {
    EngineOptions options = settings_.engine;
    RH_TRY(options.model, model::resolve_model(settings_.model));
    report_.model = options.model.stem().string();
    report_.weights = show_option(*find_option("weights"), settings_);
    report_.threads = threads_ = options.threads > 0 ? options.threads : usable_cores();
    RH_TRY(std::unique_ptr<engine::ModelRunner> runner, open_runner(options));
    report_.trained_tokens = runner->architecture().trained_context_tokens;
    if (bench_.compare_llama) RH_TRY_STATUS(open_peer(options));
    RH_TRY_STATUS(measure(*runner));
    if (bench_.encode) {
      runner.reset();  // its weights make room for the copy
      options.weights = WeightFormat::kBF16;
      RH_TRY_STATUS(measure_encoding(options));
    }
    terminal_.clear_status();
    return std::move(report_);
  }

 private:
  Result<std::unique_ptr<engine::ModelRunner>> open_runner(const EngineOptions& options) {
    show(fmt::format("loading {} …", report_.model));
    RH_TRY(const engine::RunnerOptions runner, engine::runner_options(options));
    return engine::ModelRunner::open(runner);
  }

  Status open_peer(const EngineOptions& options) {
    show("loading libllama …");
    engine::LlamaPeerOptions peer;
    peer.model = options.model;
    for (const AdapterOptions& adapter : options.adapters)
      peer.adapters.push_back({adapter.path, adapter.scale});
    peer.threads = threads_;
    peer.context_tokens = context_needed();
    RH_TRY(peer_, engine::LlamaPeer::open(peer));
    return {};
  }

  int runs_of(int length) const { return length >= kLong ? bench_.long_runs : bench_.runs; }

  int context_needed() const {
    int tokens = kDocumentTokens;
    for (const int length : bench_.prefill_tokens) tokens = std::max(tokens, length);
    for (const int context : bench_.decode_contexts) {
      tokens = std::max(tokens, context + SpeedMeter::decode_growth(bench_.decode_tokens, runs_of(context)));
    }
    return (tokens + 255) / 256 * 256;
  }

  Status measure(engine::ModelRunner& runner) {
    RH_TRY(const auto ours,
           engine::RunnerSource::make(runner, context_needed(), settings_.engine.batch_tokens));
    if (peer_) RH_TRY_STATUS(compare(runner, *ours));
    SpeedMeter meter(*ours, peer_.get(), runner.tokenizer().size(), hooks());
    // A context that a prefill has just made need not be filled again for decoding.
    std::map<int, SpeedRow> decode;
    for (const int tokens : bench_.prefill_tokens) {
      RH_TRY(const SpeedRow row, meter.prefill(tokens, runs_of(tokens)));
      report_.prefill.push_back(row);
      const auto& contexts = bench_.decode_contexts;
      if (std::find(contexts.begin(), contexts.end(), tokens) == contexts.end() || decode.contains(tokens))
        continue;
      RH_TRY(decode[tokens], meter.decode(tokens, bench_.decode_tokens, runs_of(tokens)));
    }
    for (const int context : bench_.decode_contexts) {
      if (!decode.contains(context)) {
        RH_TRY(decode[context], meter.decode(context, bench_.decode_tokens, runs_of(context)));
      }
      report_.decode.push_back(decode[context]);
    }
    return {};
  }

  Status compare(const engine::ModelRunner& runner, engine::LogitSource& ours) {
    std::vector<std::vector<int32_t>> prompts;
    for (const char* text : kPrompts) {
      RH_TRY(std::vector<int32_t> tokens, runner.tokenizer().encode(text, {.add_special = true}));
      prompts.push_back(std::move(tokens));
    }
    show("comparing with libllama …");
    RH_TRY(report_.parity, engine::compare_logits(*peer_, ours, prompts, kComparedSteps));
    return {};
  }

  // Documents are encoded one by one, each from an empty context; libllama runs the weights as shipped.
  Status measure_encoding(const EngineOptions& options) {
    RH_TRY(const auto runner, open_runner(options));
    RH_TRY(const auto ours,
           engine::RunnerSource::make(*runner, kDocumentTokens, settings_.engine.batch_tokens));
    SpeedMeter meter(*ours, peer_.get(), runner->tokenizer().size(), hooks());
    RH_TRY(const SpeedRow row, meter.prefill(kDocumentTokens, bench_.runs));
    report_.encode.push_back(row);
    return {};
  }

  SpeedHooks hooks() {
    return steady_hooks([this](const std::string& what) { show(what); });
  }
  void show(const std::string& what) { terminal_.show_status(fmt::format("{}: {}", report_.model, what)); }

  const Settings& settings_;
  const BenchSettings& bench_;
  Terminal& terminal_;
  int threads_ = 1;
  Report report_;
  std::unique_ptr<engine::LlamaPeer> peer_;
};

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json rows_json(const std::vector<SpeedRow>& rows, const char* length_name, const char* weights = nullptr) {
  Json json = Json::array();
  for (const SpeedRow& row : rows) {
    Json object{{length_name, row.tokens}};
    if (weights) object["weights"] = weights;
    object["tokens_per_s"] = row.tokens_per_s;
    object["llama_tokens_per_s"] = or_null(row.peer_tokens_per_s);
    object["ratio"] = or_null(row.ratio());
    json.push_back(std::move(object));
  }
  return json;
}

// Without --compare-llama the fields that compare are null.
Json report_json(const Report& report, bool encode) {
  Json json{{"model", report.model}, {"weights", report.weights}, {"threads", report.threads}};
  const auto& parity = report.parity;
  json["argmax_equal"] = parity ? Json(parity->mismatches == 0) : Json(nullptr);  // ties aside
  json["ties"] = parity ? Json(parity->ties) : Json(nullptr);
  json["max_abs_logit_diff"] = parity ? Json(parity->max_abs_logit_diff) : Json(nullptr);
  if (parity) {
    json["compared_rows"] = parity->rows;
    json["mismatches"] = parity->mismatches;
    json["mean_kl"] = parity->mean_kl;
  }
  json["prefill"] = rows_json(report.prefill, "tokens");
  json["decode"] = rows_json(report.decode, "context");
  if (encode) json["encode"] = rows_json(report.encode, "tokens", "bf16");
  return json;
}

void print_rows(const char* title, const std::vector<SpeedRow>& rows, bool compared, Terminal& terminal) {
  if (rows.empty()) return;
  std::vector<Column> columns{{title, true}, {"tokens/s", true}};
  if (compared) columns.insert(columns.end(), {{"libllama", true}, {"ratio", true}});
  Table table(columns);
  for (const SpeedRow& row : rows) {
    std::vector<std::string> cells{fmt::format("{}", row.tokens), show_rate(row.tokens_per_s)};
    if (compared) {
      cells.push_back(show_rate(row.peer_tokens_per_s.value_or(0)));
      cells.push_back(fmt::format("{:.2f}", row.ratio().value_or(0)));
    }
    table.add(std::move(cells));
  }
  terminal.print(fmt::format("\n{}", table.render(terminal)));
}

void print_report(const Report& report, Terminal& terminal) {
  terminal.print(fmt::format("{}, weights {}, {} threads\n", report.model, report.weights, report.threads));
  if (report.parity) {
    const engine::ParityReport& parity = *report.parity;
    terminal.print(fmt::format(
        "likeliest token equal to libllama's in {} of {} rows ({} ties); largest logit difference "
        "{:.3f}\n",
        parity.argmax_equal, parity.rows, parity.ties, parity.max_abs_logit_diff));
  }
  const bool compared = report.parity.has_value();
  print_rows("prefill", report.prefill, compared, terminal);
  print_rows("decode at", report.decode, compared, terminal);
  print_rows("encode, bf16", report.encode, compared, terminal);
  const auto is_long = [&](const SpeedRow& row) { return row.tokens > report.trained_tokens; };
  if (std::any_of(report.prefill.begin(), report.prefill.end(), is_long) ||
      std::any_of(report.decode.begin(), report.decode.end(), is_long)) {
    terminal.print(
        fmt::format("\nThe model was trained on {} tokens: beyond them only its speed means something.\n",
                    report.trained_tokens));
  }
}

}  // namespace

Result<int> run_bench(Invocation& invocation) {
  RH_TRY(const Report report, Bench(invocation).run());
  if (invocation.settings.json) {
    invocation.terminal.print(to_text(report_json(report, invocation.settings.bench.encode)));
  } else {
    print_report(report, invocation.terminal);
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
