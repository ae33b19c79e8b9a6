// Text to option values and back.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "cli/option.h"

namespace rhapsode::cli {
namespace {

template <typename T>
struct Choice {
  const char* text;
  T value;
};
constexpr std::array<Choice<KvStorage>, 4> kKvTypes{
    {{"f32", KvStorage::kF32}, {"f16", KvStorage::kF16}, {"bf16", KvStorage::kBF16}, {"i8", KvStorage::kI8}}};
constexpr std::array<Choice<WeightFormat>, 3> kWeights{
    {{"shipped", WeightFormat::kShipped}, {"bf16", WeightFormat::kBF16}, {"mixed", WeightFormat::kMixed}}};
constexpr std::array<Choice<Device>, 3> kDevices{
    {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}}};
constexpr std::array<Choice<ReadPolicy>, 6> kPolicies{{{"auto", ReadPolicy::kAuto},
                                                       {"full", ReadPolicy::kFull},
                                                       {"prefix", ReadPolicy::kPrefix},
                                                       {"reuse", ReadPolicy::kReuse},
                                                       {"blend", ReadPolicy::kBlend},
                                                       {"reorder", ReadPolicy::kReorder}}};
constexpr std::array<Choice<BlendSelector>, 8> kSelectors{
    {{"attention", BlendSelector::kAttention},
     {"first", BlendSelector::kFirst},
     {"last", BlendSelector::kLast},
     {"attention+first", BlendSelector::kAttentionFirst},
     {"attention+last", BlendSelector::kAttentionLast},
     {"deviation", BlendSelector::kDeviation},
     {"boundary", BlendSelector::kBoundary},
     {"random", BlendSelector::kRandom}}};
constexpr std::array<Choice<RankBy>, 3> kRanks{
    {{"auto", RankBy::kAuto}, {"fused", RankBy::kFused}, {"evidence", RankBy::kEvidence}}};
constexpr std::array<Choice<ReadOrder>, 2> kOrders{
    {{"sequential", ReadOrder::kSequential}, {"parallel", ReadOrder::kParallel}}};

constexpr std::array<Choice<KeyBounds>, 3> kKeyBounds{
    {{"mean", KeyBounds::kMean}, {"box", KeyBounds::kBox}, {"ball", KeyBounds::kBall}}};

constexpr auto& choices_of(KeyBounds) {
  return kKeyBounds;
}
constexpr auto& choices_of(KvStorage) {
  return kKvTypes;
}
constexpr auto& choices_of(WeightFormat) {
  return kWeights;
}
constexpr auto& choices_of(Device) {
  return kDevices;
}
constexpr auto& choices_of(ReadPolicy) {
  return kPolicies;
}
constexpr auto& choices_of(RankBy) {
  return kRanks;
}
constexpr auto& choices_of(BlendSelector) {
  return kSelectors;
}
constexpr auto& choices_of(ReadOrder) {
  return kOrders;
}

Error bad_value(const std::string& label, const std::string& rule, std::string_view given) {
  return make_error(ErrorKind::kInvalidArgument, "{} {}; {} given", label, rule,
                    given.empty() ? "an empty text" : given);
}

template <typename T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> finite_number(std::string_view text) {
  const std::optional<double> value = whole_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// One reader for each type a Slot may point to.
class Parser {
 public:
  Parser(const OptionSpec& spec, const std::string& label, const std::vector<std::string>& values)
      : spec_(spec), label_(label), values_(values) {}

  Status operator()(bool* out) const {
    static constexpr std::string_view kYes[] = {"true", "1", "yes", "on"};
    static constexpr std::string_view kNo[] = {"false", "0", "no", "off"};
    const auto is_given = [&](std::string_view word) { return word == last(); };
    if (std::any_of(std::begin(kYes), std::end(kYes), is_given)) return set(out, true);
    if (std::any_of(std::begin(kNo), std::end(kNo), is_given)) return set(out, false);
    return bad_value(label_, "must be true or false", last());
  }

  Status operator()(int* out) const {
    RH_TRY(const int64_t value, integer(last()));
    return set(out, static_cast<int>(value));
  }

  Status operator()(uint32_t* out) const {
    RH_TRY(const int64_t value, integer(last()));
    return set(out, static_cast<uint32_t>(value));
  }

  Status operator()(float* out) const {
    double value = 0;
    RH_TRY_STATUS((*this)(&value));
    return set(out, static_cast<float>(value));
  }

  Status operator()(double* out) const {
    const std::optional<double> value = finite_number(last());
    if (!value) return bad_value(label_, "must be a number", last());
    if (!spec_.range.holds(*value)) return bad_value(label_, spec_.range.rule(), last());
    return set(out, *value);
  }

  Status operator()(uint64_t* out) const {
    auto size = parse_size(last());
    if (!size.ok()) return bad_value(label_, size.error().message, last());
    return set(out, *size);
  }

  Status operator()(std::string* out) const { return set(out, last()); }
  Status operator()(std::filesystem::path* out) const { return set(out, std::filesystem::path(last())); }
  Status operator()(KvStorage* out) const { return choice(out); }
  Status operator()(WeightFormat* out) const { return choice(out); }
  Status operator()(KeyBounds* out) const { return choice(out); }
  Status operator()(Device* out) const { return choice(out); }
  Status operator()(ReadPolicy* out) const { return choice(out); }
  Status operator()(BlendSelector* out) const { return choice(out); }
  Status operator()(RankBy* out) const { return choice(out); }
  Status operator()(ReadOrder* out) const { return choice(out); }

  // Where leaving the option out means something that no value says.
  template <typename T>
  Status operator()(std::optional<T>* out) const {
    T value{};
    RH_TRY_STATUS((*this)(&value));
    return set(out, value);
  }

  Status operator()(std::vector<int>* out) const {
    std::vector<int> numbers;
    for (const std::string& value : values_) {
      for (size_t begin = 0; begin <= value.size();) {
        const size_t end = std::min(value.find(',', begin), value.size());
        RH_TRY(const int64_t number, integer(std::string_view(value).substr(begin, end - begin)));
        numbers.push_back(static_cast<int>(number));
        begin = end + 1;
      }
    }
    return set(out, std::move(numbers));
  }

  Status operator()(std::vector<std::string>* out) const {
    if (std::any_of(values_.begin(), values_.end(), [](const auto& value) { return value.empty(); })) {
      return bad_value(label_, "must not be empty", "");
    }
    return set(out, values_);
  }

  Status operator()(std::vector<AdapterOptions>* out) const {
    std::vector<AdapterOptions> adapters;
    for (const std::string& value : values_) {
      const size_t colon = value.rfind(':');
      const auto scale = colon == std::string::npos
                             ? std::nullopt
                             : finite_number(std::string_view(value).substr(colon + 1));
      AdapterOptions adapter;
      adapter.path = scale ? value.substr(0, colon) : value;
      if (scale) adapter.scale = static_cast<float>(*scale);
      if (adapter.path.empty()) return bad_value(label_, "must be PATH or PATH:SCALE", value);
      adapters.push_back(std::move(adapter));
    }
    return set(out, std::move(adapters));
  }

 private:
  const std::string& last() const { return values_.back(); }

  template <typename T, typename V>
  static Status set(T* out, V&& value) {
    *out = std::forward<V>(value);
    return {};
  }

  Result<int64_t> integer(std::string_view text) const {
    const std::optional<int64_t> value = whole_number<int64_t>(text);
    if (!value) return bad_value(label_, "must be a whole number", text);
    if (!spec_.range.holds(static_cast<double>(*value))) return bad_value(label_, spec_.range.rule(), text);
    const bool is_seed =
        std::isfinite(spec_.range.high) && spec_.range.high > std::numeric_limits<int>::max();
    if (!is_seed && *value > std::numeric_limits<int>::max()) {
      return bad_value(label_, fmt::format("must be at most {}", std::numeric_limits<int>::max()), text);
    }
    return *value;
  }

  template <typename T>
  Status choice(T* out) const {
    std::string names;
    for (const auto& option : choices_of(T{})) {
      if (last() == option.text) return set(out, option.value);
      names += fmt::format("{}{}", names.empty() ? "" : ", ", option.text);
    }
    return bad_value(label_, "must be one of " + names, last());
  }

  const OptionSpec& spec_;
  const std::string& label_;
  const std::vector<std::string>& values_;
};

struct Printer {
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const int* value) const { return fmt::format("{}", *value); }
  std::string operator()(const uint32_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const float* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return fmt::format("{}", *value); }
  std::string operator()(const uint64_t* value) const { return show_size(*value); }
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const std::filesystem::path* value) const { return value->string(); }
  std::string operator()(const std::vector<int>* values) const {
    return fmt::format("{}", fmt::join(*values, ","));
  }
  std::string operator()(const std::vector<std::string>* values) const {
    return fmt::format("{}", fmt::join(*values, ", "));
  }
  std::string operator()(const std::vector<AdapterOptions>* values) const {
    std::string text;
    for (const AdapterOptions& adapter : *values) {
      text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", adapter.path.string(), adapter.scale);
    }
    return text;
  }
  std::string operator()(const KvStorage* value) const { return choice(*value); }
  std::string operator()(const KeyBounds* value) const { return choice(*value); }
  std::string operator()(const Device* value) const { return choice(*value); }
  std::string operator()(const WeightFormat* value) const { return choice(*value); }
  std::string operator()(const ReadPolicy* value) const { return choice(*value); }
  std::string operator()(const BlendSelector* value) const { return choice(*value); }
  std::string operator()(const RankBy* value) const { return choice(*value); }
  std::string operator()(const ReadOrder* value) const { return choice(*value); }

