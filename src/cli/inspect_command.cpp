// `rhapsode inspect`: what a model file holds and whether this build can run it, from its header alone.
#include <ggml.h>

#include <algorithm>
#include <map>

#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/quantity.h"
#include "cli/table.h"
#include "engine/runner_options.h"
#include "model/architecture.h"
#include "model/gguf_file.h"
#include "model/pull.h"

namespace rhapsode::cli {
namespace {

using model::Architecture;
using model::GgufFile;
using model::GgufTensor;

constexpr kernels::KvType kKvTypes[] = {kernels::KvType::kF32, kernels::KvType::kF16, kernels::KvType::kBF16,
                                        kernels::KvType::kI8};

// Everything told about a file; sizes are absent where the architecture is none that this build knows.
struct Inspection {
  const GgufFile& file;
  std::string architecture_name;
  Result<Architecture> architecture;
  Status runnable;
};

Status check_tensors(const GgufFile& file, const Architecture& architecture) {
  for (const model::TensorNeed& need : model::tensor_needs(architecture)) {
    const GgufTensor* tensor = file.tensor(need.name);
    if (!tensor && need.optional) continue;
    if (!tensor) return make_error(ErrorKind::kCorrupt, "tensor '{}' is missing", need.name);
    if (tensor->shape[0] != need.columns || tensor->shape[1] != need.rows) {
      return make_error(ErrorKind::kCorrupt, "tensor '{}' has the shape [{}, {}]; [{}, {}] is needed",
                        need.name, tensor->shape[0], tensor->shape[1], need.columns, need.rows);
    }
  }
  return {};
}

Inspection inspect(const GgufFile& file) {
  Inspection inspection{
      file, std::string(file.text("general.architecture").value_or("")), model::parse_architecture(file), {}};
  inspection.runnable = inspection.architecture.ok() ? check_tensors(file, *inspection.architecture)
                                                     : Status(inspection.architecture.error());
  return inspection;
}

struct WeightType {
  std::string name;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

std::string type_name(int type) {
  return ggml_type_name(static_cast<ggml_type>(type));
}

// Largest first.
std::vector<WeightType> weight_types(const GgufFile& file) {
  std::map<int, WeightType> by_type;
  for (const GgufTensor& tensor : file.tensors()) {
    WeightType& type = by_type[tensor.type];
    type.name = type_name(tensor.type);
    ++type.tensors;
    type.bytes += tensor.data.size();
  }
  std::vector<WeightType> types;
  for (auto& [id, type] : by_type) types.push_back(std::move(type));
  std::stable_sort(types.begin(), types.end(),
                   [](const WeightType& a, const WeightType& b) { return a.bytes > b.bytes; });
  return types;
}

std::string shape_of(const GgufTensor& tensor) {
  std::string text = fmt::format("{}", tensor.shape[0]);
  for (int d = 1; d < tensor.dims; ++d) text += fmt::format(" × {}", tensor.shape[static_cast<size_t>(d)]);
  return text;
}

uint64_t kv_bytes_per_token(const Architecture& architecture, kernels::KvType type) {
  return architecture.kv_shape(type).block_bytes() / kernels::kPageTokens;
}

std::string scaling_of(const kernels::RopeSpec& rope) {
  if (rope.yarn_extrapolation > 0) return "yarn";
  if (!rope.factors.empty()) return "llama3";
  return rope.frequency_scale == 1.0 ? "none" : "linear";
}

Json rope_json(const Architecture& architecture) {
  const kernels::RopeSpec& rope = architecture.attention.back().rope;
  int windowed = 0;
  int window = 0;
  for (const kernels::AttendLayer& layer : architecture.attention) {
    windowed += layer.window > 0;
    window = std::max(window, static_cast<int>(layer.window));
  }
  return {{"pairing", rope.pairing == kernels::RopePairing::kAdjacent ? "adjacent" : "halves"},
          {"scaling", scaling_of(rope)},
          {"factor", rope.frequency_scale == 0 ? 1.0 : 1.0 / rope.frequency_scale},
          {"theta", rope.theta},
          {"dimensions", rope.dimensions},
          {"windowed_layers", windowed},
          {"window_tokens", window}};
}

Json tokenizer_json(const GgufFile& file) {
  const model::GgufArray* tokens = file.array("tokenizer.ggml.tokens");
  return {{"model", std::string(file.text("tokenizer.ggml.model").value_or(""))},
          {"pre", std::string(file.text("tokenizer.ggml.pre").value_or(""))},
          {"tokens", tokens ? tokens->size() : 0},
          {"chat_template", file.text("tokenizer.chat_template").has_value()}};
}

Json size_json(const Architecture& a) {
  Json bytes = Json::object();
  for (const kernels::KvType type : kKvTypes) bytes[engine::storage_name(type)] = kv_bytes_per_token(a, type);
  return {{"parameters", a.parameters},
          {"layers", a.layers},
          {"embedding", a.embedding},
          {"feed_forward", a.feed_forward},
          {"heads", a.heads},
          {"kv_heads", a.kv_heads},
          {"head_dim", a.head_dim},
          {"vocabulary", a.vocabulary},
          {"trained_context_tokens", a.trained_context_tokens},
          {"rope", rope_json(a)},
          {"kv_bytes_per_token", std::move(bytes)}};
}

Json inspection_json(const Inspection& inspection, bool with_tensors) {
  const GgufFile& file = inspection.file;
  Json json{{"path", file.path().string()},
            {"file_bytes", file.file_bytes()},
            {"name", std::string(file.text("general.name").value_or(""))},
            {"architecture", inspection.architecture_name},
            {"runnable", inspection.runnable.ok()},
            {"reason", inspection.runnable.ok() ? Json(nullptr) : Json(inspection.runnable.error().message)}};
  if (inspection.architecture.ok()) json.update(size_json(*inspection.architecture));
  json["tokenizer"] = tokenizer_json(file);
  Json& types = json["weight_types"] = Json::array();
  for (const WeightType& type : weight_types(file)) {
    types.push_back({{"type", type.name}, {"tensors", type.tensors}, {"bytes", type.bytes}});
  }
  if (!with_tensors) return json;
  Json& tensors = json["tensors"] = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back(
        {{"name", std::string(tensor.name)},
         {"type", type_name(tensor.type)},
         {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.begin() + tensor.dims)},
         {"bytes", tensor.data.size()}});
  }
  return json;
}

class Report {
 public:
  Report(const Inspection& inspection, Terminal& terminal) : inspection_(inspection), terminal_(terminal) {}

