#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/readers.h"

namespace rhapsode::text {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Document read(const std::string& name, const std::string& text) {
  auto document = read_code(name, text);
  EXPECT_TRUE(document.ok());
  EXPECT_EQ(document->text, text);
  EXPECT_EQ(document->kind, DocumentKind::kCode);
  const auto begins_before = [](const Section& a, const Section& b) { return a.begin < b.begin; };
  EXPECT_TRUE(std::is_sorted(document->sections.begin(), document->sections.end(), begins_before));
  for (const Section& section : document->sections)
    EXPECT_LT(section.begin, std::max<size_t>(text.size(), 1));
  return *std::move(document);
}

// The path of the section that `needle` stands in.
std::string path_of(const Document& document, const std::string& needle) {
  const size_t at = document.text.find(needle);
  EXPECT_NE(at, std::string::npos) << needle;
  std::string path;
  for (const Section& section : document.sections) {
    if (section.begin <= at) path = section.path;
  }
  return path;
}

TEST(CodeReader, Cpp) {
  const Document document = read("src/parser.cpp", R"source(#include "parser.h"
#define OPEN {
namespace a::b {
// Reads text.
template <typename T>
class Parser : public Base<T> {
 public:
  explicit Parser(int x) : x_{x} { reset(); }
  /* } in a comment */
  Status parse(std::string_view text) const override {
    if (text.empty()) { return "}"; }
    return R"(})" + '}';  // inner
  }
  bool operator()(int a) {
    return a > 1'000;  // call
  }
 private:
  int x_;  // member
};

static const int kTable[] = {1, 2, 3};  // table

Result<void> Parser::run(int a,
                         int b) {
  auto f = [&] { return a; };
  return f();  // body
}

TEST(Parser, Reads) {
  EXPECT_TRUE(true);
}
enum class Kind { kA, kB };
struct Point* make_point(int x) {
  return nullptr;
}
}  // namespace a::b
)source");
  EXPECT_EQ(path_of(document, "// Reads text."), "class Parser");
  EXPECT_EQ(path_of(document, "// inner"), "class Parser > parse()");
  EXPECT_EQ(path_of(document, "// call"), "class Parser > operator()");
  EXPECT_EQ(path_of(document, "// member"), "class Parser");
  EXPECT_EQ(path_of(document, "// table"), "");
  EXPECT_EQ(path_of(document, "// body"), "Parser::run()");
  EXPECT_EQ(path_of(document, "EXPECT_TRUE"), "TEST(Parser, Reads)");
  EXPECT_EQ(path_of(document, "return nullptr"), "make_point()");
  EXPECT_EQ(path_of(document, "}  // namespace"), "");
}

TEST(CodeReader, Python) {
  const Document document = read("a.py", R"source(import os
"""
def not_a_function():
"""

# About the class.
@decorated
class Parser(Base):
    name = "x"

    async def parse(
        self,
    ) -> int:
        text = """
class Inner:
"""
        return text  # body

    def empty(self): pass

def outer():
    def inner():
        return 1
    return inner  # of outer

if __name__ == "__main__":
    outer()  # main
)source");
  EXPECT_EQ(path_of(document, "def not_a"), "");
  EXPECT_EQ(path_of(document, "# About the class"), "class Parser");
  EXPECT_EQ(path_of(document, "name ="), "class Parser");
  EXPECT_EQ(path_of(document, "# body"), "class Parser > parse()");
  EXPECT_EQ(path_of(document, "return 1"), "outer() > inner()");
  EXPECT_EQ(path_of(document, "# of outer"), "outer()");
  EXPECT_EQ(path_of(document, "# main"), "");
}

TEST(CodeReader, OtherLanguages) {
  EXPECT_EQ(
      path_of(read("a.go",
                   "package a\n\ntype P struct {\n\tx int\n}\n\nfunc (p *P) Run(a int) error {\n\treturn "
                   "nil // here\n}\n"),
              "// here"),
      "(p *P) Run()");
  EXPECT_EQ(path_of(read("a.rs",
                         "impl<'a> Read for File<'a> {\n    fn read(&self, c: char) -> u8 {\n        if c == "
                         "'{' { return 1 } // here\n        0\n    }\n}\n"),
                    "// here"),
            "impl<'a> Read for File<'a> > read()");
  EXPECT_EQ(
      path_of(read("a.ts",
                   "import x from 'x'\nexport const parse = async (a: string) => {\n  return `{${a}` // "
                   "here\n}\n"),
              "// here"),
      "parse()");
  EXPECT_EQ(path_of(read("a.js",
                         "describe('x', () => {\n  it('does', function () {\n    go() // here\n  })\n})\n"
                         "class A extends B {\n  run(x) {\n    return x // there\n  }\n}\n"),
                    "// there"),
            "class A > run()");
  EXPECT_EQ(
      path_of(read("A.java",
                   "package a;\n@Entity\npublic final class A extends B {\n  @Override\n  public String "
                   "name() throws E {\n    return \"{\"; // here\n  }\n}\n"),
              "// here"),
      "class A > name()");
}

TEST(CodeReader, ScriptsAndOthers) {
  EXPECT_EQ(
      path_of(read("a.rb",
                   "module M\n  class A < B\n    def self.run(x)\n      x # here\n    end\n\n    X = 1\n"
                   "  end\nend\n"),
              "# here"),
      "module M > class A > self.run()");
  EXPECT_EQ(path_of(read("a.sh", "#!/bin/sh\nset -e\n\n# Builds.\nbuild() {\n  make  # here\n}\n\nbuild\n"),
                    "# here"),
            "build()");
  EXPECT_EQ(path_of(read("a.cs",
                         "namespace N\n{\n    public class A : B\n    {\n        public int Run(int x)\n"
                         "        {\n            return x; // here\n        }\n    }\n}\n"),
                    "// here"),
            "class A > Run()");
  EXPECT_EQ(path_of(read("a.php",
                         "<?php\nclass A {\n  public function run($x) {\n    return '}'; # here\n  }\n}\n"),
                    "# here"),
            "class A > run()");
  EXPECT_EQ(
      path_of(read("a.kt",
                   "class A(val x: Int) : B() {\n    fun run(): Int {\n        return x // here\n    }\n"
                   "}\n"),
              "// here"),
      "class A > run()");
  EXPECT_EQ(path_of(read("a.swift",
                         "struct A {\n    func run(_ x: Int) -> Int {\n        return x // here\n    }\n}\n"),
                    "// here"),
            "struct A > run()");
  EXPECT_EQ(path_of(read("a.sql", "CREATE TABLE users (\n  id INT -- here\n);\n\nSELECT 1;\n"), "-- here"),
            "CREATE TABLE users");
  EXPECT_EQ(path_of(read("a.lua", "local function run(x)\n  return x -- here\nend\n"), "-- here"), "run()");
  EXPECT_EQ(path_of(read("a.toml", "[package]\nname = \"x\" # here\n"), "# here"), "[package]");
}

TEST(CodeReader, NamesLanguagesByEndingOrInterpreter) {
  EXPECT_EQ(code_language("src/a.CPP", ""), "cpp");
  EXPECT_EQ(code_language("a.min.js", ""), "javascript");
  EXPECT_EQ(code_language("run", "#!/usr/bin/env python3\n"), "python");
  EXPECT_EQ(code_language("folder.d/Makefile", ""), "config");
  EXPECT_EQ(code_language("a.txt", ""), "");
  EXPECT_EQ(code_language("README", ""), "");
}

TEST(CodeReader, UnbalancedAndDeepInputIsReadInLinearTime) {
  std::string deep;
  for (int i = 0; i < 300000; ++i) deep += "class A { ";
  EXPECT_LE(read("a.cpp", deep).sections.size(), 64u);
  EXPECT_THAT(read("a.cpp", std::string(1000000, '}')).sections, IsEmpty());
  EXPECT_THAT(read("a.cpp", "R\"(" + std::string(1000000, '"')).sections, IsEmpty());
  std::string nested;
  for (int i = 0; i < 1500; ++i) nested += std::string(static_cast<size_t>(i), ' ') + "def f():\n";
  read("a.py", nested);
  std::string comments;
  for (int i = 0; i < 100000; ++i) comments += "// note\n";
  for (int i = 0; i < 10000; ++i) comments += "void f() {\n  g();\n}\n";
  EXPECT_GE(read("a.cpp", comments).sections.size(), 10000u);
}

TEST(CodeReader, AMinifiedLineIsWalkedOverOnce) {
  std::string line, strings;
  for (int i = 0; i < 300000; ++i) line += "class A{f(){return 1}}";
  for (int i = 0; i < 1000000; ++i) strings += "R\" ";
  const Document document = read("a.js", line + "\n" + line);
  EXPECT_LE(document.sections.size(), 4u);
  read("a.cpp", strings);
}

TEST(CodeReader, AnyBytesGiveOrderedSections) {
  std::mt19937 random(3);
  const std::vector<std::string> units = {"class A {\n",
                                          "def f():\n",
                                          "}\n",
                                          "(",
                                          ")",
                                          "\"",
                                          "'",
                                          "\\",
                                          "/*",
                                          "*/",
                                          "//",
                                          "#",
                                          "\n",
                                          "    ",
                                          "int f(int x) ",
                                          "=",
                                          "=>",
                                          ";",
                                          "`",
                                          "R\"x(",
                                          "\"\"\"",
                                          "\xFF",
                                          std::string(1, '\0'),
                                          "end\n",
                                          "template <",
                                          ">",
                                          "operator",
                                          ":"};
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (size_t i = random() % 200; i > 0; --i) text += units[random() % units.size()];
    for (const char* name :
         {"a.cpp", "a.py", "a.rs", "a.js", "a.cs", "a.sql", "a.toml", "a.rb", "a.sh", "a.go"}) {
      read(name, text);
    }
  }
}

}  // namespace
}  // namespace rhapsode::text
