// What the parts of the stand-in memory (fake_memory.cpp) share: its state in one JSON file.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "rhapsode/memory.h"

namespace rhapsode {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

inline constexpr const char* kFile = "fake.json";
inline constexpr const char* kTime = "2026-03-01T12:00:00Z";

inline double number_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atof(text) : 0;
}

inline void pause() {
  std::this_thread::sleep_for(
      std::chrono::milliseconds(static_cast<int>(number_from("RHAPSODE_FAKE_DELAY_MS"))));
}

inline std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string standard_input() {
  std::string text;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = ::read(0, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(bytes));
  }
  return text;
}

// As the user would write it: no "./" before, no "/" behind.
inline std::string source_name(const std::string& path) {
  std::string name = fs::path(path).lexically_normal().string();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name;
}

inline bool is_at_or_below(const std::string& source, const std::string& name) {
  const std::string clean = source_name(name);
  return clean == "." || source == clean || source.starts_with(clean + "/");
}

inline std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      if (word.size() > 3) words.insert(word);
      word.clear();
    }
  }
  return words;
}

inline int shared_words(const std::string& a, const std::string& b) {
  const auto left = words_of(a), right = words_of(b);
  return static_cast<int>(
      std::count_if(left.begin(), left.end(), [&](const auto& word) { return right.contains(word); }));
}

struct Span {
  size_t begin, end;
};

// Pieces that end behind `mark`.
inline std::vector<Span> pieces(const std::string& text, const std::string& mark) {
  std::vector<Span> spans;
  for (size_t begin = 0; begin < text.size();) {
    const size_t found = text.find(mark, begin);
    const size_t end = found == std::string::npos ? text.size() : found + mark.size();
    spans.push_back({begin, end});
    begin = end;
  }
  return spans;
}

struct Memory::Impl {
  fs::path folder;
  // {model_name, model_path, sources: {name: {text, versions, tags, event_time, index_only, user,
  // supersedes}}, facts: [{user, subject, attribute, value, action, told, current}]}
  Json json;

  // As the catalog refuses.
  Status refused(const std::string& user, bool all_users) {
    if (!user.empty() || all_users) return {};
    bool owned = false;
    for (const auto& [name, source] : sources().items()) owned |= !source.value("user", "").empty();
    for (const Json& fact : json.value("facts", Json::array())) owned |= !fact.value("user", "").empty();
    if (!owned) return {};
    return make_error(ErrorKind::kPermission, "{} holds users' own sources: say --user NAME or --all-users",
                      folder.string());
  }
  std::string newer_of(const std::string& name) {
    for (const auto& [other, source] : sources().items()) {
      const auto older = source.value("supersedes", std::vector<std::string>());
      if (std::find(older.begin(), older.end(), name) != older.end()) return other;
    }
    return "";
  }

  Json& sources() { return json["sources"]; }
  void save() const { std::ofstream(folder / kFile) << json.dump(1); }

  struct Found {
    std::string name;
    std::string bytes;
  };

  // What add() would read; `report` tells what it would not.
  Result<std::vector<Found>> scan(const AddOptions& options, AddReport& report) const {
    std::vector<Found> found;
    for (const std::string& path : options.paths) {
      if (path == "-") {
        found.push_back({options.standard_input_name, standard_input()});
      } else if (fs::is_directory(path)) {
        std::set<std::string> files;
        for (const auto& entry : fs::recursive_directory_iterator(path)) {
          if (entry.is_regular_file() && entry.path().string().find("/.") == std::string::npos)
            files.insert(entry.path().string());
        }
        for (const std::string& file : files) take(file, found, report);
      } else if (fs::exists(path)) {
        take(path, found, report);
      } else {
        return make_error(ErrorKind::kNotFound, "{} does not exist", path);
      }
    }
    return found;
  }

  static void take(const std::string& file, std::vector<Found>& found, AddReport& report) {
    const std::string name = source_name(file);
    if (name.ends_with(".bin")) {
      report.skipped.push_back({name, "binary"});
    } else if (name.ends_with(".bad")) {
      report.failed.push_back({name, "damaged: the table of pages is cut off"});
    } else if (fs::file_size(file) == 0) {
      report.skipped.push_back({name, "no text"});
    } else {
      found.push_back({name, contents(file)});
    }
  }

  std::vector<std::string> vanished(const AddOptions& options) {
    std::vector<std::string> names;
    for (const auto& [name, source] : sources().items()) {
      for (const std::string& path : options.paths) {
        if (fs::is_directory(path) && is_at_or_below(name, path) && !fs::exists(name)) names.push_back(name);
      }
    }
    return names;
  }

  bool selected(const std::string& name, const Json& source, const SourceFilter& filter) const {
    const bool named = filter.sources.empty() ||
                       std::any_of(filter.sources.begin(), filter.sources.end(),
                                   [&](const std::string& wanted) { return is_at_or_below(name, wanted); });
    const Json& tags = source["tags"];
    const std::string user = source.value("user", "");
    if (!user.empty() && user != filter.user && !filter.all_users) return false;
    return named && std::all_of(filter.tags.begin(), filter.tags.end(), [&](const std::string& tag) {
             return std::find(tags.begin(), tags.end(), tag) != tags.end();
           });
  }

  std::vector<FoundPassage> passages(const SourceFilter& filter) {
    std::vector<FoundPassage> all;
    int64_t id = 0;
    for (const auto& [name, source] : sources().items()) {
      const std::string text = source["text"];
      for (const Span& span : pieces(text, "\n\n")) {
        ++id;
        if (!selected(name, source, filter)) continue;
        FoundPassage found;
        found.text = text.substr(span.begin, span.end - span.begin);
        found.passage.id = id;
        found.passage.source = name;
        found.passage.version = source["versions"].get<int>();
        found.passage.start_byte = span.begin;
        found.passage.end_byte = span.end;
        found.passage.line =
            1 + static_cast<int>(
                    std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(span.begin), '\n'));
        found.passage.page = name.ends_with(".pdf") ? 3 : 0;
        found.passage.tokens = static_cast<int>(found.text.size() / 4);
        found.passage.header = name;
        found.passage.tier = source["index_only"].get<bool>() ? KvTier::kText : KvTier::kDisk;
        all.push_back(std::move(found));
      }
    }
    return all;
  }

  SourceInfo info(const std::string& name) {
    const Json& source = sources()[name];
    SourceInfo info;
    info.source = name;
    info.kind = name.ends_with(".md") ? "markdown" : "text";
    info.tags = source["tags"].get<std::vector<std::string>>();
    info.version = info.versions = source["versions"].get<int>();
    const std::string text = source["text"];
    info.bytes = text.size();
    info.tokens = text.size() / 4;
    info.passages = static_cast<int>(pieces(text, "\n\n").size());
    info.added = kTime;
    info.event_time = source["event_time"];
    info.user = source.value("user", "");
    info.supersedes = source.value("supersedes", std::vector<std::string>());
    if (const std::string newer = newer_of(name); !newer.empty()) info.superseded_by = {newer};
    return info;
  }
};

}  // namespace rhapsode
