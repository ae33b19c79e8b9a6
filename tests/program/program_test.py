"""How the program behaves: output, exit codes, errors, JSON, signals, closed pipes and terminals.

    program_test.py PROGRAM_OVER_A_STAND_IN_ENGINE

The stand-in answers with the prompt's own words, over and over; RHAPSODE_FAKE_DELAY_MS is the time a word takes.
"""

import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from program_case import PATIENCE_S, ProgramCase, tiny_gguf  # noqa: E402

USAGE_FIELDS = ["prompt_tokens", "cached_tokens", "evaluated_tokens", "generated_tokens", "truncated_tokens",
                "rolled_tokens", "sparse_tokens", "cache_miss"]
TIMING_FIELDS = ["load_ms", "queue_ms", "tokenize_ms", "prefill_ms", "ttft_ms", "decode_ms", "sample_ms", "total_ms",
                 "prefill_tokens_per_s", "decode_tokens_per_s"]
MODEL_FIELDS = ["name", "architecture", "weights", "file_bytes", "parameters", "layers", "heads", "kv_heads",
                "head_dim", "vocabulary", "trained_context_tokens", "kv_bytes_per_token"]
COMMANDS = ["add", "ask", "search", "chat", "list", "show", "forget", "remember", "facts", "stats", "verify", "export",
            "import", "generate", "pull", "inspect", "bench", "eval", "routing", "calibrate", "config"]


