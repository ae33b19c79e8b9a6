// What a walk over the paths that a user named finds: regular files, in a fixed order, each once.
//
// Folders are entered in byte order of their names. Links wait until the folder that was named is done: so a
// file has its own name, not that of a link to it, and a link brings only what is not there yet. Nothing is
// read but folders and ignore files. Threads: one. Memory: two small sets over all files and folders.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/gitignore.h"
#include "text/reader.h"

namespace rhapsode::text {

struct FoundFile {
  std::string name;  // as the user sees it
  std::string path;  // to open; of a link: where it leads
  uint64_t bytes = 0;
};

class FolderWalk {
 public:
  FolderWalk(const ScanOptions& options, std::function<void(FoundFile)> on_file,
             std::function<void(Skip)> on_skip);

  // A file, folder or link to one. What cannot be read goes to on_skip.
  void walk(const std::string& path);

 private:
  struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
    auto operator<=>(const FileId&) const = default;
  };
  struct Folder {
    std::string path;     // below the working folder or absolute; "": the working folder itself
    std::string logical;  // absolute, with '/' at its end: what ignore rules compare
    IgnoreRules rules;
    std::vector<std::string> names;  // sorted
    size_t next = 0;
  };
  struct Link {
    std::string path;
    std::string logical;
    IgnoreRules rules;
  };
  void walk_folder(Folder folder);
  // Lists `folder` and adds its ignore file; false: skipped.
  bool enter(Folder& folder);
  void visit(const Folder& parent, const std::string& name, std::vector<Folder>& stack);
  void follow(const Link& link, const std::string& root);
  void add_file(const std::string& path, const std::string& target, const struct stat& info, bool link);
  IgnoreRules load_rules(const IgnoreRules& rules, const std::string& file, const std::string& base,
                         const std::string& label);
  IgnoreRules rules_above(const std::string& folder);
  void skip(const std::string& path, std::string reason);
  void skip_unreadable(const std::string& path, int error_number);

  ScanOptions options_;
  std::function<void(FoundFile)> on_file_;
  std::function<void(Skip)> on_skip_;
  std::set<FileId> folders_;
  std::set<FileId> files_;
  std::vector<Link> links_;  // of the path being walked, not yet followed
};

// "not readable: Permission denied", or "vanished" for what is not there any more.
std::string unreadable_reason(int error_number);

}  // namespace rhapsode::text
