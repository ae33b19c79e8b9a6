#include "model/verdict_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/file.h"

namespace rhapsode::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr uint64_t kMostFileBytes = 4u << 20;

struct NumberField {
  const char* name;
  double MeasuredReading::*member;
  double low, high;
};
constexpr NumberField kNumbers[] = {
    {"share", &MeasuredReading::share, 0, 1},
    {"kl", &MeasuredReading::kl, 0, 1e6},
    {"top1", &MeasuredReading::top1, 0, 1},
    {"f1_loss", &MeasuredReading::f1_loss, -1, 1},
    {"f1_half_width", &MeasuredReading::f1_half_width, 0, 2},
    {"long_kl", &MeasuredReading::long_kl, 0, 1e6},
    {"first_divergence", &MeasuredReading::first_divergence, 0, 1e6},
    {"charged", &MeasuredReading::charged, 0, 1e6},
    {"ttft_ratio", &MeasuredReading::ttft_ratio, 0, 1e6},
};
struct CountField {
  const char* name;
  int MeasuredReading::*member;
};
constexpr CountField kCounts[] = {
    {"least_tokens", &MeasuredReading::least_tokens},
    {"most_tokens", &MeasuredReading::most_tokens},
    {"questions", &MeasuredReading::questions},
};
struct TextField {
  const char* name;
  std::string MeasuredReading::*member;
};
constexpr TextField kTexts[] = {
    {"policy", &MeasuredReading::policy},
    {"selector", &MeasuredReading::selector},
    {"stored", &MeasuredReading::stored},
};

Error bad(const std::string& where, const char* name, const char* what) {
  return make_error(ErrorKind::kCorrupt, "{}: '{}' {}", where, name, what);
}

Result<MeasuredReading> parse_reading(const Json& json, const std::string& where) {
  if (!json.is_object()) return make_error(ErrorKind::kCorrupt, "{} is not an object", where);
  MeasuredReading reading;
  for (const TextField& field : kTexts) {
    const auto found = json.find(field.name);
    if (found == json.end() || !found->is_string()) return bad(where, field.name, "is not a string");
    reading.*field.member = found->get<std::string>();
  }
  for (const NumberField& field : kNumbers) {
    const auto found = json.find(field.name);
    if (found == json.end() || !found->is_number()) return bad(where, field.name, "is not a number");
    const double value = found->get<double>();
    if (!(value >= field.low && value <= field.high)) return bad(where, field.name, "is out of range");
    reading.*field.member = value;
  }
  for (const CountField& field : kCounts) {
    const auto found = json.find(field.name);
    const bool whole =
        found != json.end() && found->is_number_unsigned() && found->get<uint64_t>() < 1u << 30;
    if (!whole) return bad(where, field.name, "is not a whole number");
    reading.*field.member = found->get<int>();
  }
  return reading;
}

Result<std::vector<MeasuredReading>> parse_list(const Json& json, const std::string& label) {
  if (!json.is_array()) return make_error(ErrorKind::kCorrupt, "{} is not a list", label);
  std::vector<MeasuredReading> readings;
  for (const Json& row : json) {
    RH_TRY(MeasuredReading reading,
           parse_reading(row, fmt::format("{}, row {}", label, readings.size() + 1)));
    readings.push_back(std::move(reading));
  }
  return readings;
}

// Four digits say what such measurements can.
double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

}  // namespace

std::filesystem::path verdict_path(const std::filesystem::path& home, std::string_view model_sha256) {
  return home / "verdicts" / (std::string(model_sha256) + ".json");
}

Result<std::vector<MeasuredReading>> parse_readings(std::string_view text, const std::string& label) {
  return parse_list(Json::parse(text, nullptr, /*allow_exceptions=*/false), label);
}

Result<Verdict> load_verdict(const std::filesystem::path& path) {
  RH_TRY(const std::string text, read_text_file(path, kMostFileBytes));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return make_error(ErrorKind::kCorrupt, "{} is not a JSON object", path.string());
  const auto format = json.find("format");
  if (format == json.end() || *format != kFormat) {
    return make_error(ErrorKind::kUnsupported, "{}: 'format' is not {}, the one this build reads",
                      path.string(), kFormat);
  }
  Verdict verdict;
  const std::pair<const char*, std::string*> fields[] = {{"model_sha256", &verdict.model_sha256},
                                                         {"title", &verdict.title},
                                                         {"weights", &verdict.weights},
                                                         {"kv", &verdict.kv},
                                                         {"program", &verdict.program},
                                                         {"created", &verdict.created},
                                                         {"texts", &verdict.texts}};
  for (const auto& [name, member] : fields) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return bad(path.string(), name, "is not a string");
    *member = found->get<std::string>();
  }
  const auto readings = json.find("readings");
  if (readings == json.end()) return bad(path.string(), "readings", "is missing");
  RH_TRY(verdict.readings, parse_list(*readings, path.string()));
  return verdict;
}

Status save_verdict(const Verdict& verdict, const std::filesystem::path& path) {
  Json json{{"format", kFormat},          {"model_sha256", verdict.model_sha256},
            {"title", verdict.title},     {"weights", verdict.weights},
            {"kv", verdict.kv},           {"program", verdict.program},
            {"created", verdict.created}, {"texts", verdict.texts}};
  Json& rows = json["readings"] = Json::array();
  for (const MeasuredReading& reading : verdict.readings) {
    Json row;
    for (const TextField& field : kTexts) row[field.name] = reading.*field.member;
    for (const CountField& field : kCounts) row[field.name] = reading.*field.member;
    for (const NumberField& field : kNumbers) row[field.name] = rounded(reading.*field.member);
    rows.push_back(std::move(row));
  }
  RH_TRY_STATUS(make_directories(path.parent_path()));
  return replace_file(path, json.dump(2) + "\n");
}

}  // namespace rhapsode::model
