#!/usr/bin/env python3
"""Holds the tree to its module directions and budgets (scripts/check_layers.toml).

    check_layers.py [ROOT]        prints one line a violation and exits 1, or one line of summary and exits 0

Only tracked files count where ROOT is a git work tree, every file otherwise.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from checks import budgets, layers  # noqa: E402

CPP = (".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh")


class Tree:
    """The files of one checkout, read once."""

    def __init__(self, root):
        self._root = Path(root)
        self._texts = {}
        for path in self._list():
            try:
                self._texts[path] = (self._root / path).read_text(encoding="utf-8")
            except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
                continue  # binary, deleted in the work tree, or a link to a folder

    def _list(self):
        # Files not yet added count too: they are what is about to be committed.
        git = subprocess.run(
            ["git", "-C", self._root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=False,
        )
        if git.returncode == 0 and (self._root / ".git").exists():
            return sorted(set(filter(None, git.stdout.decode().split("\0"))))
        return sorted(str(p.relative_to(self._root)) for p in self._root.rglob("*") if p.is_file())

    def files(self):
        return list(self._texts)

    def cpp_files(self):
        return [path for path in self._texts if path.endswith(CPP)]

    def has(self, path):
        return path in self._texts

    def text(self, path):
        return self._texts[path]


def apply_exceptions(violations, exceptions):
    """Drops what an exception names; complains about exceptions without a reason or a use."""
    kept, used = [], set()
    for violation in violations:
        rule, path, _, name, _ = violation
        for index, exception in enumerate(exceptions):
            if (exception["rule"], exception["path"], exception.get("name", "")) == (rule, path, name):
                used.add(index)
                break
        else:
            kept.append(violation)
    for index, exception in enumerate(exceptions):
        if not exception.get("reason", "").strip():
            kept.append(("exception", exception["path"], 1, "", f"the exception from {exception['rule']} has no reason"))
        if index not in used:
            kept.append(("exception", exception["path"], 1, "", f"the exception from {exception['rule']} is not needed any more"))
    return kept


def check(root, config):
    tree = Tree(root)
    violations = [v for c in layers.CHECKS + budgets.CHECKS for v in c(tree, config)]
    return tree, apply_exceptions(violations, config.get("exception", []))


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    config_path = root / "scripts" / "check_layers.toml"
    if not config_path.exists():
        print(f"check_layers: {config_path} is missing", file=sys.stderr)
        return 1
    tree, violations = check(root, tomllib.loads(config_path.read_text()))
    for rule, path, line, _, message in violations:
        print(f"{path}:{line}: {message} [{rule}]")
    if violations:
        print(f"check_layers: {len(violations)} violations")
        return 1
    print(f"check_layers: {len(tree.files())} files, {len(tree.cpp_files())} of C++, all within the rules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
