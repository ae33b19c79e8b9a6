#include "eval/results_file.h"

#include <algorithm>
#include <array>
#include <map>

namespace rhapsode::eval {
namespace {

constexpr uint64_t kMostBytes = 1ull << 30;
constexpr std::array<std::string_view, 8> kFreeSettings{"contexts", "limit",   "command", "commit",
                                                        "version",  "machine", "started", "baseline"};

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

std::vector<std::string> differing_settings(const Json& a, const Json& b) {
  std::vector<std::string> names;
  const auto compare = [&](const Json& from, const Json& to) {
    for (const auto& [name, value] : from.items()) {
      const bool free = std::find(kFreeSettings.begin(), kFreeSettings.end(), name) != kFreeSettings.end();
      const bool listed = std::find(names.begin(), names.end(), name) != names.end();
      const auto found = to.find(name);
      if (!free && !listed && (found == to.end() || *found != value)) names.push_back(name);
    }
  };
  compare(a, b);
  compare(b, a);
  return names;
}

Result<ResultLines> read_results(const std::filesystem::path& path) {
  RH_TRY(const std::string text, read_text_file(path, kMostBytes));
  ResultLines lines;
  std::map<std::string, size_t> known;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    ++number;
    const Json json = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    const bool last = end + 1 == text.size();
    if (json.is_discarded() && last && number > 1) break;
    if (number == 1) {
      if (!json.is_object() || !json.contains("settings") || !json["settings"].is_object()) {
        return make_error(ErrorKind::kCorrupt, "{} does not begin with the settings of an evaluation",
                          path.string());
      }
      lines.settings = json["settings"];
    } else {
      auto record = json.is_discarded() ? Result<Record>(Error{ErrorKind::kCorrupt, "a record is no JSON"})
                                        : parse_record(json);
      if (!record.ok()) {
        return make_error(ErrorKind::kCorrupt, "{}, line {}: {}", path.string(), number,
                          record.error().message);
      }
      const auto [entry, added] = known.try_emplace(record->key(), lines.records.size());
      if (added) {
        lines.records.push_back(std::move(*record));
      } else {
        lines.records[entry->second] = std::move(*record);
      }
    }
    begin = end + 1;
    lines.whole_bytes = begin;
  }
  if (number == 0) {
    return make_error(ErrorKind::kCorrupt, "{} holds no whole line of an evaluation", path.string());
  }
  return lines;
}

Result<ResultsFile> ResultsFile::open(const std::filesystem::path& path, const Json& settings, bool resume) {
  std::error_code ignored;
  const bool there = std::filesystem::exists(path, ignored) && std::filesystem::file_size(path, ignored) > 0;
  if (there && !resume) {
    return make_error(ErrorKind::kInvalidArgument,
                      "{} is there already: --resume goes on with it, or name another --output",
                      path.string());
  }
  ResultLines lines;
  if (there) {
    RH_TRY(lines, read_results(path));
    const std::vector<std::string> names = differing_settings(lines.settings, settings);
    if (!names.empty()) {
      return make_error(ErrorKind::kInvalidArgument,
                        "{} was made with other settings ({}): name another --output, or remove it",
                        path.string(), fmt::join(names, ", "));
    }
  }
  RH_TRY(File file, File::open_write(path));
  ResultsFile results(std::move(file));
  results.end_ = lines.whole_bytes;
  RH_TRY_STATUS(results.file_.truncate(results.end_));
  if (!there) RH_TRY_STATUS(results.write_line({{"settings", settings}}));
  for (const Record& record : lines.records) {
    if (record.error.empty()) results.done_.insert(record.key());
  }
  results.done_before_ = static_cast<int>(results.done_.size());
  return results;
}

Status ResultsFile::append(const Record& record) {
  RH_TRY_STATUS(write_line(to_json(record)));
  if (record.error.empty()) done_.insert(record.key());
  return {};
}

Status ResultsFile::write_line(const Json& json) {
  const std::string line = line_of(json);
  RH_TRY_STATUS(file_.write_at(std::as_bytes(std::span(line.data(), line.size())), end_));
  end_ += line.size();
  return {};
}

}  // namespace rhapsode::eval
