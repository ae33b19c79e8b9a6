#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "support/archive_writer.h"
#include "support/temporary_folder.h"
#include "text/reader.h"

namespace rhapsode::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

namespace fs = std::filesystem;

class ScanTest : public test::TemporaryFolder {
 protected:
  ScanTest() : before_(fs::current_path()) { fs::current_path(folder_); }
  ~ScanTest() override { fs::current_path(before_); }

  static void write(const fs::path& path, std::string_view content) {
    if (path.has_parent_path()) fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }

  Status scan(const std::vector<std::string>& paths, const ScanOptions& options = {}) {
    names_.clear();
    found_.clear();
    skips_.clear();
    sources_.clear();
    return scan_sources(paths, options,
                        {.on_source =
                             [this](SourceBytes source) {
                               names_.push_back(source.name);
                               sources_[source.name] = source;
                               return true;
                             },
                         .on_skip = [this](Skip skip) { skips_[skip.name] = skip.reason; },
                         .on_found = [this](const std::string& name, uint64_t) { found_.push_back(name); }});
  }

  std::vector<std::string> names_;
  std::vector<std::string> found_;
  std::map<std::string, std::string> skips_;
  std::map<std::string, SourceBytes> sources_;

 private:
  fs::path before_;
};

using test::content_of;
using test::Members;
using test::pack;
using test::Packing;

TEST_F(ScanTest, FoldersAreReadInOrderUnderTheNamesTheUserWrote) {
  write("docs/b.md", "b");
  write("docs/a/z.txt", "z");
  write("docs/a.txt", "a");
  ASSERT_TRUE(scan({"./docs/"}).ok());
  EXPECT_THAT(names_, ElementsAre("docs/a/z.txt", "docs/a.txt", "docs/b.md"));
  EXPECT_EQ(found_, names_);
  EXPECT_EQ(sources_["docs/b.md"].bytes, "b");
  EXPECT_THAT(sources_["docs/b.md"].modified, testing::MatchesRegex("2[0-9]{3}-..-..T..:..:..Z"));
  ASSERT_TRUE(scan({"."}).ok());
  EXPECT_THAT(names_, ElementsAre("docs/a/z.txt", "docs/a.txt", "docs/b.md"));
  ASSERT_TRUE(scan({(folder_ / "docs/b.md").string()}).ok());
  EXPECT_THAT(names_, ElementsAre((folder_ / "docs/b.md").string()));
}

TEST_F(ScanTest, AMissingPathIsAnErrorBeforeAnythingIsRead) {
  write("a.txt", "a");
  const Status status = scan({"a.txt", "none"});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(status.error().message, HasSubstr("none"));
  EXPECT_THAT(names_, IsEmpty());
  EXPECT_EQ(scan({""}).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_FALSE(scan({std::string("a.txt\0x", 7)}).ok());
}

TEST_F(ScanTest, IgnoreFilesHoldInTheirFoldersAndAreNamedInTheReason) {
  write("p/.gitignore", "build/\n*.log\n!keep.log\n");
  write("p/build/x.txt", "x");
  write("p/a.log", "a");
  write("p/keep.log", "k");
  write("p/sub/.gitignore", "!a.log\n");
  write("p/sub/a.log", "a");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, ElementsAre("p/keep.log", "p/sub/a.log"));
  EXPECT_EQ(skips_["p/build"], "ignored by p/.gitignore, line 1");
  EXPECT_EQ(skips_["p/a.log"], "ignored by p/.gitignore, line 2");
  EXPECT_EQ(skips_["p/.gitignore"], "hidden");
  ASSERT_TRUE(scan({"p"}, {.ignore_files = false}).ok());
  EXPECT_THAT(names_, ElementsAre("p/a.log", "p/build/x.txt", "p/keep.log", "p/sub/a.log"));
}

