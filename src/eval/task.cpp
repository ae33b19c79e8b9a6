#include "eval/task.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>

#include "base/sha256.h"
#include "eval/built_in_tasks.h"
#include "eval/readers.h"
#include "io/file.h"

namespace rhapsode::eval {
namespace {

constexpr std::array<std::string_view, 6> kMetrics{"em", "f1", "subspan", "values", "stale", "cacheblend_f1"};
constexpr std::array<std::string_view, 3> kKinds{"questions", "replay", "talk"};  // as TaskKind
constexpr size_t kMostBytes = 1 << 20;

// Takes keys out of one table and remembers the first complaint; keys that nobody took are complaints too.
class Keys {
 public:
  Keys(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  void text(const char* key, std::string& out, bool required = false) {
    if (const toml::node* node = take(key, required)) {
      if (const auto value = node->value_exact<std::string>()) {
        out = *value;
      } else {
        complain(key, "must be a text");
      }
    }
  }
  template <typename T>
  void integer(const char* key, T& out, int64_t low, int64_t high) {
    if (const toml::node* node = take(key, false)) {
      const auto value = node->value_exact<int64_t>();
      if (value && *value >= low && *value <= high) {
        out = static_cast<T>(*value);
      } else {
        complain(key, fmt::format("must be a whole number in [{}, {}]", low, high));
      }
    }
  }
  void flag(const char* key, bool& out) {
    if (const toml::node* node = take(key, false)) {
      if (const auto value = node->value_exact<bool>()) {
        out = *value;
      } else {
        complain(key, "must be true or false");
      }
    }
  }
  template <typename T>
  std::vector<T> list(const char* key, bool required) {
    std::vector<T> out;
    const toml::node* node = take(key, required);
    if (!node) return out;
    if (const toml::array* array = node->as_array()) {
      for (const toml::node& element : *array) {
        if (const auto value = element.value_exact<T>()) out.push_back(*value);
      }
      if (out.size() == array->size()) return out;
    }
    complain(key, "must be a list of one kind of value");
    return {};
  }
  const toml::array* tables(const char* key, bool required) {
    const toml::node* node = take(key, required);
    if (!node) return nullptr;
    const toml::array* array = node->as_array();
    if (array && array->is_homogeneous<toml::table>()) return array;
    complain(key, "must be a list of tables");
    return nullptr;
  }
  // All keys that were not taken, as text.
  std::map<std::string, std::string> rest() {
    std::map<std::string, std::string> out;
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (taken(name)) continue;
      taken_.push_back(name);
      if (const auto text = node.value_exact<std::string>()) {
        out[name] = *text;
      } else if (const auto number = node.value_exact<int64_t>()) {
        out[name] = fmt::format("{}", *number);
      } else {
        complain(name.c_str(), "must be a text or a whole number");
      }
    }
    return out;
  }
  void complain(const char* key, const std::string& what) {
    if (status_.ok()) status_ = make_error(ErrorKind::kInvalidArgument, "{}: '{}' {}", where_, key, what);
  }
  Status finish() {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (!taken(name)) complain(name.c_str(), "is no key that means something here");
    }
    return status_;
  }
  const std::string& where() const { return where_; }

 private:
  const toml::node* take(const char* key, bool required) {
    taken_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (!node && required) complain(key, "is missing");
    return node;
  }
  bool taken(const std::string& key) const {
    return std::find(taken_.begin(), taken_.end(), key) != taken_.end();
  }

