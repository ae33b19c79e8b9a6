"""An add that is killed at random moments ends where an uninterrupted one does, and encodes nothing twice.

    memory_kill_test.py PROGRAM MODEL.gguf [FILES [KILLS]]

MODEL may be a tiny random one: what the model says does not matter here. Its routing file is made first, from the
project's own sources, so that command is tried too. The files of RHAPSODE_HOME are a folder of the test's own.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = 200
KILLS = 10


class Kill(unittest.TestCase):
    program = model = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.routing = self.home / "model.rhw"
        made = subprocess.run(
            [self.program, "routing", "--model", self.model, "--chunks", "20000", "--routing-file", str(self.routing), "--json",
             str(ROOT / "src"), str(ROOT / "docs")],
            env=self.environment(), capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertGreaterEqual(json.loads(made.stdout)["chunks"], 20000)
        self.docs = self.home / "docs"
        self.docs.mkdir()
        source = random.Random(11)
        words = "lamp boat stone river house glass tower bread winter engine letter garden".split()
        for i in range(FILES):
            lines = [" ".join(source.choices(words, k=12)) + f" {i}." for _ in range(source.randint(2, 30))]
            (self.docs / f"file{i:03}.txt").write_text("\n\n".join(lines) + "\n")

    def command(self, *arguments):
        return [self.program, *arguments]

    def environment(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RHAPSODE_")}
        return {**kept, "RHAPSODE_HOME": str(self.home), "TERM": "dumb"}

    def add(self, memory):
        return self.command("add", "--memory", str(memory), "--model", self.model, "--routing", str(self.routing), "--yes",
                            "--json", str(self.docs))

    def finish(self, memory):
        result = subprocess.run(self.add(memory), env=self.environment(), capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def state(self, memory):
        listed = subprocess.run(
            self.command("list", "--memory", str(memory), "--routing", str(self.routing), "--json"),
            env=self.environment(), capture_output=True, text=True, check=True)
        keep = ("source", "kind", "versions", "bytes", "passages", "tokens")
        rows = [{k: row[k] for k in keep} for row in json.loads(listed.stdout)["sources"]]
        return sorted(rows, key=lambda row: row["source"])

    def test_killed_at_random_moments(self):
        begin = time.monotonic()
        whole = self.finish(self.home / "whole")
        seconds = time.monotonic() - begin
        self.assertEqual(whole["added"], FILES)

        chance = random.Random(5)
        memory = self.home / "killed"
        killed = runs = 0
        while killed < KILLS:
            runs += 1
            self.assertLess(runs, 10 * KILLS, "hardly any run is alive when it is to be killed")
            child = subprocess.Popen(self.add(memory), env=self.environment(), stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(chance.uniform(0.1, 0.6) * seconds)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                killed += 1
                child.wait()
            else:
                shutil.rmtree(memory)  # it got to its end: the next one begins anew
        try:
            finished = sum(row["tokens"] for row in self.state(memory))
        except subprocess.CalledProcessError:
            finished = 0  # the last kill came before there was a memory
        last = self.finish(memory)
        self.assertEqual(self.state(memory), self.state(self.home / "whole"))
        # Finished files are not encoded again.
        self.assertLessEqual(last["encoded_tokens"], whole["encoded_tokens"] - finished)
        again = self.finish(memory)
        self.assertEqual(again["evaluated_tokens"], 0)
        self.assertEqual(again["unchanged"], FILES)
        verified = subprocess.run(self.command("verify", "--memory", str(memory), "--routing", str(self.routing), "--json"), env=self.environment(),
                                  capture_output=True, text=True, check=False)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        print(f"{killed} kills in {runs} runs of {seconds:.1f} s; the last run encoded {last['encoded_tokens']} of "
              f"{whole['encoded_tokens']} tokens, {finished} were there", file=sys.stderr)


if __name__ == "__main__":
    Kill.program, Kill.model = sys.argv[1:3]
    if len(sys.argv) > 3:
        FILES = int(sys.argv[3])
    if len(sys.argv) > 4:
        KILLS = int(sys.argv[4])
    unittest.main(argv=sys.argv[:1])
