// The registry of options: each is declared once, in option_table.cpp, and from that row come its flag, its
// key in rhapsode.toml, its environment variable, its line in the help and its place in Settings.
//
// An option named "top-p" is the flag --top-p, the key top_p and the variable RHAPSODE_TOP_P. Every source
// hands over text; parse_option() turns it into the member's type and refuses what lies outside the declared
// range. Cost: the table is constant data, nothing runs before main(). Threads: const, any.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cli/settings.h"

namespace rhapsode::cli {

// Commands as bits, so that an option can name all that take it.
enum CommandSet : uint32_t {
  kGenerate = 1 << 0,
  kPull = 1 << 1,
  kInspect = 1 << 2,
  kBench = 1 << 3,
  kConfig = 1 << 4,
  kAdd = 1 << 5,
  kAsk = 1 << 6,
  kSearch = 1 << 7,
  kList = 1 << 8,
  kShow = 1 << 9,
  kForget = 1 << 10,
  kStats = 1 << 11,
  kVerify = 1 << 12,
  kExport = 1 << 13,
  kImport = 1 << 14,
  kChat = 1 << 15,
  kEval = 1 << 16,
  kRouting = 1 << 17,
  kCalibrate = 1 << 18,
  kRemember = 1 << 19,
  kFacts = 1 << 20,
  kEveryCommand = (1 << 21) - 1,
};

enum class OptionGroup : uint8_t {
  kPrompt,
  kAdding,
  kSelection,
  kReading,
  kConversation,
  kOutput,
  kSampling,
  kLength,
  kMemory,
  kModel,
  kEngine,
  kBench,
  kEvaluation,
  kGeneral,
};
const char* title(OptionGroup group);  // "Sampling"

// The member of Settings that an option writes; its type decides how text is read.
using Slot =
    std::variant<bool*, int*, uint32_t*, float*, double*, uint64_t*, std::string*, std::filesystem::path*,
                 std::vector<int>*, std::vector<std::string>*, std::vector<AdapterOptions>*,
                 std::optional<uint64_t>*, KvStorage*, std::optional<KvStorage>*, WeightFormat*, Device*,
                 KeyBounds*, ReadPolicy*, BlendSelector*, ReadOrder*, RankBy*>;

// Allowed values of a number; of each element, for lists.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // low itself is not allowed

  bool holds(double value) const { return (low_open ? value > low : value >= low) && value <= high; }
  // "must lie in (0, 1]", "must be at least 1"
  std::string rule() const;
};

struct OptionSpec {
  const char* name;
  char letter;             // short flag, 0: none
  const char* value_name;  // "N"; empty for a switch
  OptionGroup group;
  uint32_t commands;  // of CommandSet
  Range range;
  const char* help;  // lower case, no full stop; says what 0 or empty means
  Slot (*slot)(Settings&);

  bool is_switch() const { return value_name[0] == '\0'; }
  bool repeatable() const;          // may be given several times; each adds a value
  std::string flag() const;         // "--top-p", or "--no-prefix-cache" for a switch that is on by default
  std::string key() const;          // "top_p"
  std::string environment() const;  // "RHAPSODE_TOP_P"
};

std::span<const OptionSpec> option_specs();
const OptionSpec* find_option(std::string_view name);  // null when there is none

// Reads `values` (one, unless repeatable) into the option's member. `label` is how the user named the option,
// for errors: "--top-p must lie in (0, 1]; 1.7 given".
Status parse_option(const OptionSpec& spec, const std::string& label, const std::vector<std::string>& values,
                    Settings& settings);

// The member's value as a user would write it; repeated values are joined by ", ".
std::string show_option(const OptionSpec& spec, const Settings& settings);

// "2GiB", "1.5 GB", "4096" to bytes. K, M, G and T alone mean KiB and so on.
Result<uint64_t> parse_size(std::string_view text);
// The shortest exact way to write a number of bytes: "2GiB", "4097".
std::string show_size(uint64_t bytes);

}  // namespace rhapsode::cli