  const toml::table& table_;
  std::string where_;
  std::vector<std::string> taken_;
  Status status_;
};

Result<std::vector<DataPart>> parse_parts(Keys& task, const char* key, bool required) {
  std::vector<DataPart> parts;
  const toml::array* array = task.tables(key, required);
  if (!array) return parts;
  for (const toml::node& element : *array) {
    Keys keys(*element.as_table(), fmt::format("{}, {} {}", task.where(), key, parts.size() + 1));
    DataPart part;
    std::string path;
    keys.text("reader", part.reader, true);
    keys.text("path", path, true);
    keys.text("group", part.group);
    part.path = path;
    if (part.group.empty()) part.group = part.reader;
    const std::vector<std::string> known = reader_names();
    if (std::find(known.begin(), known.end(), part.reader) == known.end()) {
      keys.complain("reader", fmt::format("must be one of {}", fmt::join(known, ", ")));
    }
    // A task may come from anywhere; it names data, not files of the machine.
    if (part.path.is_absolute() || path.find("..") != std::string::npos) {
      keys.complain("path", "must lie below the data folder");
    }
    part.options = keys.rest();
    RH_TRY_STATUS(keys.finish());
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Context> parse_context_list(Keys& keys, const char* key, bool required) {
  const std::vector<std::string> names = keys.list<std::string>(key, required);
  if (names.empty()) return {};
  const auto contexts = parse_contexts(fmt::format("{}", fmt::join(names, ",")));
  if (contexts.ok()) return *contexts;
  keys.complain(key, contexts.error().message);
  return {};
}

void parse_talk(Keys& keys, LongNumbers& talk) {
  keys.integer("turns", talk.turns, 1, 1 << 20);
  keys.integer("facts", talk.facts, 0, 10000);
  keys.integer("corrected", talk.corrected, 0, 10000);
  keys.integer("retracted", talk.retracted, 0, 10000);
  keys.integer("asked_after", talk.asked_after, 1, 1 << 20);
  keys.integer("answered_every", talk.answered_every, 1, 1 << 20);
  keys.integer("window", talk.window, 1, 1 << 20);
}

void parse_kind(Keys& keys, Task& task) {
  std::string kind = "questions";
  keys.text("kind", kind);
  const auto found = std::find(kKinds.begin(), kKinds.end(), kind);
  if (found == kKinds.end()) keys.complain("kind", fmt::format("must be one of {}", fmt::join(kKinds, ", ")));
  task.kind = static_cast<TaskKind>(found == kKinds.end() ? 0 : found - kKinds.begin());
  if (task.kind == TaskKind::kTalk) parse_talk(keys, task.talk);
  keys.text("baseline", task.baseline);
  if (!context_named(task.baseline)) keys.complain("baseline", "must be a context");
}

void check_metrics(Keys& keys, const std::vector<std::string>& metrics) {
  for (const std::string& metric : metrics) {
    if (!is_answer_metric(metric)) {
      keys.complain("metrics", fmt::format("must be of {}; '{}' is none", fmt::join(kMetrics, ", "), metric));
    }
  }
}

void parse_ranking(Keys& keys, Task& task) {
  std::string unit = "document";
  keys.text("unit", unit);
  if (unit != "document" && unit != "passage") keys.complain("unit", "must be document or passage");
  task.unit = unit == "passage" ? RankUnit::kPassage : RankUnit::kDocument;
  const std::vector<int64_t> at = keys.list<int64_t>("recall_at", false);
  if (at.empty()) return;
  task.recall_at.clear();
  for (const int64_t k : at) {
    if (k < 1 || k > 1000) keys.complain("recall_at", "must lie in [1, 1000]");
    task.recall_at.push_back(static_cast<int>(k));
  }
  std::sort(task.recall_at.begin(), task.recall_at.end());
}

Result<Task> read_task(const toml::table& table, const std::string& label) {
  Keys keys(table, label);
  Task task;
  keys.text("name", task.name, true);
  keys.text("title", task.title, true);
  keys.text("instruction", task.instruction, true);
  parse_kind(keys, task);
  task.metrics = keys.list<std::string>("metrics", true);
  check_metrics(keys, task.metrics);
  task.contexts = parse_context_list(keys, "contexts", true);
  task.default_contexts = parse_context_list(keys, "default_contexts", false);
  if (task.default_contexts.empty()) task.default_contexts = task.contexts;
  parse_ranking(keys, task);
  keys.integer("max_tokens", task.max_tokens, 1, 4096);
  keys.text("answer_mark", task.answer_mark);
  keys.integer("distractors", task.distractors, -1, 1000);
  keys.integer("limit", task.limit, 0, 1 << 24);
  keys.integer("seed", task.seed, 0, std::numeric_limits<int64_t>::max());
  keys.flag("cite", task.cite);
  RH_TRY(task.data, parse_parts(keys, "data", true));
  RH_TRY(task.filler, parse_parts(keys, "filler", false));
  RH_TRY_STATUS(keys.finish());
  return task;
}

std::string hash_of(std::string_view text) {
  const auto hash = sha256(std::as_bytes(std::span(text.data(), text.size())));
  return hash.ok() ? *hash : std::string();
}

}  // namespace

bool is_answer_metric(std::string_view name) {
  return std::find(kMetrics.begin(), kMetrics.end(), name) != kMetrics.end();
}

Result<Task> parse_task(std::string_view toml, const std::string& label) {
  toml::table table;
  try {
    table = toml::parse(toml, label);
  } catch (const toml::parse_error& error) {
    return make_error(ErrorKind::kInvalidArgument, "{}, line {}: {}", label, error.source().begin.line,
                      error.description());
  }
  RH_TRY(Task task, read_task(table, label));
  task.sha256 = hash_of(toml);
  return task;
}

Result<Task> find_task(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml")) {
    RH_TRY(const std::string toml, read_text_file(name_or_path, kMostBytes));
    return parse_task(toml, name_or_path);
  }
  for (const BuiltInTask& task : built_in_tasks()) {
    if (task.name == name_or_path) return parse_task(task.toml, fmt::format("task {}", task.name));
  }
  return make_error(ErrorKind::kNotFound, "there is no task '{}'; there are {}, or name a .toml file",
                    name_or_path, fmt::join(task_names(), ", "));
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const BuiltInTask& task : built_in_tasks()) names.emplace_back(task.name);
  return names;
}

}  // namespace rhapsode::eval
