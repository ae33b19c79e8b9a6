"""setup.sh says in one sentence what is wrong with its surroundings. Runs in a copy of the scripts, with stand-ins for
the system's tools, so nothing is installed or fetched."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Setup(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.top = Path(self._folder.name)
        self.tree = self.top / "tree"
        shutil.copytree(ROOT / "scripts", self.tree / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("requirements.txt", "requirements-build.txt"):
            shutil.copy(ROOT / name, self.tree)
        # Every package is installed, unless a test says otherwise.
        self.tool("dpkg-query", 'shift 2; for p in "$@"; do echo "ii  $p"; done')
        self.write(self.top / "os-release", "ID=debian\nVERSION_ID=12\n")

    def write(self, path, text, mode=0o644):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def tool(self, name, body):
        self.write(self.top / "bin" / name, f"#!/bin/bash\n{body}\n", 0o755)

    def fake_pip(self, body):
        self.write(self.tree / ".venv" / "bin" / "python", "#!/bin/bash\n", 0o755)
        self.write(self.tree / ".venv" / "bin" / "pip", f"#!/bin/bash\n{body}\n", 0o755)

    def run_setup(self, **environment):
        env = {
            "PATH": f"{self.top}/bin:{os.environ['PATH']}",
            "HOME": str(self.top),
            "RHAPSODE_HOME": str(self.top / "home"),
            "RHAPSODE_OS_RELEASE": str(self.top / "os-release"),
            **environment,
        }
        return subprocess.run([self.tree / "scripts" / "setup.sh"], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)

    def assert_refused(self, *words, **environment):
        result = self.run_setup(**environment)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        sentences = [line for line in result.stderr.splitlines() if line.startswith("rhapsode: ")]
        self.assertEqual(len(sentences), 1, result.stderr)
        for word in words:
            self.assertIn(word, sentences[0])
        self.assertTrue(sentences[0].endswith("."))

    def test_unsupported_systems_are_named(self):
        self.write(self.top / "os-release", "ID=fedora\nVERSION_ID=41\n")
        self.assert_refused("fedora 41 is not supported", "Debian 12", "Ubuntu 24.04")

    def test_other_kernels_and_processors_are_named(self):
        self.tool("uname", '[ "$1" = -s ] && echo Darwin || echo arm64')
        self.assert_refused("Darwin is not supported")
        self.tool("uname", '[ "$1" = -s ] && echo Linux || echo aarch64')
        self.assert_refused("aarch64 is not supported")

    def test_missing_packages_without_the_right_to_install_them(self):
        self.tool("dpkg-query", "shift 2; for p in \"$@\"; do [ $p = libhwy-dev ] || echo \"ii  $p\"; done; exit 1")
        self.tool("id", "echo 1000")
        self.tool("sudo", "exit 1")
        self.assert_refused("sudo", "apt-get install libhwy-dev'")

    def test_missing_packages_are_installed_once(self):
        self.tool("dpkg-query", "shift 2; for p in \"$@\"; do [ $p = libhwy-dev ] || echo \"ii  $p\"; done; exit 1")
        self.tool("id", "echo 0")
        self.tool("env", f'echo "$@" >>{self.top}/calls')
        self.fake_pip("echo 'No space left on device'; exit 1")
        self.assert_refused("disk is full")
        calls = (self.top / "calls").read_text().splitlines()
        self.assertEqual(len(calls), 2, calls)  # a trial download, then the installation
        for call in calls:
            self.assertRegex(call, r"apt-get .*install .* libhwy-dev$")

    def test_no_network(self):
        self.fake_pip("echo 'Failed to establish a new connection: Temporary failure in name resolution'; exit 1")
        self.assert_refused("network cannot be reached", "run the same command again")

    def test_a_package_that_is_not_the_pinned_one(self):
        self.fake_pip("echo 'THESE PACKAGES DO NOT MATCH THE HASHES'; exit 1")
        self.assert_refused("not the pinned one")

    def test_no_space(self):
        self.fake_pip('[ "$1" != download ] || { mkdir -p .deps/sdist/a/vendor/llama.cpp/common; cd .deps/sdist; '
                      'touch a/vendor/llama.cpp/common/x.h; tar -czf a.tar.gz a; rm -r a; }')
        self.tool("df", 'printf "head\\nx 1 1 12 1 /\\n"')
        self.assert_refused("Not enough disk space", "12 MB free")

    def test_no_permission(self):
        self.fake_pip("exit 0")
        (self.tree / ".deps").write_text("a file where the folder should be")
        self.assert_refused("No permission to write in", ".deps")

    def test_unknown_failures_show_the_log(self):
        self.fake_pip("echo 'something odd'; exit 1")
        result = self.run_setup()
        self.assertIn("something odd", result.stderr)
        self.assertIn("the whole log is", result.stderr)


if __name__ == "__main__":
    unittest.main()
