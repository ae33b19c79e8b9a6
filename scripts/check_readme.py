#!/usr/bin/env python3
"""The README tells the truth: its commands exist, and the cheap ones are run.

    check_readme.py BUILD [README...]

Every command line of a fenced `sh` block is looked at. `make TARGET` must be a target of the Makefile; every option of
`build/rhapsode COMMAND` must be in that command's --help. A block after the line `<!-- tested -->` is run, a command at
a time, with BUILD's program; `<!-- tested: MODEL -->` runs only when that model is in $RHAPSODE_TEST_MODELS (and must be,
when RHAPSODE_REQUIRE_MODELS is set). A command that fails, or prints nothing, is an error. Links to files must lead there.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"(?:^<!-- tested(?:: (?P<model>[\w.-]+))? -->\n(?P<mark>))?^```sh\n(?P<text>.*?)^```", re.M | re.S)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
RUN_SECONDS = 120


def commands(block):
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        # What a pipe hands on to is another program.
        words = words[: words.index("|")] if "|" in words else words
        if words:
            yield line.strip(), words


class Checker:
    def __init__(self, build):
        self.build = Path(build).resolve()
        self.errors = []
        self.ran = 0
        self.targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        self.helps = {}

    def fail(self, path, what):
        self.errors.append(f"{path}: {what}")

    def _help(self, command):
        if command not in self.helps:
            result = subprocess.run([self.build / "rhapsode", command, "--help"], capture_output=True, text=True, timeout=30)
            self.helps[command] = result.stdout if result.returncode == 0 else ""
        return self.helps[command]

    def check_words(self, path, words):
        if words[0] == "make" and len(words) > 1 and words[1] not in self.targets:
            self.fail(path, f"'make {words[1]}' is no target of the Makefile")
        if words[0] not in ("build/rhapsode", "rhapsode") or len(words) < 2 or words[1].startswith("-"):
            return
        text = self._help(words[1])
        if not text:
            self.fail(path, f"'rhapsode {words[1]} --help' fails")
        for option in (word.split("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)):
            if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text):
                self.fail(path, f"'rhapsode {words[1]}' has no option {option}")

    @staticmethod
    def _environment():
        # The program finds models where the tests do.
        models = os.environ.get("RHAPSODE_TEST_MODELS")
        return {"RHAPSODE_HOME": str(Path(models).parent), **os.environ} if models else None

    def run(self, path, line):
        shown = line.split("  #")[0].strip()
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line.replace("build/rhapsode", shlex.quote(str(self.build / "rhapsode")))],
            cwd=ROOT, env=self._environment(), capture_output=True, text=True, timeout=RUN_SECONDS, stdin=subprocess.DEVNULL, check=False)
        self.ran += 1
        if result.returncode != 0:
            self.fail(path, f"'{shown}' exits {result.returncode}: {result.stderr.strip()[-300:]}")
        elif not result.stdout.strip():
            self.fail(path, f"'{shown}' prints nothing")

    def may_run(self, path, model):
        if not model or (Path(os.environ.get("RHAPSODE_TEST_MODELS", "")) / f"{model}.gguf").exists():
            return True
        if "RHAPSODE_REQUIRE_MODELS" in os.environ:
            self.fail(path, f"the model {model} is missing: run make test")
        else:
            print(f"{path}: {model} is missing, so its commands are only read")
        return False

    def check(self, path):
        text = path.read_text()
        name = os.path.relpath(path, ROOT)
        for block in _BLOCK.finditer(text):
            tested = block["mark"] is not None and self.may_run(name, block["model"])
            for line, words in commands(block["text"]):
                self.check_words(name, words)
                if tested:
                    self.run(name, line)
        for link in _LINK.findall(text):
            if "://" not in link and not (path.parent / link).exists():
                self.fail(name, f"the link to {link} leads nowhere")


def main():
    checker = Checker(sys.argv[1])
    pages = [Path(p).resolve() for p in sys.argv[2:]]
    for path in pages or [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        checker.check(path)
    for error in checker.errors:
        print(error)
    print(f"check_readme: {checker.ran} commands run, {len(checker.errors)} errors")
    return 1 if checker.errors else 0


if __name__ == "__main__":
    sys.exit(main())
