#include "text/gitignore.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "io/child_process.h"
#include "support/temporary_folder.h"

namespace rhapsode::text {
namespace {

using Verdict = IgnoreList::Verdict;

struct Case {
  const char* rules;
  const char* path;
  bool is_folder;
  Verdict verdict;
};

TEST(Gitignore, FollowsTheManual) {
  const Case cases[] = {
      {"*.o", "a.o", false, Verdict::kIgnored},
      {"*.o", "x/y/a.o", false, Verdict::kIgnored},
      {"*.o", "a.obj", false, Verdict::kNone},
      {"/*.o", "x/a.o", false, Verdict::kNone},
      {"/*.o", "a.o", false, Verdict::kIgnored},
      {"build/", "build", true, Verdict::kIgnored},
      {"build/", "x/build", true, Verdict::kIgnored},
      {"build/", "build", false, Verdict::kNone},
      {"doc/frotz/", "doc/frotz", true, Verdict::kIgnored},
      {"doc/frotz/", "a/doc/frotz", true, Verdict::kNone},
      {"doc/*", "doc/a", false, Verdict::kIgnored},
      {"doc/*", "doc/a/b", false, Verdict::kNone},
      {"**/foo", "foo", false, Verdict::kIgnored},
      {"**/foo", "a/b/foo", false, Verdict::kIgnored},
      {"**/foo/bar", "a/foo/bar", false, Verdict::kIgnored},
      {"abc/**", "abc/x/y", false, Verdict::kIgnored},
      {"abc/**", "abc", true, Verdict::kNone},
      {"a/**/b", "a/b", false, Verdict::kIgnored},
      {"a/**/b", "a/x/y/b", false, Verdict::kIgnored},
      {"a/**/b", "a/xb", false, Verdict::kNone},
      {"*.log\n!keep.log", "keep.log", false, Verdict::kKept},
      {"!keep.log\n*.log", "keep.log", false, Verdict::kIgnored},
      {"# note\n\n\\#x", "#x", false, Verdict::kIgnored},
      {"\\!x", "!x", false, Verdict::kIgnored},
      {"x  ", "x", false, Verdict::kIgnored},
      {"x\\ ", "x ", false, Verdict::kIgnored},
      {"x\r\n", "x", false, Verdict::kIgnored},
      {"\xEF\xBB\xBFx", "x", false, Verdict::kIgnored},
      {"[a-c]?z", "bqz", false, Verdict::kIgnored},
      {"[!a-c]z", "bz", false, Verdict::kNone},
      {"[[:digit:]]*", "7up", false, Verdict::kIgnored},
      {"[]x]y", "]y", false, Verdict::kIgnored},
      {"[ab", "[ab", false, Verdict::kNone},
      {"a\\*b", "a*b", false, Verdict::kIgnored},
      {"a\\*b", "axb", false, Verdict::kNone},
      {"trailing\\", "trailing\\", false, Verdict::kNone},
      {"/", "a", true, Verdict::kNone},
  };
  for (const Case& c : cases) {
    const IgnoreList list("", ".gitignore", c.rules);
    EXPECT_EQ(list.match(c.path, c.is_folder).verdict, c.verdict) << c.rules << " against " << c.path;
  }
}

TEST(Gitignore, AListBelongsToItsFolder) {
  const IgnoreList list("docs/", "docs/.gitignore", "/a\nb");
  EXPECT_EQ(list.match("docs/a", false).verdict, Verdict::kIgnored);
  EXPECT_EQ(list.match("a", false).verdict, Verdict::kNone);
  EXPECT_EQ(list.match("docs/x/a", false).verdict, Verdict::kNone);
  EXPECT_EQ(list.match("docs/x/b", false).line, 2);
}

TEST(Gitignore, TheInnermostListWins) {
  const IgnoreRules outer = IgnoreRules().with(std::make_shared<IgnoreList>("", ".gitignore", "*.txt"));
  const IgnoreRules inner = outer.with(std::make_shared<IgnoreList>("d/", "d/.gitignore", "!*.txt\n*.md"));
  EXPECT_EQ(outer.reason("d/a.txt", false), "ignored by .gitignore, line 1");
  EXPECT_EQ(inner.reason("d/a.txt", false), "");
  EXPECT_EQ(inner.reason("d/a.md", false), "ignored by d/.gitignore, line 2");
}

TEST(Gitignore, HostilePatternsCostNoMoreThanTheirLength) {
  std::string pattern;
  for (int i = 0; i < 2000; ++i) pattern += "*a";
  const GlobPattern stars(pattern + "b", false);
  EXPECT_FALSE(stars.matches(std::string(2000, 'a')));
  std::string folders;
  for (int i = 0; i < 300; ++i) folders += "**/a/";
  std::string path;
  for (int i = 0; i < 600; ++i) path += "a/";
  EXPECT_FALSE(GlobPattern(folders + "b", true).matches(path));
}

// Random rules over a random tree, judged by git itself.
class GitCheckIgnore : public test::TemporaryFolder {
 protected:
  std::string pick(const std::vector<std::string>& from) { return from[random_() % from.size()]; }
  std::string random_pattern() {
    std::string pattern = random_() % 4 == 0 ? "!" : "";
    if (random_() % 4 == 0) pattern += "/";
    const size_t parts = 1 + random_() % 3;
    for (size_t i = 0; i < parts; ++i) {
      if (i > 0) pattern += pick({"/", "/", "/**/", ""});
      pattern += pick({"a",   "b",    "c",    "ab",      "*",   "?",    "**",   "a*",
                       "*b",  "[ab]", "[!a]", "[a-",     "\\a", "a\\*", "*b*",  "[[:alpha:]]b",
                       "***", "a**",  "**b",  "[^b-z]*", "c ",  "[]a]", "x**y", "[b\\]]"});
    }
    if (random_() % 5 == 0) pattern += pick({"/", "/**", " ", "\\ ", "//"});
    return pattern;
  }
  // The tree: a path, and whether it is a folder.
  void make_paths() {
    const std::vector<std::string> names = {"a", "b", "c", "ab", "abc", "ba", "c ", "a*", "xay", "]"};
    for (const std::string& one : names) {
      for (const std::string& two : names) {
        std::filesystem::create_directories(folder_ / one / two);
        for (const char* three : {"a", "b", "ab", "c ", "xy"}) {
          paths_.emplace_back(one + '/' + two + '/' + three, false);
          std::ofstream(folder_ / paths_.back().first) << "x";
        }
        paths_.emplace_back(one + '/' + two, true);
      }
      paths_.emplace_back(one, true);
    }
    for (const auto& [path, is_folder] : paths_) input_ += path + '\0';
  }
  Result<ChildOutput> git(std::vector<std::string> arguments, std::string_view input) {
    arguments.insert(arguments.begin(), {"git", "-c", "core.excludesFile=", "-C", folder_.string()});
    RH_TRY(const int descriptor, memory_file(input));
    auto output = run_child(arguments, descriptor);
    ::close(descriptor);
    return output;
  }
  // The line that decides by our rules; git asks parents first.
  static int deciding_line(const IgnoreList& list, const std::string& path, bool is_folder) {
    for (size_t slash = path.find('/');; slash = path.find('/', slash + 1)) {
      const bool whole = slash == std::string::npos;
      const auto match = list.match(path.substr(0, slash), whole ? is_folder : true);
      if (whole || match.verdict == Verdict::kIgnored) return match.line;
    }
  }