TEST_F(ScanTest, RulesOfTheWorkTreeAboveHoldInAFolderThatIsNamed) {
  fs::create_directories("repo/.git/info");
  write("repo/.git/info/exclude", "*.tmp\n");
  write("repo/.gitignore", "/src/gen/\n*.o\n");
  write("repo/src/gen/a.cpp", "int a;");
  write("repo/src/b.cpp", "int b;");
  write("repo/src/b.o", "o");
  write("repo/src/b.tmp", "t");
  ASSERT_TRUE(scan({"repo/src"}).ok());
  EXPECT_THAT(names_, ElementsAre("repo/src/b.cpp"));
  // A file or folder that is named itself is wanted.
  ASSERT_TRUE(scan({"repo/src/gen", "repo/src/b.o"}).ok());
  EXPECT_THAT(names_, ElementsAre("repo/src/gen/a.cpp", "repo/src/b.o"));
}

TEST_F(ScanTest, HiddenFilesAreReadOnlyOnRequestAndVersionControlNever) {
  write("p/.env", "secret");
  write("p/.config/a.txt", "a");
  write("p/.git/config", "[core]");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, IsEmpty());
  EXPECT_EQ(skips_["p/.env"], "hidden");
  ASSERT_TRUE(scan({"p"}, {.hidden = true}).ok());
  EXPECT_THAT(names_, ElementsAre("p/.config/a.txt", "p/.env"));
  EXPECT_EQ(skips_["p/.git"], "version control data");
}

TEST_F(ScanTest, LinksAreFollowedOnceAndNeverOutOfTheFolder) {
  write("p/a.txt", "a");
  write("p/sub/b.txt", "b");
  write("p/.hidden/c.txt", "c");
  write("outside/secret.txt", "s");
  fs::create_symlink("a.txt", "p/0-link-to-a");
  fs::create_directory_symlink(".", "p/loop");
  fs::create_directory_symlink("../../p", "p/sub/up");
  fs::create_directory_symlink("../outside", "p/out");
  fs::create_symlink("../outside/secret.txt", "p/out.txt");
  fs::create_symlink("self", "p/self");
  fs::create_symlink("nothing", "p/dangling");
  fs::create_symlink(".hidden/c.txt", "p/c.txt");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, ElementsAre("p/a.txt", "p/sub/b.txt"));
  EXPECT_EQ(skips_["p/0-link-to-a"], "a link to a file already read");
  EXPECT_EQ(skips_["p/loop"], "a link to a folder already read");
  EXPECT_EQ(skips_["p/sub/up"], "a link to a folder already read");
  EXPECT_EQ(skips_["p/out"], "a link that leads out of the folder");
  EXPECT_EQ(skips_["p/out.txt"], "a link that leads out of the folder");
  EXPECT_EQ(skips_["p/self"], "a loop of links");
  EXPECT_EQ(skips_["p/dangling"], "a link to nothing");
  EXPECT_EQ(skips_["p/c.txt"], "a link to something hidden");
}

TEST_F(ScanTest, ALinkToWhatIsNotReadOtherwiseIsFollowedUnderItsOwnName) {
  write("p/.gitignore", "store/\n");
  write("p/store/x/a.txt", "a");
  fs::create_directory_symlink("store/x", "p/current");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, ElementsAre("p/current/a.txt"));
  fs::create_symlink("p", "q");
  ASSERT_TRUE(scan({"q"}).ok());  // a link that is named itself
  EXPECT_THAT(names_, ElementsAre("q/current/a.txt"));
}

TEST_F(ScanTest, WhatIsNamedTwiceIsReadOnceButHardLinksAreTwoSources) {
  write("p/a.txt", "a");
  fs::create_hard_link("p/a.txt", "p/b.txt");
  write("p/c.txt", "c");
  ASSERT_TRUE(scan({"p", "p/c.txt", "./p/"}).ok());
  EXPECT_THAT(names_, ElementsAre("p/a.txt", "p/b.txt", "p/c.txt"));
  EXPECT_EQ(skips_["p/c.txt"], "already read: named twice");
  EXPECT_EQ(skips_["p"], "a folder already read: named twice, or a loop");
}

TEST_F(ScanTest, WhatHoldsNoTextIsSkippedWithAReasonAndTheRestIsRead) {  // case I3
  write("p/empty.txt", "");
  write("p/spaces.txt", " \n\t\r\n ");
  write("p/nul.txt", std::string(1000, '\0'));
  write("p/mark.txt", "\xEF\xBB\xBF");
  write("p/mark16.txt", "\xFF\xFE");
  write("p/one.txt", "x");
  write("p/z.md", "# good");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, ElementsAre("p/one.txt", "p/z.md"));
  for (const char* name : {"p/empty.txt", "p/spaces.txt", "p/nul.txt", "p/mark.txt", "p/mark16.txt"}) {
    EXPECT_EQ(skips_[name], "holds no text") << name;
  }
}

