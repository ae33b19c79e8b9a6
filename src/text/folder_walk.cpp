#include "text/folder_walk.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "text/file_name.h"

namespace rhapsode::text {
namespace {

constexpr uint64_t kMostIgnoreFileBytes = 8u << 20;

std::string joined(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.ends_with('/') ? folder + name : folder + '/' + name;
}

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(
      ::realpath(path.empty() ? "." : path.c_str(), nullptr), &std::free);
  return resolved ? std::string(resolved.get()) : std::string();
}

std::string with_slash(std::string path) {
  return path.ends_with('/') ? path : path + '/';
}

bool is_file(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Why a link into `below` (a path below the folder that was named) is not followed; empty: it is.
std::string hidden_target_reason(std::string_view below, bool hidden_allowed) {
  while (!below.empty()) {
    const std::string_view part = below.substr(0, below.find('/'));
    below.remove_prefix(std::min(below.size(), part.size() + 1));
    if (part == ".git") return "a link to version control data";
    if (part.starts_with('.') && !hidden_allowed) return "a link to something hidden";
  }
  return {};
}

constexpr const char* kNotRegular = "no regular file: a pipe, a device or a socket";

}  // namespace

std::string unreadable_reason(int error_number) {
  if (error_number == ENOENT) return "vanished";
  return "not readable: " + std::generic_category().message(error_number);
}

FolderWalk::FolderWalk(const ScanOptions& options, std::function<void(FoundFile)> on_file,
                       std::function<void(Skip)> on_skip)
    : options_(options), on_file_(std::move(on_file)), on_skip_(std::move(on_skip)) {}

void FolderWalk::skip(const std::string& path, std::string reason) {
  on_skip_({shown_name(path.empty() ? "." : path), std::move(reason)});
}

void FolderWalk::skip_unreadable(const std::string& path, int error_number) {
  skip(path, unreadable_reason(error_number));
}

void FolderWalk::walk(const std::string& named) {
  const std::string path = normal_path(named);
  struct stat info {};
  if (::stat(path.empty() ? "." : path.c_str(), &info) != 0) return skip_unreadable(path, errno);
  const std::string root = real_path(path);
  if (root.empty()) return skip_unreadable(path, errno);
  if (S_ISREG(info.st_mode)) return add_file(path, root, info, false);
  if (!S_ISDIR(info.st_mode)) return skip(path, kNotRegular);
  walk_folder({.path = path, .logical = with_slash(root), .rules = rules_above(root), .names = {}});
  for (size_t i = 0; i < links_.size(); ++i) {  // links behind links are added meanwhile
    const Link link = std::move(links_[i]);
    follow(link, root);
  }
  links_.clear();
}

void FolderWalk::walk_folder(Folder folder) {
  std::vector<Folder> stack;
  if (!enter(folder)) return;
  stack.push_back(std::move(folder));
  while (!stack.empty()) {
    Folder& top = stack.back();
    if (top.next == top.names.size()) {
      stack.pop_back();
      continue;
    }
    const std::string name = std::move(top.names[top.next++]);
    visit(top, name, stack);
  }
}

bool FolderWalk::enter(Folder& folder) {
  const char* path = folder.path.empty() ? "." : folder.path.c_str();
  struct stat info {};
  if (::stat(path, &info) != 0) {
    skip_unreadable(folder.path, errno);
    return false;
  }
  if (!folders_.insert({info.st_dev, info.st_ino}).second) {
    skip(folder.path, "a folder already read: named twice, or a loop");
    return false;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(path), &::closedir);
  if (!stream) {
    skip_unreadable(folder.path, errno);
    return false;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") folder.names.push_back(name);
    errno = 0;
  }
  if (errno != 0) skip_unreadable(folder.path, errno);  // what was listed so far is read
  std::sort(folder.names.begin(), folder.names.end());
  const std::string ignore_file = joined(folder.path, ".gitignore");
  if (options_.ignore_files && std::binary_search(folder.names.begin(), folder.names.end(), ".gitignore")) {
    folder.rules = load_rules(folder.rules, ignore_file, folder.logical, ignore_file);
  }
  return true;
}

void FolderWalk::visit(const Folder& parent, const std::string& name, std::vector<Folder>& stack) {
  const std::string path = joined(parent.path, name);
  if (name == ".git") return skip(path, "version control data");
  if (name.starts_with('.') && !options_.hidden) return skip(path, "hidden");
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return skip_unreadable(path, errno);
  const bool is_folder = S_ISDIR(info.st_mode);
  const std::string logical = parent.logical + name;
  std::string ignored = parent.rules.reason(logical, is_folder);
  if (!ignored.empty()) return skip(path, std::move(ignored));
  if (S_ISLNK(info.st_mode)) {
    links_.push_back({path, logical, parent.rules});
  } else if (is_folder) {
    Folder folder{.path = path, .logical = logical + '/', .rules = parent.rules, .names = {}};
    if (enter(folder)) stack.push_back(std::move(folder));
  } else if (S_ISREG(info.st_mode)) {
    add_file(path, path, info, false);
  } else {
    skip(path, kNotRegular);
  }
}

void FolderWalk::follow(const Link& link, const std::string& root) {
  struct stat info {};
  if (::stat(link.path.c_str(), &info) != 0) {
    if (errno == ENOENT) return skip(link.path, "a link to nothing");
    if (errno == ELOOP) return skip(link.path, "a loop of links");
    return skip_unreadable(link.path, errno);
  }
  const std::string target = real_path(link.path);
  if (target.empty()) return skip_unreadable(link.path, errno);
  const std::string inside = with_slash(root);
  if (target != root && !target.starts_with(inside))
    return skip(link.path, "a link that leads out of the folder");
  std::string reason;
  if (target != root)
    reason = hidden_target_reason(std::string_view(target).substr(inside.size()), options_.hidden);
  if (!reason.empty()) return skip(link.path, std::move(reason));
  if (S_ISREG(info.st_mode)) return add_file(link.path, target, info, true);
  if (!S_ISDIR(info.st_mode)) return skip(link.path, kNotRegular);
  if (folders_.contains({info.st_dev, info.st_ino}))
    return skip(link.path, "a link to a folder already read");
  walk_folder({.path = link.path, .logical = link.logical + '/', .rules = link.rules, .names = {}});
}

void FolderWalk::add_file(const std::string& path, const std::string& target, const struct stat& info,
                          bool link) {
  const bool is_new = files_.insert({info.st_dev, info.st_ino}).second;
  // Several names of one file (hard links) are sources of their own; a second way to one name is not.
  if (!is_new && link) return skip(path, "a link to a file already read");
  if (!is_new && info.st_nlink == 1) return skip(path, "already read: named twice");
  on_file_({shown_name(path), target, static_cast<uint64_t>(std::max<off_t>(0, info.st_size))});
}

IgnoreRules FolderWalk::load_rules(const IgnoreRules& rules, const std::string& file, const std::string& base,
                                   const std::string& label) {
  if (!is_file(file)) return rules;  // as git: a link is not followed
  const auto content = read_text_file(file, kMostIgnoreFileBytes);
  if (!content.ok()) {
    skip(label, "its rules are not applied: " + content.error().message);
    return rules;
  }
  return rules.with(std::make_shared<IgnoreList>(base, shown_name(label), *content));
}

// The rules of the work tree that `folder` lies in, from its root down to the folder's parent.
IgnoreRules FolderWalk::rules_above(const std::string& folder) {
  IgnoreRules rules;
  if (!options_.ignore_files) return rules;
  std::string top = folder;
  struct stat info {};
  while (::lstat(joined(top, ".git").c_str(), &info) != 0) {
    if (top == "/" || top.empty()) return rules;
    top = top.substr(0, std::max<size_t>(1, top.rfind('/')));
  }
  const std::string exclude = joined(top, ".git/info/exclude");
  rules = load_rules(rules, exclude, with_slash(top), exclude);
  while (top != folder) {
    const std::string file = joined(top, ".gitignore");
    rules = load_rules(rules, file, with_slash(top), file);
    top = folder.substr(0, folder.find('/', with_slash(top).size()));
  }
  return rules;
}

}  // namespace rhapsode::text
