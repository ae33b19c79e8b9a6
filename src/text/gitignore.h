// Ignore files with git's own rules (gitignore(5)): negation, anchoring, "**", trailing slashes, escapes,
// character classes, case kept.
//
// A pattern list belongs to the folder its file lies in; which list wins is IgnoreRules' matter: the last
// matching line of the innermost file. Bytes are compared, as git does, not code points. Cost of one match:
// O(pattern × name), whatever the pattern (no backtracking). Threads: const members from any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::text {

// One wildcard pattern, compiled. With `path` set, '*', '?' and classes stop at '/', and "**" stands for any
// number of folders; without it, '*' stands for anything.
class GlobPattern {
 public:
  GlobPattern(std::string_view pattern, bool path);
  bool matches(std::string_view text) const;

 private:
  enum class Kind : uint8_t { kOneOf, kStar, kAnything, kFolders };
  struct Token {
    Kind kind = Kind::kOneOf;
    std::bitset<256> bytes;  // of kOneOf
  };
  bool add_class(std::string_view pattern, size_t& at, bool path);
  void add_stars(std::string_view pattern, size_t& at, bool path);
  void add_byte(unsigned char byte);

  std::vector<Token> tokens_;
  bool possible_ = true;  // false: malformed, matches nothing
};

// The patterns of one ignore file.
class IgnoreList {
 public:
  // `base` is the folder of the file as a path prefix: "" or "docs/". `label` names the file in reasons.
  IgnoreList(std::string base, std::string label, std::string_view content);

  enum class Verdict : uint8_t { kNone, kIgnored, kKept };
  struct Match {
    Verdict verdict = Verdict::kNone;
    int line = 0;  // of the ignore file, from 1
  };
  // `path` with '/' between folders, beginning with `base`.
  Match match(std::string_view path, bool is_folder) const;
  const std::string& label() const { return label_; }

 private:
  struct Rule {
    int line = 0;
    bool negated = false;
    bool folders_only = false;
    bool name_only = false;  // no '/' in it: matches at any depth
    std::string literal;     // the part before the first wildcard
    bool whole = false;      // literal is all there is
    GlobPattern rest;
  };
  void add_line(std::string_view line, int number);
  static bool matches(const Rule& rule, std::string_view relative, std::string_view name);

  std::string base_;
  std::string label_;
  std::vector<Rule> rules_;
};

// The lists that hold in one folder, outermost first; a child folder's rules share its parents'.
class IgnoreRules {
 public:
  // These rules and one list more, which wins over them.
  IgnoreRules with(std::shared_ptr<const IgnoreList> list) const;
  // Why `path` is ignored: "ignored by docs/.gitignore, line 3"; empty: it is not.
  std::string reason(std::string_view path, bool is_folder) const;

 private:
  std::vector<std::shared_ptr<const IgnoreList>> lists_;
};

}  // namespace rhapsode::text