TEST_F(ScanTest, BinariesAndMinifiedFilesAreSkipped) {
  std::string elf(
      "\x7F"
      "ELF\x02\x01\x01\0\0\0\0\0\0\0\0\0",
      16);
  write("p/program", elf + std::string(5000, '\x90'));
  write("p/a.png", std::string("\x89PNG\r\n\x1A\n\0\0\0\rIHDR", 16));
  std::string minified;
  while (minified.size() < 100'000) minified += "function a(b,c){return b+c}var d=a(1,2);";
  write("p/bundle.js", minified);
  write("p/lib.min.js", "var a = 1;\n");
  write("p/data.txt", "key: " + std::string(30'000, 'Q') + "\n");
  std::string prose;  // a chapter in one line is prose all the same
  while (prose.size() < 60'000) prose += "It was a bright cold day in April, and the clocks were striking. ";
  write("p/prose.txt", prose);
  std::string chinese;
  while (chinese.size() < 60'000) chinese += "昨日は駅前の本屋で地図帳を買った。";
  write("p/chinese.txt", chinese);
  write("p/utf16.txt", std::string("\xFF\xFEh\0i\0", 6));
  write("p/latin.txt", "caf\xE9 na\xEFve");
  write("p/code.py", "def f(x):\n    return x\n");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, ElementsAre("p/chinese.txt", "p/code.py", "p/latin.txt", "p/prose.txt", "p/utf16.txt"));
  EXPECT_EQ(skips_["p/program"], "binary");
  EXPECT_EQ(skips_["p/a.png"], "binary");
  EXPECT_EQ(skips_["p/bundle.js"], "minified");
  EXPECT_EQ(skips_["p/lib.min.js"], "minified");
  EXPECT_EQ(skips_["p/data.txt"], "minified");
}

TEST_F(ScanTest, UnreadableFilesFoldersAndPipesAreSkippedWithTheSystemsReason) {
  write("p/locked.txt", "x");
  write("p/dir/x.txt", "x");
  write("p/ok.txt", "ok");
  ASSERT_EQ(::mkfifo("p/pipe", 0600), 0);
  if (::geteuid() != 0) {  // root reads everything
    fs::permissions("p/locked.txt", fs::perms::none);
    fs::permissions("p/dir", fs::perms::none);
  }
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(skips_["p/pipe"], HasSubstr("no regular file"));
  if (::geteuid() != 0) {
    EXPECT_THAT(names_, ElementsAre("p/ok.txt"));
    EXPECT_EQ(skips_["p/locked.txt"], "not readable: Permission denied");
    EXPECT_EQ(skips_["p/dir"], "not readable: Permission denied");
    fs::permissions("p/dir", fs::perms::all);
  }
  ASSERT_TRUE(scan({"p/pipe"}).ok());
  EXPECT_THAT(names_, IsEmpty());
}

TEST_F(ScanTest, AFileThatVanishesIsSkipped) {
  write("p/a.txt", "a");
  write("p/b.txt", "b");
  write("p/c.txt", "c");
  const std::vector<std::string> paths = {"p"};
  std::vector<std::string> names;
  std::map<std::string, std::string> skips;
  ASSERT_TRUE(scan_sources(paths, {},
                           {.on_source =
                                [&](SourceBytes source) {
                                  names.push_back(source.name);
                                  fs::remove("p/b.txt");
                                  return true;
                                },
                            .on_skip = [&](Skip skip) { skips[skip.name] = skip.reason; },
                            .on_found = {}})
                  .ok());
  EXPECT_THAT(names, ElementsAre("p/a.txt", "p/c.txt"));
  EXPECT_THAT(skips, ElementsAre(Pair("p/b.txt", "vanished")));
}

TEST_F(ScanTest, TheCallerCanStop) {
  for (const char* name : {"p/a.txt", "p/b.txt", "p/c.txt"}) write(name, "x");
  const std::vector<std::string> paths = {"p"};
  int count = 0;
  ASSERT_TRUE(
      scan_sources(
          paths, {},
          {.on_source = [&](const SourceBytes&) { return ++count < 2; }, .on_skip = {}, .on_found = {}})
          .ok());
  EXPECT_EQ(count, 2);
}

TEST_F(ScanTest, NamesThatAreNoUtf8AreShownAndTheFilesRead) {
  write(fs::path("p") / "bad\xFFname.txt", "x");
  write(fs::path("p") / "line\nfeed.txt", "y");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, ElementsAre("p/bad\\xffname.txt", "p/line\\x0afeed.txt"));
}

TEST_F(ScanTest, DeepFoldersNeedNoStack) {
  std::string path = "p";
  for (int i = 0; i < 150; ++i) path += "/d";
  fs::create_directories(path);
  write(path + "/deep.txt", "x");
  ASSERT_TRUE(scan({"p"}).ok());
  EXPECT_THAT(names_, ElementsAre(path + "/deep.txt"));
}

TEST_F(ScanTest, ArchivesAreReadByMember) {
  const Members members = {{"a.txt", "alpha"},       {"../../etc/passwd", "root:x"},
                           {"/abs/./b.txt", "beta"}, {"\xC3\xA9t\xC3\xA9.txt", "summer"},
                           {".hidden", "h"},         {"x.png", std::string("\x89PNG\r\n\x1A\n\0\0", 10)},
                           {"empty.txt", ""}};
  for (const auto& [name, packing] : {std::pair{"m.zip", Packing::kZip},
                                      {"m.tar.gz", Packing::kTarGz},
                                      {"m.tar.xz", Packing::kTarXz},
                                      {"m.tar.zst", Packing::kTarZst}}) {
    pack(name, packing, members);
    ASSERT_TRUE(scan({name}).ok());
    const std::string base = std::string(name) + '/';
    EXPECT_THAT(names_, ElementsAre(base + "a.txt", base + "etc/passwd", base + "abs/b.txt",
                                    base + "\xC3\xA9t\xC3\xA9.txt"));
    EXPECT_EQ(sources_[base + "a.txt"].bytes, "alpha");
    EXPECT_EQ(sources_[base + "a.txt"].modified, "2024-05-01T10:00:00Z");
    EXPECT_EQ(skips_[base + ".hidden"], "hidden");
    EXPECT_EQ(skips_[base + "x.png"], "binary");
    EXPECT_EQ(skips_[base + "empty.txt"], "holds no text");
  }
  EXPECT_FALSE(fs::exists("abs"));
  // Names that cannot be shown: the members are read all the same.
  pack("odd.zip", Packing::kZip, {{"..", "up"}, {"bad\xFF.txt", "bad"}});
  ASSERT_TRUE(scan({"odd.zip"}).ok());
  EXPECT_THAT(names_, ElementsAre("odd.zip/member 1", "odd.zip/member 2"));
}

TEST_F(ScanTest, ACompressedFileIsItsOnlyMember) {
  pack("notes.txt.gz", Packing::kGz, {{"ignored", "some notes"}});
  ASSERT_TRUE(scan({"notes.txt.gz"}).ok());
  EXPECT_THAT(names_, ElementsAre("notes.txt.gz/notes.txt"));
  EXPECT_EQ(sources_["notes.txt.gz/notes.txt"].bytes, "some notes");
}

TEST_F(ScanTest, ArchivesInsideArchivesAreNotOpenedButDocumentsAre) {
  pack("inner.zip", Packing::kZip, {{"a.txt", "a"}});
  pack("inner.tar.gz", Packing::kTarGz, {{"a.txt", "a"}});
  pack("doc.docx", Packing::kZip,
       {{"[Content_Types].xml", "<Types/>"}, {"word/document.xml", "<w:document/>"}});
  pack("outer.zip", Packing::kZip,
       {{"inner.zip", content_of("inner.zip")},
        {"inner.tar.gz", content_of("inner.tar.gz")},
        {"doc.docx", content_of("doc.docx")}});
  ASSERT_TRUE(scan({"outer.zip", "doc.docx"}).ok());
  EXPECT_THAT(names_, ElementsAre("outer.zip/doc.docx", "doc.docx"));
  EXPECT_EQ(sources_["doc.docx"].bytes, content_of("doc.docx"));
  EXPECT_EQ(skips_["outer.zip/inner.zip"], "an archive inside an archive");
  EXPECT_EQ(skips_["outer.zip/inner.tar.gz"], "an archive inside an archive");
}

TEST_F(ScanTest, DamagedArchivesCostOnlyThemselves) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i * 7919) + "\n";
  for (const auto& [name, packing] :
       {std::pair{"m.zip", Packing::kZip}, {"m.tar.gz", Packing::kTarGz}, {"m.tar.xz", Packing::kTarXz}}) {
    pack(name, packing, {{"a.txt", text}, {"b.txt", text}});
    const std::string whole = content_of(name);
    for (const double part : {0.02, 0.3, 0.7, 0.99}) {
      fs::create_directories("p");
      write(fs::path("p") / name,
            whole.substr(0, static_cast<size_t>(part * static_cast<double>(whole.size()))));
      write("p/z.txt", "good");
      ASSERT_TRUE(scan({"p"}).ok());
      ASSERT_FALSE(names_.empty()) << name << part;
      EXPECT_EQ(names_.back(), "p/z.txt");
      EXPECT_FALSE(skips_.empty()) << name << part;
      fs::remove_all("p");
    }
  }
}

TEST_F(ScanTest, ABombStopsAtALimit) {
  const std::string zeros(size_t{3} << 20, 'a');
  pack("bomb.tar.gz", Packing::kTarGz,
       {{"a.txt", zeros}, {"b.txt", zeros}, {"c.txt", zeros}, {"d.txt", zeros}, {"z.txt", "end"}});
  ASSERT_LT(fs::file_size("bomb.tar.gz"), 50u << 10);
  const ScanOptions options{.most_source_bytes = 1 << 20, .most_archive_bytes = 10 << 20};
  ASSERT_TRUE(scan({"bomb.tar.gz"}, options).ok());
  EXPECT_THAT(names_, IsEmpty());
  EXPECT_EQ(skips_["bomb.tar.gz/a.txt"], "larger than 1 MiB");
  EXPECT_THAT(skips_["bomb.tar.gz"], HasSubstr("expands to more than 10 MiB"));
}

// Peak resident memory of the process since the last call, in MiB; 0: the system does not tell.
uint64_t peak_mib() {
  uint64_t kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) kib = std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return kib >> 10;
}

