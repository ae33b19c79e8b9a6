"""What tests of the program share: running it, a home folder of its own, and small model files."""

import os
import pty
import select
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PATIENCE_S = 20  # for anything that must end by itself, on a busy machine


def tiny_gguf(architecture="mamba", tensors=1):
    """A well-formed GGUF file of an architecture that no build runs."""

    def text(value):
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw

    header = b"GGUF" + struct.pack("<IQQ", 3, tensors, 2)
    header += text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    header += text("general.name") + struct.pack("<I", 8) + text("tiny \x1b[31m model")
    for i in range(tensors):
        header += text(f"tensor_{i}.weight") + struct.pack("<IQQIQ", 2, 32, 2, 0, 256 * i)
    padding = -len(header) % 32
    return header + b"\0" * padding + b"\0" * 256 * tensors


class ProgramCase(unittest.TestCase):
    program = None  # set by the runner

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        (self.home / "models").mkdir()
        (self.home / "models" / "m.gguf").write_bytes(tiny_gguf())

    def environment(self, **extra):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RHAPSODE_") and k not in ("NO_COLOR", "TERM")}
        return {**kept, "RHAPSODE_HOME": str(self.home), "RHAPSODE_MODEL": "m", "TERM": "xterm", **extra}

    def run_program(self, *arguments, stdin="", **environment):
        return subprocess.run([self.program, *arguments], input=stdin, env=self.environment(**environment),
                              capture_output=True, text=True, encoding="utf-8", timeout=PATIENCE_S, check=False)

    def start(self, *arguments, **environment):
        process = subprocess.Popen([self.program, *arguments], env=self.environment(**environment),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_on_terminal(self, *arguments, columns=80, typed=(), **environment):
        """Runs on a pseudo-terminal; returns (exit code, everything it showed).

        Each text of `typed` is typed once the program has shown something and then paused.
        """
        typed = [typed] if isinstance(typed, str) else list(typed)
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(self.program, [self.program, *arguments], self.environment(**environment))
        import fcntl
        import termios

        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        shown, deadline = b"", time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if not select.select([fd], [], [], 0.25 if typed else 0.1)[0]:
                if shown and typed:
                    os.write(fd, typed.pop(0).encode())
                continue
            try:
                piece = os.read(fd, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        _, status = os.waitpid(pid, 0)
        os.close(fd)
        return os.waitstatus_to_exitcode(status), shown.decode()

    def assert_fails(self, code, message, *arguments, **keywords):
        """One sentence on standard error, nothing on standard output, and that exit code."""
        result = self.run_program(*arguments, **keywords)
        self.assertEqual(result.stderr, f"rhapsode: {message}\n")
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.returncode, code)