  void print(bool with_tensors) {
    const GgufFile& file = inspection_.file;
    pairs_ = {{"file", fmt::format("{} ({})", file.path().string(), show_bytes(file.file_bytes()))},
              {"name", std::string(file.text("general.name").value_or("none given"))},
              {"architecture", inspection_.architecture_name}};
    if (inspection_.architecture.ok()) add_sizes(*inspection_.architecture);
    add_tokenizer();
    terminal_.print(render_pairs(pairs_, terminal_));
    print_verdict();
    print_weight_types();
    if (inspection_.architecture.ok()) print_kv(*inspection_.architecture);
    if (with_tensors) print_tensors();
  }

 private:
  void add_sizes(const Architecture& a) {
    add("parameters", show_count(a.parameters));
    add("layers",
        fmt::format("{}, of width {} and {} in the feed-forward", a.layers, a.embedding, a.feed_forward));
    add("heads", fmt::format("{} of dimension {}, over {} KV heads", a.heads, a.head_dim, a.kv_heads));
    const Json rope = rope_json(a);
    std::string text =
        fmt::format("{} pairs, theta {}", rope["pairing"].get<std::string>(), rope["theta"].get<double>());
    if (rope["scaling"] != "none") {
      text +=
          fmt::format(", {} scaling × {}", rope["scaling"].get<std::string>(), rope["factor"].get<double>());
    }
    add("rotary positions", text);
    add("context", fmt::format("{} tokens", a.trained_context_tokens));
    if (rope["windowed_layers"] > 0) {
      add("window", fmt::format("{} tokens in {} layers", rope["window_tokens"].get<int>(),
                                rope["windowed_layers"].get<int>()));
    }
  }

  void add_tokenizer() {
    const Json tokenizer = tokenizer_json(inspection_.file);
    if (tokenizer["model"].get<std::string>().empty()) return;
    add("tokenizer",
        fmt::format("{} {}, {} tokens, {}", tokenizer["model"].get<std::string>(),
                    tokenizer["pre"].get<std::string>(), tokenizer["tokens"].get<size_t>(),
                    tokenizer["chat_template"] ? "with a chat template" : "without a chat template"));
  }

  void print_verdict() {
    terminal_.print("\n");
    if (inspection_.runnable.ok()) {
      terminal_.print(terminal_.paint(Style::kGreen, "This build can run it.") + "\n");
    } else {
      terminal_.print(fmt::format("{} {}\n", terminal_.paint(Style::kYellow, "This build cannot run it:"),
                                  terminal_.shown(inspection_.runnable.error().message)));
    }
  }

  void print_weight_types() {
    Table table({{"weights"}, {"tensors", true}, {"size", true}});
    for (const WeightType& type : weight_types(inspection_.file)) {
      table.add({type.name, fmt::format("{}", type.tensors), show_bytes(type.bytes)});
    }
    terminal_.print(fmt::format("\n{}", table.render(terminal_)));
  }

  void print_kv(const Architecture& a) {
    Table table({{"KV type"}, {"a token", true}, {"full context", true}});
    for (const kernels::KvType type : kKvTypes) {
      const uint64_t bytes = kv_bytes_per_token(a, type);
      table.add({engine::storage_name(type), fmt::format("{} B", bytes),
                 show_bytes(bytes * static_cast<uint64_t>(a.trained_context_tokens))});
    }
    terminal_.print(fmt::format("\n{}", table.render(terminal_)));
  }

  void print_tensors() {
    Table table({{"tensor"}, {"type"}, {"shape"}, {"size", true}});
    for (const GgufTensor& tensor : inspection_.file.tensors()) {
      table.add({std::string(tensor.name), type_name(tensor.type), shape_of(tensor),
                 show_bytes(tensor.data.size())});
    }
    terminal_.print(fmt::format("\n{}", table.render(terminal_)));
  }

  void add(std::string name, std::string value) { pairs_.emplace_back(std::move(name), std::move(value)); }

  const Inspection& inspection_;
  Terminal& terminal_;
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace

Result<int> run_inspect(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  RH_TRY(const auto path,
         model::resolve_model(invocation.arguments.empty() ? settings.model : invocation.arguments.front()));
  RH_TRY(const GgufFile file, GgufFile::open(path));
  const Inspection inspection = inspect(file);
  if (settings.json) {
    invocation.terminal.print(to_text(inspection_json(inspection, settings.inspect.tensors)));
  } else {
    Report(inspection, invocation.terminal).print(settings.inspect.tensors);
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