TEST_F(ScanTest, HugeFilesAreSkippedWithoutBeingRead) {  // case I11
  write("p/bundle.js", "function a(b){return b}");
  fs::resize_file("p/bundle.js", size_t{200} << 20);
  write("p/below.js", std::string(size_t{60} << 20, 'x'));
  pack("p/big.tar.gz", Packing::kTarGz,
       {{"huge.js", std::string(size_t{65} << 20, 'x')}, {"small.txt", "small"}});
  peak_mib();
  ASSERT_TRUE(scan({"p"}).ok());
  const uint64_t peak = peak_mib();
  EXPECT_LT(peak, 300u);
  EXPECT_THAT(names_, ElementsAre("p/big.tar.gz/small.txt"));
  EXPECT_EQ(skips_["p/bundle.js"], "larger than 64 MiB");
  EXPECT_EQ(skips_["p/below.js"], "minified");
  EXPECT_EQ(skips_["p/big.tar.gz/huge.js"], "larger than 64 MiB");
}

TEST_F(ScanTest, StandardInputIsASourceAndMayBeAnArchive) {
  const int saved = ::dup(STDIN_FILENO);
  const auto with_input = [&](const fs::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
    const Status status = scan({"-", "-"});
    ::dup2(saved, STDIN_FILENO);
    return status;
  };
  write("in.txt", "from a pipe");
  ASSERT_TRUE(with_input("in.txt").ok());
  EXPECT_THAT(names_, ElementsAre("-"));
  EXPECT_EQ(sources_["-"].bytes, "from a pipe");
  pack("in.zip", Packing::kZip, {{"a.txt", "alpha"}});
  ASSERT_TRUE(with_input("in.zip").ok());
  EXPECT_THAT(names_, ElementsAre("-/a.txt"));
  ::close(saved);
}

}  // namespace
}  // namespace rhapsode::text