  template <typename T>
  std::string operator()(const std::optional<T>* value) const {
    return *value ? (*this)(&**value) : "";
  }

  template <typename T>
  static std::string choice(T value) {
    for (const auto& option : choices_of(T{})) {
      if (value == option.value) return option.text;
    }
    return "";
  }
};

std::string spelled(const char* prefix, std::string_view name, bool upper) {
  std::string text = prefix;
  for (const char c : name) {
    const bool letter = c >= 'a' && c <= 'z';
    text += c == '-' ? '_' : letter && upper ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return text;
}

}  // namespace

std::string Range::rule() const {
  if (!std::isfinite(high)) return fmt::format("must be {} {}", low_open ? "above" : "at least", low);
  return fmt::format("must lie in {}{:.12g}, {:.12g}]", low_open ? '(' : '[', low, high);
}

bool OptionSpec::repeatable() const {
  Settings settings;
  const Slot target = slot(settings);
  return std::holds_alternative<std::vector<std::string>*>(target) ||
         std::holds_alternative<std::vector<AdapterOptions>*>(target);
}

std::string OptionSpec::flag() const {
  Settings defaults;
  const Slot target = slot(defaults);
  bool* const* on = std::get_if<bool*>(&target);
  return fmt::format("--{}{}", on && **on ? "no-" : "", name);
}