  std::vector<std::pair<std::string, bool>> paths_;
  std::string input_;  // for git: every path, ended by NUL
  std::mt19937 random_{20240601};
};

TEST_F(GitCheckIgnore, AgreesOnRandomRules) {
  make_paths();
  const auto made = git({"init", "-q"}, "");
  if (!made.ok()) GTEST_SKIP() << "git is not installed";
  ASSERT_EQ(made->exit_code, 0) << made->errors;
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    std::string rules;
    for (size_t i = 0; i < 1 + static_cast<size_t>(round) % 5; ++i) rules += random_pattern() + "\n";
    std::ofstream(folder_ / ".gitignore") << rules;
    const auto output =
        git({"check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching"}, input_);
    ASSERT_TRUE(output.ok());
    ASSERT_LE(output->exit_code, 1) << output->errors;
    const IgnoreList list("", ".gitignore", rules);
    // Four fields a path, each ended by NUL: source, line, pattern, path.
    std::string_view rest = output->output;
    const auto field = [&] {
      const std::string_view value = rest.substr(0, rest.find('\0'));
      rest.remove_prefix(value.size() + 1);
      return value;
    };
    for (const auto& [path, is_folder] : paths_) {
      ASSERT_FALSE(rest.empty());
      field();
      const std::string line(field());
      field();
      ASSERT_EQ(field(), path);
      EXPECT_EQ(line.empty() ? 0 : std::stoi(line), deciding_line(list, path, is_folder))
          << "rules:\n"
          << rules << "path: " << path;
    }
  }
}

}  // namespace
}  // namespace rhapsode::text
