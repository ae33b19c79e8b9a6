"""check_readme.py must find commands, options, targets and links that do not exist, and runs that fail."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """#!/bin/bash
case "$1 $2" in
  "generate --help") echo "  --model MODEL   -n, --max-tokens N" ;;
  "pull smollm2-135m") echo "pulled" ;;
  "pull silent") ;;
  "pull --help") echo "--list" ;;
  *) echo "no such thing" >&2; exit 2 ;;
esac
"""


class CheckReadme(unittest.TestCase):
    def check(self, text, **environment):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "rhapsode"
            program.write_text(PROGRAM)
            program.chmod(0o755)
            page = Path(folder) / "page.md"
            page.write_text(text)
            env = {k: v for k, v in os.environ.items() if not k.startswith("RHAPSODE_")}
            result = subprocess.run([sys.executable, ROOT / "scripts" / "check_readme.py", folder, page],
                                    env={**env, **environment}, capture_output=True, text=True, check=False)
            return result.returncode, result.stdout

    def assert_error(self, text, message, **environment):
        code, output = self.check(text, **environment)
        self.assertEqual(code, 1, output)
        self.assertIn(message, output)

    def test_a_true_page_passes(self):
        page = ("```sh\nmake test\nbuild/rhapsode generate --model m -n 3 \"hi --there\"  # --note\n```\n"
                "<!-- tested -->\n```sh\nbuild/rhapsode pull smollm2-135m\n```\n[page](page.md)\n")
        self.assertEqual(self.check(page), (0, "check_readme: 1 commands run, 0 errors\n"))

    def test_what_does_not_exist_is_named(self):
        self.assert_error("```sh\nmake nothing\n```\n", "make nothing")
        self.assert_error("```sh\nbuild/rhapsode generate --modl m\n```\n", "no option --modl")
        self.assert_error("```sh\nrhapsode destroy\n```\n", "rhapsode destroy --help' fails")
        self.assert_error("see [this](nowhere.md)\n", "nowhere.md leads nowhere")

    def test_failing_and_silent_runs_are_errors(self):
        self.assert_error("<!-- tested -->\n```sh\nbuild/rhapsode pull unknown\n```\n", "exits 2: no such thing")
        self.assert_error("<!-- tested -->\n```sh\nbuild/rhapsode pull silent\n```\n", "prints nothing")

    def test_models_may_be_absent_only_where_nobody_requires_them(self):
        page = "<!-- tested: smollm2-135m -->\n```sh\nbuild/rhapsode pull smollm2-135m\n```\n"
        self.assertEqual(self.check(page)[0], 0)
        self.assert_error(page, "smollm2-135m is missing", RHAPSODE_REQUIRE_MODELS="1")


if __name__ == "__main__":
    unittest.main()
