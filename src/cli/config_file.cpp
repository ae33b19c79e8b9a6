#include "cli/config_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "cli/command.h"
#include "cli/suggest.h"

namespace rhapsode::cli {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // a file of options is a page or two; more is the wrong file

// What an option's values look like in TOML.
struct Shape {
  bool boolean = false, integer = false, number = false, text = false, list = false;
  const char* words = "";
};

struct ShapeOf {
  Shape operator()(bool*) const { return {.boolean = true, .words = "true or false"}; }
  Shape operator()(int*) const { return {.integer = true, .words = "a whole number"}; }
  Shape operator()(uint32_t*) const { return {.integer = true, .words = "a whole number"}; }
  Shape operator()(float*) const { return {.integer = true, .number = true, .words = "a number"}; }
  Shape operator()(double*) const { return (*this)(static_cast<float*>(nullptr)); }
  Shape operator()(uint64_t*) const {
    return {.integer = true, .text = true, .words = "a size such as \"2GiB\""};
  }
  Shape operator()(std::optional<uint64_t>*) const { return (*this)(static_cast<uint64_t*>(nullptr)); }
  Shape operator()(std::vector<int>*) const {
    return {.integer = true, .list = true, .words = "a list of whole numbers"};
  }
  Shape operator()(std::vector<std::string>*) const {
    return {.text = true, .list = true, .words = "a text or a list of texts"};
  }
  Shape operator()(std::vector<AdapterOptions>*) const {
    return {.text = true, .list = true, .words = "a text or a list of texts"};
  }
  template <typename T>
  Shape operator()(T*) const {
    return {.text = true, .words = "a text"};
  }
};

const char* kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a section";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

bool append_scalar(const toml::node& node, const Shape& shape, std::vector<std::string>& values) {
  if (const auto* flag = node.as_boolean(); flag && shape.boolean) {
    values.emplace_back(flag->get() ? "true" : "false");
  } else if (const auto* integer = node.as_integer(); integer && shape.integer) {
    values.push_back(fmt::format("{}", integer->get()));
  } else if (const auto* number = node.as_floating_point(); number && shape.number) {
    values.push_back(fmt::format("{}", number->get()));
  } else if (const auto* text = node.as_string(); text && shape.text) {
    values.push_back(text->get());
  } else {
    return false;
  }
  return true;
}

class Reader {
 public:
  explicit Reader(ConfigFile& file) : file_(file) {}

  Status read_table(const toml::table& table, const Command* command) {
    for (const auto& [toml_key, node] : table) {
      const std::string key(toml_key.str());
      const int line = static_cast<int>(toml_key.source().begin.line);
      if (const toml::table* section = node.as_table(); section && !command) {
        const Command* named = find_command(key);
        if (!named) return unknown("section", key, line, command_names());
        RH_TRY_STATUS(read_table(*section, named));
      } else {
        RH_TRY_STATUS(read_entry(key, node, line, command));
      }
    }
    return {};
  }

 private:
  Status read_entry(const std::string& key, const toml::node& node, int line, const Command* command) {
    std::vector<std::string> known;
    const OptionSpec* option = nullptr;
    for (const OptionSpec& spec : option_specs()) {
      if (std::string_view(spec.name) == "config") continue;  // a file cannot name the file to read
      if (command && !(spec.commands & command->id)) continue;
      known.push_back(spec.key());
      if (known.back() == key) option = &spec;
    }
    if (!option)
      return unknown(command ? fmt::format("key of [{}]", command->name) : "key", key, line, known);

    ConfigEntry entry{option, command ? command->name : "", {}, line};
    Settings scratch;
    const Shape shape = std::visit(ShapeOf{}, option->slot(scratch));
    bool fits = true;
    if (const toml::array* list = node.as_array(); list && shape.list) {
      for (const toml::node& element : *list) fits = fits && append_scalar(element, shape, entry.values);
      if (fits && entry.values.empty()) return {};  // an empty list is what is there without it
    } else {
      fits = append_scalar(node, shape, entry.values);
    }
    if (!fits) {
      return make_error(ErrorKind::kInvalidArgument, "{}:{}: {} must be {}; {} is given", file_.path.string(),
                        line, key, shape.words, kind_of(node));
    }
    file_.entries.push_back(std::move(entry));
    return {};
  }

  Error unknown(const std::string& what, const std::string& key, int line,
                std::span<const std::string> known) const {
    return make_error(ErrorKind::kInvalidArgument, "{}:{}: unknown {} '{}'{}", file_.path.string(), line,
                      what, key, did_you_mean(key, known));
  }

  ConfigFile& file_;
};

Result<std::string> read_text(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return make_error(ErrorKind::kInvalidArgument, "{} is a folder, not a file of options", path.string());
  }
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return make_system_error(errno, fmt::format("cannot read the options in {}", path.string()));
  std::string text(kMostBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMostBytes) {
    return make_error(ErrorKind::kTooLarge, "{} is larger than a file of options may be ({} bytes)",
                      path.string(), kMostBytes);
  }
  return text;
}

}  // namespace

const ConfigEntry* ConfigFile::find(const OptionSpec& option, std::string_view command) const {
  const ConfigEntry* found = nullptr;
  for (const ConfigEntry& entry : entries) {
    if (entry.option != &option) continue;
    if (entry.section == command) return &entry;
    if (entry.section.empty()) found = &entry;
  }
  return found;
}

Result<ConfigFile> read_config(const std::filesystem::path& path) {
  RH_TRY(const std::string text, read_text(path));
  ConfigFile file{path, {}};
  try {
    const toml::table table = toml::parse(text, path.string());
    RH_TRY_STATUS(Reader(file).read_table(table, nullptr));
  } catch (const toml::parse_error& error) {
    return make_error(ErrorKind::kInvalidArgument, "{}:{}: not valid TOML: {}", path.string(),
                      static_cast<int>(error.source().begin.line), error.description());
  }
  return file;
}

}  // namespace rhapsode::cli
