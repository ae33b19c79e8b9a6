// A results file: JSON Lines, the settings first, then one record a line, each written when it is made.
//
// A run that was cut short leaves at worst half a last line, which opening with resume drops. Records of a
// question that failed do not count as done, so that a resumed run tries it again; the last record of a key
// counts. Threads: one at a time. Errors: kInvalidArgument for a file that is there (without resume) or was
// made with other settings (which are named), kCorrupt for a damaged line that is not the last.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/record.h"
#include "io/file.h"

namespace rhapsode::eval {

struct ResultLines {
  Json settings;
  std::vector<Record> records;  // the last one of each key, in the order of their first lines
  uint64_t whole_bytes = 0;     // up to the end of the last line that is whole
};
Result<ResultLines> read_results(const std::filesystem::path& path);

class ResultsFile {
 public:
  // Settings that may differ between the parts of one run are not compared: see differing_settings().
  static Result<ResultsFile> open(const std::filesystem::path& path, const Json& settings, bool resume);

  bool is_done(const std::string& key) const { return done_.contains(key); }
  int done_before() const { return done_before_; }
  Status append(const Record& record);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  explicit ResultsFile(File file) : file_(std::move(file)) {}
  Status write_line(const Json& json);

  File file_;
  uint64_t end_ = 0;
  std::set<std::string> done_;
  int done_before_ = 0;
};

// Names of settings in which the two differ, those aside that do not change a record's numbers (contexts and
// limit of a run, its command line, commit, version, machine and time).
std::vector<std::string> differing_settings(const Json& a, const Json& b);

}  // namespace rhapsode::eval
