"""The program with a real model: real text, real token counts, and Ctrl-C in the middle of a long prompt.

    real_model_test.py PROGRAM

Needs smollm2-135m.gguf in $RHAPSODE_TEST_MODELS; skipped without it, unless RHAPSODE_REQUIRE_MODELS is set.
"""

import json
import os
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from program_case import PATIENCE_S, ProgramCase  # noqa: E402

MODEL = Path(os.environ.get("RHAPSODE_TEST_MODELS", "")) / "smollm2-135m.gguf"
SKIPPED = 77  # ctest's word for it


class RealModel(ProgramCase):
    def setUp(self):
        super().setUp()
        (self.home / "models" / "m.gguf").unlink()
        (self.home / "models" / "m.gguf").symlink_to(MODEL)

    def generate(self, *arguments):
        result = self.run_program("generate", "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_the_capital_of_france(self):
        answer = self.generate("--raw", "-n", "4", "--top-logprobs", "2", "The capital of France is")
        self.assertTrue(answer["text"].startswith(" Paris"), answer["text"])
        usage = answer["usage"]
        self.assertEqual(usage["prompt_tokens"], usage["cached_tokens"] + usage["evaluated_tokens"])
        self.assertEqual(usage["generated_tokens"], len(answer["tokens"]))
        self.assertEqual("".join(token["text"] for token in answer["tokens"]), answer["text"])
        self.assertLess(answer["tokens"][0]["logprob"], 0)
        self.assertEqual(len(answer["tokens"][0]["top"]), 2)
        self.assertEqual(answer["model"]["architecture"], "llama")

    def test_the_chat_template_makes_a_difference(self):
        question = "Name a colour."
        chat = self.generate("-n", "1", question)["usage"]["prompt_tokens"]
        raw = self.generate("-n", "1", "--raw", question)["usage"]["prompt_tokens"]
        self.assertGreater(chat, raw)

    def test_inspect_agrees_with_the_engine(self):
        model = self.generate("-n", "0", "x")["model"]
        shown = json.loads(self.run_program("inspect", "m", "--json").stdout)
        self.assertIs(shown["runnable"], True)
        self.assertEqual(shown["kv_bytes_per_token"]["f16"], model["kv_bytes_per_token"])
        for field in ("architecture", "parameters", "layers", "heads", "kv_heads", "head_dim", "vocabulary"):
            self.assertEqual(shown[field], model[field], field)

    def test_ctrl_c_in_a_long_prompt(self):
        prompt = self.home / "long.txt"
        prompt.write_text("The quick brown fox jumps over the lazy dog. " * 700)  # about 7,000 tokens
        process = self.start("generate", "-f", str(prompt))
        time.sleep(2)  # loaded, and reading the prompt
        self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 130)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(process.stderr.read(), b"")

    def test_bench_reports_the_lengths_asked_for(self):
        result = self.run_program("bench", "--json", "--prefill", "8", "--decode", "0", "--decode-tokens", "2", "--runs",
                                  "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(list(report), ["model", "weights", "threads", "argmax_equal", "ties", "max_abs_logit_diff",
                                        "prefill", "decode"])
        self.assertEqual([row["tokens"] for row in report["prefill"]], [8])
        self.assertEqual(list(report["decode"][0]), ["context", "tokens_per_s", "llama_tokens_per_s", "ratio"])
        self.assertGreater(report["prefill"][0]["tokens_per_s"], 0)
        self.assertIsNone(report["argmax_equal"])


if __name__ == "__main__":
    if not MODEL.exists():
        print(f"{MODEL} is missing: `rhapsode pull smollm2-135m` and set RHAPSODE_TEST_MODELS")
        sys.exit(1 if "RHAPSODE_REQUIRE_MODELS" in os.environ else SKIPPED)
    ProgramCase.program = os.path.abspath(sys.argv.pop(1))
    unittest.main()