class Generate(ProgramCase):
    def test_plain_text_in_a_pipe(self):
        result = self.run_program("generate", "-n", "5", "ёжик 😺 数")
        self.assertEqual(result.stdout, "ёжик 😺 数ёжик 😺\n")
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.returncode, 0)

    def test_prompt_sources(self):
        file = self.home / "prompt.txt"
        file.write_text("from a file\n")
        for arguments, stdin, text in [
            (["a b"], "", "a b"),
            (["-f", str(file)], "", "from a"),
            ([], "from stdin\n", "from stdin"),
            (["-f", "-"], "minus f\n", "minus f"),
            (["--raw"], "keeps its\n", "keeps its\n"),
            (["--", "-n 9"], "", "-n 9"),
        ]:
            with self.subTest(arguments=arguments):
                result = self.run_program("generate", "-n", "2", *arguments, stdin=stdin)
                self.assertEqual(result.stdout.rstrip("\n"), text.rstrip("\n"))
                self.assertEqual(result.returncode, 0)

    def test_json_shape(self):
        result = self.run_program("generate", "--json", "-n", "2", "--top-logprobs", "1", "a b")
        answer = json.loads(result.stdout)
        self.assertEqual(list(answer), ["text", "finish", "tokens", "usage", "timing", "model"])
        self.assertEqual(answer["text"], "a b")
        self.assertEqual(answer["finish"], "length")
        self.assertEqual(list(answer["usage"]), USAGE_FIELDS)
        self.assertEqual(list(answer["timing"]), TIMING_FIELDS)
        self.assertEqual(list(answer["model"]), MODEL_FIELDS)
        self.assertEqual([list(token) for token in answer["tokens"]], [["token", "text", "logprob", "top"]] * 2)
        self.assertEqual(list(answer["tokens"][0]["top"][0]), ["token", "text", "logprob"])
        without = json.loads(self.run_program("generate", "--json", "-n", "2", "a b").stdout)
        self.assertNotIn("tokens", without)

    def test_json_lines(self):
        result = self.run_program("generate", "--json", "--stream", "-n", "40", "a b", RHAPSODE_FAKE_DELAY_MS="5")
        events = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertGreater(len(events), 2)
        self.assertEqual({event["event"] for event in events[:-1]}, {"text"})
        self.assertEqual(events[-1]["event"], "result")
        self.assertEqual("".join(event["text"] for event in events[:-1]), events[-1]["text"])

    def test_text_comes_as_it_is_made(self):
        process = self.start("generate", "-n", "1000", "word again", RHAPSODE_FAKE_DELAY_MS="50")
        begin = time.monotonic()
        self.assertTrue(os.read(process.stdout.fileno(), 100).startswith(b"word"))
        self.assertLess(time.monotonic() - begin, 10)  # the whole would take 50 s
        self.assertIsNone(process.poll())

    def test_refusals(self):
        for code, message, arguments in [
            (2, "the prompt is empty; give some text", [""]),
            (2, "the prompt is given twice, as an argument and with --file; drop one", ["a", "-f", "x"]),
            (2, "--system needs the chat template, which --raw turns off; drop one of them",
             ["a", "--raw", "--system", "s"]),
            (2, "--grammar and --json-schema exclude each other; drop one of them",
             ["a", "--grammar", 'root ::= "a"', "--json-schema", "{}"]),
            (2, "--top-p must lie in (0, 1]; 1.7 given", ["a", "--top-p", "1.7"]),
            (2, "generate has no option --top_p; did you mean '--top-p'?", ["a", "--top_p", "1"]),
            (1, "cannot read the prompt file /nonexistent: No such file or directory", ["-f", "/nonexistent"]),
            (1, "cannot read the file no.gbnf that --grammar names: No such file or directory",
             ["a", "--grammar", "no.gbnf"]),
            (1, "more tokens than the context holds", ["a", "-n", "1000001"]),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_fails(code, message, "generate", *arguments)

    def test_no_prompt_on_a_terminal(self):
        code, shown = self.run_on_terminal("generate", NO_COLOR="1")
        self.assertIn("there is no prompt; give it as an argument, with -f FILE or through a pipe", shown)
        self.assertEqual(code, 2)


class Errors(ProgramCase):
    def test_json_errors_are_on_standard_output_too(self):
        for code, kind, arguments in [
            (2, "invalid_argument", ["generate", "--json", "--top-p", "7", "x"]),
            (2, "invalid_argument", ["--json", "frobnicate"]),
            (1, "not_found", ["inspect", "/nonexistent.gguf", "--json"]),
        ]:
            with self.subTest(arguments=arguments):
                result = self.run_program(*arguments)
                error = json.loads(result.stdout)["error"]
                self.assertEqual(list(error), ["kind", "message"])
                self.assertEqual(error["kind"], kind)
                self.assertEqual(result.stderr, f"rhapsode: {error['message']}\n")
                self.assertEqual(result.returncode, code)

    def test_no_command(self):
        self.assert_fails(2, "a command is missing; `rhapsode --help` lists them")

    def test_a_full_disk(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([self.program, "generate", "a b"], env=self.environment(), stdout=full,
                                    stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(result.stderr, "rhapsode: cannot write standard output: No space left on device\n")
        self.assertEqual(result.returncode, 1)

    def test_an_unknown_model(self):
        result = self.run_program("generate", "--model", "nowhere", "x")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nowhere", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)


class Signals(ProgramCase):
    def interrupt(self, process, number=signal.SIGINT):
        begin = time.monotonic()
        process.send_signal(number)
        output, errors = process.communicate(timeout=PATIENCE_S)
        return output.decode(), errors.decode(), time.monotonic() - begin

    def test_ctrl_c_prints_what_is_there(self):
        process = self.start("generate", "-n", "100000", "one two", RHAPSODE_FAKE_DELAY_MS="20")
        first = os.read(process.stdout.fileno(), 3).decode()
        time.sleep(0.5)  # some more words
        rest, errors, seconds = self.interrupt(process)
        self.assertTrue((first + rest).startswith("one two"))
        self.assertTrue(rest.endswith("\n"))
        self.assertEqual(errors, "")
        self.assertEqual(process.returncode, 130)
        self.assertLess(seconds, 5)

    def test_ctrl_c_with_json(self):
        process = self.start("generate", "--json", "-n", "100000", "one two", RHAPSODE_FAKE_DELAY_MS="20")
        time.sleep(0.5)
        output, _, _ = self.interrupt(process)
        self.assertEqual(json.loads(output)["finish"], "cancelled")
        self.assertEqual(process.returncode, 130)

    def test_sigterm(self):
        process = self.start("generate", "-n", "100000", "one two", RHAPSODE_FAKE_DELAY_MS="20")
        os.read(process.stdout.fileno(), 3)
        self.interrupt(process, signal.SIGTERM)
        self.assertEqual(process.returncode, 143)

    def test_ctrl_c_does_not_wait_for_a_long_pass(self):
        process = self.start("generate", "a b", RHAPSODE_FAKE_DELAY_MS="60000")
        time.sleep(0.5)
        output, errors, seconds = self.interrupt(process)
        self.assertEqual((process.returncode, output, errors), (130, "", ""))
        self.assertLess(seconds, 5)

    def test_a_second_ctrl_c_kills(self):
        process = self.start("generate", "--json", "a b", RHAPSODE_FAKE_DELAY_MS="60000")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(process.poll())  # JSON waits for the stand-in, which is in the middle of a word
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), -signal.SIGINT)

    def test_ctrl_c_when_the_reader_has_stalled(self):
        process = self.start("generate", "-n", "1000000", "a long enough text to fill any pipe")
        time.sleep(0.5)  # nobody reads
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 130)
        self.assertLess(time.monotonic() - begin, 5)

    def test_an_ignored_signal_stays_ignored(self):
        command = f'trap "" INT; exec "{self.program}" generate -n 20 "a b"'
        process = subprocess.Popen(["/bin/sh", "-c", command], env=self.environment(RHAPSODE_FAKE_DELAY_MS="50"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        first = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=PATIENCE_S)[0]
        self.assertEqual((first + rest).decode(), "a b" * 10 + "\n")
        self.assertEqual(process.returncode, 0)


class ClosedPipes(ProgramCase):
    def test_a_reader_that_leaves_ends_it_quietly(self):
        for arguments in (["generate", "-n", "1000000", "a b"], ["generate", "-n", "1000000", "--json", "a b"]):
            with self.subTest(arguments=arguments):
                process = self.start(*arguments, RHAPSODE_FAKE_DELAY_MS="10")
                time.sleep(0.3)
                process.stdout.close()
                self.assertEqual(process.wait(PATIENCE_S), 0)
                self.assertEqual(process.stderr.read(), b"")

    def test_help_into_a_closed_pipe(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = subprocess.run([self.program, "--help"], env=self.environment(), stdout=write_end,
                                 stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
        os.close(write_end)
        self.assertEqual((process.returncode, process.stderr), (0, b""))


class Terminals(ProgramCase):
    def test_colours_and_status_on_a_terminal(self):
        code, shown = self.run_on_terminal("generate", "-n", "3", "a b", RHAPSODE_FAKE_DELAY_MS="20")
        self.assertEqual(code, 0)
        self.assertIn("Loading m …", shown)
        self.assertIn("\x1b[K", shown)  # the status line is erased
        self.assertIn("\x1b[2m", shown)  # numbers, dim
        self.assertIn("ended at --max-tokens 3", shown)

    def test_no_color(self):
        _, shown = self.run_on_terminal("generate", "-n", "3", "a b", NO_COLOR="1")
        self.assertNotRegex(shown, "\x1b\\[[0-9;]*m")

    def test_a_dumb_terminal_gets_no_escapes(self):
        for command in (["generate", "-n", "3", "a b"], ["inspect", "m"], ["--help"], ["generate", "--help"]):
            _, shown = self.run_on_terminal(*command, TERM="dumb")
            self.assertNotIn("\x1b", shown, command)

    def test_model_text_cannot_drive_the_terminal(self):
        _, shown = self.run_on_terminal("generate", "-n", "1", "a\x1b]0;owned\x07", TERM="dumb")
        self.assertIn("a␛]0;owned␇", shown)
        piped = self.run_program("generate", "-n", "1", "a\x1b]0;owned\x07")
        self.assertIn("a\x1b]0;owned\x07", piped.stdout)  # a pipe gets the bytes as they are

    def test_file_text_cannot_drive_the_terminal(self):
        _, shown = self.run_on_terminal("inspect", "m", TERM="dumb")
        self.assertIn("tiny ␛[31m model", shown)

    def test_nothing_of_it_in_a_pipe(self):
        for command in (["generate", "-n", "3", "a b"], ["inspect", "m"], ["config"], ["pull", "--list"], ["--help"]):
            result = self.run_program(*command)
            self.assertNotIn("\x1b", result.stdout + result.stderr, command)
            self.assertNotIn("\r", result.stdout + result.stderr, command)
            self.assertEqual(result.returncode, 0, command)

    def test_pull_draws_a_bar(self):
        source = self.home / "other.gguf"
        source.write_bytes(tiny_gguf(tensors=2))
        _, shown = self.run_on_terminal("pull", str(source))
        self.assertIn("█", shown)
        self.assertIn("\r\x1b[K", shown)

    def test_pull_prints_lines_in_a_pipe(self):
        source = self.home / "other.gguf"
        source.write_bytes(tiny_gguf(tensors=2))
        result = self.run_program("pull", str(source))
        self.assertIn("other.gguf: copying 100 % of ", result.stderr)
        self.assertNotIn("█", result.stderr)


class Inspect(ProgramCase):
    def test_json_shape(self):
        result = self.run_program("inspect", "m", "--json", "--tensors")
        self.assertEqual(result.returncode, 0)
        answer = json.loads(result.stdout)
        self.assertEqual(list(answer), ["path", "file_bytes", "name", "architecture", "runnable", "reason", "tokenizer",
                                        "weight_types", "tensors"])
        self.assertEqual(answer["architecture"], "mamba")
        self.assertIs(answer["runnable"], False)
        self.assertIn("mamba", answer["reason"])
        self.assertEqual(answer["weight_types"], [{"type": "f32", "tensors": 1, "bytes": 256}])
        self.assertEqual(answer["tensors"],
                         [{"name": "tensor_0.weight", "type": "f32", "shape": [32, 2], "bytes": 256}])

    def test_damaged_files(self):
        path = self.home / "bad.gguf"
        for name, content in [("cut", tiny_gguf()[:-300]), ("text", b"hello, I am no model"), ("empty", b"")]:
            with self.subTest(name):
                path.write_bytes(content)
                result = self.run_program("inspect", str(path), "--json")
                self.assertEqual(result.returncode, 1)
                self.assertEqual(json.loads(result.stdout)["error"]["kind"], "corrupt")
                self.assertIn(str(path), result.stderr)


class Config(ProgramCase):
    def options(self, *arguments, **environment):
        answer = json.loads(self.run_program("config", "--json", *arguments, **environment).stdout)
        return answer, {(o["name"], command): o for o in answer["options"] for command in o["commands"]}

    def test_every_value_names_its_origin(self):
        (self.home / "rhapsode.toml").write_text("top_k = 5\nseed = 1\n[bench]\nthreads = 3\n")
        answer, options = self.options("--top-k", "7", RHAPSODE_SEED="2")
        self.assertEqual(list(answer), ["home", "file", "options"])
        self.assertEqual(answer["file"], str(self.home / "rhapsode.toml"))
        self.assertEqual(options["top-k", "generate"]["value"], "7")
        self.assertEqual(options["top-k", "generate"]["where"], "--top-k")
        self.assertEqual(options["seed", "generate"]["origin"], "environment")
        self.assertEqual(options["threads", "bench"]["where"], f"{self.home / 'rhapsode.toml'}:4")
        self.assertEqual(options["threads", "generate"]["origin"], "default")

    def test_the_file_counts(self):
        (self.home / "rhapsode.toml").write_text("max_tokens = 2\n")
        self.assertEqual(self.run_program("generate", "a b c").stdout, "a b\n")
        self.assertEqual(self.run_program("generate", "a b c", RHAPSODE_MAX_TOKENS="1").stdout, "a\n")
        self.assertEqual(self.run_program("generate", "a b c", "-n", "3", RHAPSODE_MAX_TOKENS="1").stdout, "a b c\n")

    def test_a_wrong_file_is_wrong_usage(self):
        path = self.home / "rhapsode.toml"
        path.write_text("\ntop_q = 5\n")
        self.assert_fails(2, f"{path}:2: unknown key 'top_q'; did you mean 'top_k'?", "generate", "x")

    def test_a_chosen_file_must_exist(self):
        path = self.home / "absent.toml"
        self.assert_fails(1, f"cannot read the options in {path}: No such file or directory", "generate", "x",
                          "--config", str(path))


class Help(ProgramCase):
    def test_help_fits_eighty_columns(self):
        for command in [["--help"], *([name, "--help"] for name in COMMANDS)]:
            result = self.run_program(*command)
            self.assertEqual((result.returncode, result.stderr), (0, ""), command)
            self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80, command)

    def test_every_option_has_a_line(self):
        answer = json.loads(self.run_program("config", "--json").stdout)
        helps = {name: self.run_program(name, "--help").stdout for name in COMMANDS}
        for option in answer["options"]:
            for command in option["commands"]:
                self.assertRegex(helps[command], rf"--(no-)?{option['name']}\b")

    def test_version(self):
        plain = self.run_program("--version").stdout
        self.assertRegex(plain, r"^rhapsode \d+\.\d+\.\d+\n$")
        self.assertEqual(json.loads(self.run_program("--version", "--json").stdout)["version"], plain.split()[1])


class Pull(ProgramCase):
    def test_list(self):
        answer = json.loads(self.run_program("pull", "--list", "--json").stdout)
        models = {model["name"]: model for model in answer["models"]}
        self.assertIn(answer["default"], models)
        self.assertEqual(models["m"]["path"], str(self.home / "models" / "m.gguf"))
        self.assertIsNone(models["smollm2-135m"]["path"])
        self.assertEqual(models["smollm2-135m"]["license"], "Apache-2.0")


if __name__ == "__main__":
    ProgramCase.program = os.path.abspath(sys.argv.pop(1))
    unittest.main()