std::string OptionSpec::key() const {
  return spelled("", name, false);
}
std::string OptionSpec::environment() const {
  return spelled("RHAPSODE_", name, true);
}

Status parse_option(const OptionSpec& spec, const std::string& label, const std::vector<std::string>& values,
                    Settings& settings) {
  if (values.empty()) return bad_value(label, "needs a value", "none");
  return std::visit(Parser(spec, label, values), spec.slot(settings));
}

std::string show_option(const OptionSpec& spec, const Settings& settings) {
  // Slots are read through the same accessor that writes them, hence a copy instead of a const_cast.
  Settings copy = settings;
  return std::visit([](const auto* value) { return Printer{}(value); }, spec.slot(copy));
}

Result<uint64_t> parse_size(std::string_view text) {
  const Error bad{ErrorKind::kInvalidArgument, "must be a size such as 512MiB, 2GiB or 4096"};
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<double> number = finite_number(text.substr(0, digits));
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (!number) return bad;

  double factor = 1;
  if (!unit.empty() && unit != "B") {
    static constexpr std::string_view kPrefixes = "KMGT";
    const size_t power = kPrefixes.find(unit.front() == 'k' ? 'K' : unit.front());
    const std::string_view rest = unit.substr(1);
    const bool binary = rest.empty() || rest == "iB";
    if (power == std::string_view::npos || (!binary && rest != "B")) return bad;
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  const double bytes = *number * factor;
  if (bytes > 9.0e18) return Error{ErrorKind::kInvalidArgument, "must be below 8 EiB"};
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string show_size(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

}  // namespace rhapsode::cli
