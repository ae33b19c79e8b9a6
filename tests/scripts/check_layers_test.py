"""check_layers.py must accept a good tree and name every kind of violation in a bad one."""

import copy
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402
from checks import cpp_source  # noqa: E402

CONFIG = tomllib.loads((ROOT / "scripts" / "check_layers.toml").read_text())
CONFIG["exception"] = []

GOOD = {
    "include/rhapsode/engine.h": "// The engine.\n#pragma once\n#include <string>\n#include \"rhapsode/result.h\"\n",
    "include/rhapsode/result.h": "#pragma once\n#include <variant>\n",
    "src/base/clock.h": "#pragma once\n",
    "src/kernels/page.h": '#pragma once\n#include "base/clock.h"\n',
    "src/kernels/cuda/page.cu": '#include <cuda_runtime.h>\n#include "kernels/page.h"\n',
    "src/store/pool.cpp": '#include "kernels/page.h"\n// #include "model/forward.h"\n',
    "src/model/forward.h": '#pragma once\n#include "kernels/page.h"\n',
    "src/engine/engine.cpp": '#include "model/forward.h"\n#include "store/pool.h"\n#include "rhapsode/engine.h"\n',
    "src/store/pool.h": "#pragma once\n",
}


def violations(files, config=CONFIG):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in {**GOOD, **files}.items():
            if text is not None:
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text)
        return check_layers.check(folder, config)[1]


def function_of(lines):
    return "int long_one() {\n" + "  step();\n" * (lines - 2) + "}\n"


class Trees(unittest.TestCase):
    def assert_only(self, rule, path, files, config=CONFIG):
        found = violations(files, config)
        self.assertEqual([(v[0], v[1]) for v in found], [(rule, path)], found)

    def test_a_good_tree_passes(self):
        self.assertEqual(violations({}), [])

    def test_lower_modules_may_not_include_higher_ones(self):
        for path, include in [
            ("src/base/clock.cpp", "kernels/page.h"),
            ("src/kernels/page.cpp", "model/forward.h"),
            ("src/model/forward.cpp", "store/pool.h"),
            ("src/store/pool_test.cpp", "model/forward.h"),
            ("src/model/forward.cpp", "engine/engine.h"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_only("layer", path, {path: f'#include "{include}"\n', "src/engine/engine.h": "#pragma once\n"})

    def test_a_single_allowed_header_opens_no_other(self):
        files = {"src/kernels/rope.h": "#pragma once\n", "src/store/pool.cpp": '#include "kernels/rope.h"\n'}
        self.assert_only("layer", "src/store/pool.cpp", files)

    def test_unknown_modules_and_files_are_named(self):
        self.assert_only("layer", "src/misc/a.cpp", {"src/misc/a.cpp": "int a;\n"})
        self.assert_only("layer", "src/model/a.cpp", {"src/model/a.cpp": '#include "base/nothing.h"\n'})
        self.assert_only("layer", "src/model/a.cpp", {"src/model/a.cpp": '#include "../base/clock.h"\n'})

    def test_cuda_stays_in_its_folder(self):
        self.assert_only("layer", "src/kernels/page.cpp", {"src/kernels/page.cpp": "#include <cuda_fp16.h>\n"})
        self.assert_only("layer", "src/kernels/page.cu", {"src/kernels/page.cu": "int a;\n"})

    def test_public_headers_are_few_and_plain(self):
        path = "include/rhapsode/engine.h"
        self.assert_only("layer", path, {path: "#pragma once\n#include <nlohmann/json.hpp>\n"})
        self.assert_only("layer", path, {path: '#pragma once\n#include "base/clock.h"\n'})
        many = {f"include/rhapsode/h{i}.h": "#pragma once\n" for i in range(9)}
        self.assert_only("layer", "include/rhapsode/", many)

    def test_budgets(self):
        path = "src/model/a.cpp"
        self.assert_only("source_lines", path, {path: "int a;\n" * 601})
        self.assert_only("header_lines", "src/model/a.h", {"src/model/a.h": "#pragma once\n" + "int f();\n" * 250})
        self.assert_only("function_lines", path, {path: function_of(61)})
        self.assertEqual(violations({path: function_of(60)}), [])
        self.assertEqual(violations({"src/kernels/a.cpp": function_of(120)}), [])
        self.assert_only("function_lines", "src/kernels/a.cpp", {"src/kernels/a.cpp": function_of(121)})
        self.assert_only("parameters", path, {path: "void f(int a, int b, int c, int d, int e, int f, int g) {}\n"})
        self.assert_only("columns", path, {path: "// " + "x" * 108 + "\n"})
        self.assertEqual(violations({path: "// " + "ü" * 107 + "\n"}), [])

    def test_guards_and_words(self):
        self.assert_only("pragma_once", "src/model/a.h", {"src/model/a.h": "#ifndef A_H\n#define A_H\n#endif\n"})
        self.assert_only("pragma_once", "src/kernels/a-inl.h", {"src/kernels/a-inl.h": "#pragma once\n"})
        self.assert_only("words", "docs/a.md", {"docs/a.md": "see /home/somebody/notes\n"})
        self.assert_only("words", "src/model/a.cpp", {"src/model/a.cpp": "// TODO: later\n"})
        self.assertEqual(violations({"docs/a.md": "$HOME/x, /usr/local/home/x and ~/work/x are nobody's\n"}), [])

    def test_exceptions_need_a_reason_and_a_use(self):
        config = copy.deepcopy(CONFIG)
        path = "src/model/a.cpp"
        exception = {"rule": "function_lines", "path": path, "name": "long_one", "reason": "one table"}
        config["exception"] = [exception]
        self.assertEqual(violations({path: function_of(61)}, config), [])
        self.assert_only("exception", path, {}, config)
        exception["reason"] = " "
        self.assert_only("exception", path, {path: function_of(61)}, config)


SOURCE = """
#define MACRO(x) \\
  void not_a_function(x) {
namespace a { namespace {
// void commented() {
const char* text = "void quoted() {"; const char brace = '{'; int million = 1'000'000;
const char* raw = R"x(void raw() { )x";
struct Plain { int x = f(1); std::array<int, 2> y{1, 2}; int size() const { return 2; } };
class Base : public std::function<int(int, int)> {
 public:
  Base(int a, std::map<int, int> b) : a_{a}, b_(std::move(b)), c_{} {
    if (a) { a_ = 2; }
  }
  virtual int pure(int, int = std::max(1, 2)) = 0;
  bool operator==(const Base& other) const { return true; }
  int operator()(int a, int b) { return a; }
  explicit operator bool() const { return true; }
};
template <typename T, int N = (3 > 2)>
  requires (N > 1)
auto trailing(T t, std::function<int(int, int)> f, int x) -> std::pair<int, int> {
  auto inner = [&](int y) { return y; };
  return {1, 2};
}
struct Tag make_tag(int a) { return {}; }
constexpr int kTable[] = {1, 2, 3};
enum class Kind : uint8_t { kA, kB };
const auto kLambda = [](int x) {
  return x;
};
}  // namespace
}  // namespace a
TEST(Suite, Name) {
  EXPECT_EQ(1, 1);
}
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return 0; }
"""


class Parser(unittest.TestCase):
    def test_functions_are_found_with_lines_and_parameters(self):
        found = {f.name: (f.lines, f.parameters) for f in cpp_source.functions(SOURCE)}
        self.assertEqual(
            found,
            {
                "size": (1, 0),
                "Base": (3, 2),
                "pure": (0, 2),
                "operator==": (1, 1),
                "operator()": (1, 2),
                "operator bool": (1, 0),
                "trailing": (6, 3),
                "make_tag": (1, 1),
                "kLambda": (3, 0),
                "TEST(Suite, Name)": (3, 0),
                "LLVMFuzzerTestOneInput": (1, 2),
            },
        )

    def test_includes_in_comments_and_strings_do_not_count(self):
        text = '#include <a>\n// #include "b"\n/*\n#include "c"\n*/\n  #  include "d/e.h"\nconst char* s = R"(\n#include "f"\n)";\n'
        self.assertEqual([(i.line, i.path, i.quoted) for i in cpp_source.includes(text)], [(1, "a", False), (6, "d/e.h", True)])


if __name__ == "__main__":
    unittest.main()
