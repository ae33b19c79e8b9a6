"""How `rhapsode eval` behaves: tables, JSON, results files that go on, comparisons, errors.

    eval_test.py PROGRAM_OVER_A_STAND_IN_MEMORY
"""

import json
import os
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from program_case import ProgramCase  # noqa: E402

TASK = """
name = "birds"
title = "Questions about birds"
instruction = "Answer from the documents."
metrics = ["em", "f1", "subspan"]
contexts = ["closed", "gold", "full", "reuse", "routed", "bm25", "latent"]
recall_at = [1, 2]
distractors = 1
seed = 1
[[data]]
group = "birds"
reader = "squad"
path = "birds.json"
"""
FACTS = [("Owl", "Owls hunt at night near Bern.", "Near which town do owls hunt at night?", "Bern"),
         ("Heron", "Herons fish in shallow water near Basel.", "Near which town do herons fish?", "Basel"),
         ("Wren", "Wrens nest in old walls near Geneva.", "Near which town do wrens nest?", "Geneva")]
CONTEXTS = ["closed", "gold", "full", "reuse", "routed", "bm25", "latent"]


class EvalCase(ProgramCase):
    def setUp(self):
        super().setUp()
        self.task = self.home / "birds.toml"
        self.task.write_text(TASK)
        data = [{"title": title, "paragraphs": [{"context": text, "qas": [
            {"id": title, "question": question, "answers": [{"text": answer, "answer_start": 0}]}]}]}
            for title, text, question, answer in FACTS]
        (self.home / "birds.json").write_text(json.dumps({"data": data}))
        self.results = self.home / "results.jsonl"

    def line(self, *arguments, output=None):
        return ["eval", str(self.task), "--data", str(self.home), "--memory", str(self.home / "memory"), "--output",
                str(output or self.results), *arguments]

    def evaluate(self, *arguments, output=None, code=0, **environment):
        result = self.run_program(*self.line(*arguments, output=output), **environment)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def records(self):
        return [json.loads(line) for line in self.results.read_text().splitlines()][1:]


class Evaluation(EvalCase):
    def test_every_question_is_asked_in_every_context(self):
        shown = self.evaluate().stdout
        self.assertIn("Questions about birds", shown)
        self.assertIn("Paired differences from full", shown)
        records = self.records()
        self.assertEqual(sorted({record["context"] for record in records}), sorted(CONTEXTS))
        self.assertEqual(len(records), 21)
        gold = [record for record in records if record["context"] == "gold"]
        self.assertTrue(all(record["scores"]["subspan"] == 1 for record in gold), gold)
        self.assertTrue(all(record["scores"]["gold_read"] == 1 for record in gold))
        closed = [record for record in records if record["context"] == "closed"]
        self.assertTrue(all(record["usage"]["memory_tokens_read"] == 0 for record in closed))
        for record in records:
            self.assertIn("nll", record["scores"])
            self.assertEqual("kl" in record["scores"], record["context"] != "full", record)

    def test_full_and_reuse_read_the_same_passages(self):
        self.evaluate("--contexts", "full,reuse")
        read = {}
        for record in self.records():
            read.setdefault(record["id"], {})[record["context"]] = [p["document"] for p in record["read"]]
        for passages in read.values():
            self.assertEqual(passages["full"], passages["reuse"])
            self.assertEqual(len(passages["full"]), 2)

    def test_json_holds_settings_and_intervals(self):
        summary = json.loads(self.evaluate("--contexts", "full,reuse", "--commit", "abc", "--json").stdout)
        self.assertEqual(summary["settings"]["commit"], "abc")
        self.assertIn(str(self.task), summary["settings"]["command"])
        self.assertGreater(summary["settings"]["machine"]["cores"], 0)
        reuse = summary["groups"][0]["contexts"][1]
        self.assertEqual((reuse["context"], reuse["questions"], reuse["errors"]), ("reuse", 3, 0))
        self.assertEqual(set(reuse["metrics"]["f1"]), {"mean", "low", "high", "count"})
        self.assertIn("f1", reuse["differences"])

    def test_recall_only_answers_nothing(self):
        self.evaluate("--recall-only")
        for record in self.records():
            self.assertNotIn("reply", record)
            self.assertEqual(record["scores"]["recall@1"], 1.0, record)

    def test_a_results_file_is_never_overwritten(self):
        self.evaluate("--contexts", "closed")
        again = self.evaluate("--contexts", "closed", code=2)
        self.assertIn("--resume goes on", again.stderr)
        self.assertEqual(len(self.records()), 3)

    def test_a_stopped_run_goes_on(self):
        process = self.start(*self.line("--contexts", "closed,full"), RHAPSODE_FAKE_DELAY_MS="60")
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline and (not self.results.exists() or self.results.read_text().count("\n") < 3):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=15)[0]
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"birds", output)
        done = len(self.records())
        self.assertLess(done, 6)
        with self.results.open("a") as torn:
            torn.write('{"group": "bir')
        result = self.evaluate("--contexts", "closed,full", "--resume")
        self.assertIn(f"{done} results are there already", result.stderr)
        self.assertEqual(len(self.records()), 6)

    def test_resuming_with_other_settings_is_refused_by_name(self):
        self.evaluate("--contexts", "closed")
        refused = self.evaluate("--contexts", "closed", "--resume", "--seed", "5", "--passages", "3", code=2)
        self.assertIn("passages, seed", refused.stderr)

    def test_a_limit_draws_a_selection_that_grows(self):
        self.evaluate("--contexts", "closed", "--limit", "1")
        first = self.records()
        self.evaluate("--contexts", "closed", "--limit", "2", "--resume")
        self.assertEqual(self.records()[:1], first)
        self.assertEqual(len(self.records()), 2)

    def test_two_results_are_compared(self):
        other = self.home / "other.jsonl"
        self.evaluate("--contexts", "full,bm25")
        self.evaluate("--contexts", "full,bm25", "--passages", "1", output=other)
        shown = self.run_program("eval", "compare", str(self.results), str(other))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("settings that differ: passages", shown.stdout)
        same = json.loads(self.run_program("eval", "compare", str(self.results), str(self.results), "--json").stdout)
        self.assertEqual(same["different_settings"], [])
        for context in same["groups"][0]["contexts"]:
            self.assertEqual(context["differences"]["f1"]["mean"], 0)

    def test_what_is_wrong_is_said_in_a_sentence(self):
        cases = [(["eval", "nonsense"], 1, "there is no task 'nonsense'; there are beam-tuning, beam, cacheblend-musique"),
                 (["eval", "peps", "--data", str(self.home / "none")], 1, "scripts/fetch_eval_data.sh"),
                 (self.line("--contexts", "half"), 2, "'half' is no context"),
                 (self.line("--pool", "some"), 2, "--pool must be own or all"),
                 (self.line("--baseline", "half"), 2, "'half' is no context to compare with"),
                 (["eval", "compare", "a"], 2, "needs two results files"),
                 (["eval", "compare", "a", "b"], 1, "a")]
        for arguments, code, message in cases:
            with self.subTest(arguments):
                result = self.run_program(*arguments)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(message, result.stderr)
        self.assertFalse(self.results.exists())


class Replay(ProgramCase):
    """Conversations that are replayed; the stand-in memory finds nothing in them, so only messages are ranked."""

    def setUp(self):
        super().setUp()
        self.task = self.home / "talks.toml"
        self.task.write_text("""
name = "talks"
kind = "replay"
title = "What was said"
instruction = "Listen."
metrics = []
contexts = ["messages", "routed"]
baseline = "messages"
unit = "passage"
recall_at = [1, 2]
[[data]]
reader = "beam"
path = "talks"
last = 1
""")
        folder = self.home / "talks" / "1"
        folder.mkdir(parents=True)
        said = ["My zebra eats thistles. ->-> 1,1", "Noted.", "It moved to Bern. ->-> 1,2", "Noted, too."]
        turns = [{"role": "user" if i % 2 == 0 else "assistant", "id": i, "content": text} for i, text in enumerate(said)]
        turns[0]["time_anchor"] = "March-05-2024"
        (folder / "chat.json").write_text(json.dumps([{"turns": [turns]}]))
        (folder / "probing_questions.json").write_text(json.dumps(
            {"information_extraction": [{"question": "What does my zebra eat?", "source_chat_ids": [0]}],
             "abstention": [{"question": "And the horse?"}]}))

    def evaluate(self, *arguments):
        result = self.run_program("eval", str(self.task), "--data", str(self.home), "--memory", str(self.home / "memory"),
                                  "--output", str(self.home / "talks.jsonl"), *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_what_was_said_is_ranked(self):
        summary = json.loads(self.evaluate("--live-budget", "512", "--contexts", "messages", "--json").stdout)
        self.assertEqual(summary["settings"]["live_budget_tokens"], 512)
        self.assertEqual(summary["settings"]["baseline"], "messages")
        (group,) = summary["groups"]
        self.assertEqual(group["group"], "information_extraction")
        self.assertEqual(group["contexts"][0]["metrics"]["recall@1"]["mean"], 1.0)
        self.assertNotIn("em", group["contexts"][0]["metrics"])

    def test_a_long_conversation_is_held(self):
        task = self.home / "long.toml"
        task.write_text(self.task.read_text().replace('kind = "replay"', """kind = "talk"
turns = 60
facts = 5
corrected = 1
retracted = 1
asked_after = 20
window = 30""").replace('"messages", "routed"', '"routed"').replace('baseline = "messages"', 'max_tokens = 16'))
        line = ["eval", str(task), "--data", str(self.home), "--memory", str(self.home / "long"),
                "--output", str(self.home / "long.jsonl")]
        refused = self.run_program(*line, "--resume")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("leave out --resume", refused.stderr)
        result = self.run_program(*line)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("00001-00030", result.stdout)
        self.assertIn("facts", result.stdout)
        records = [json.loads(text) for text in (self.home / "long.jsonl").read_text().splitlines()]
        self.assertEqual(records[0]["settings"]["turns"], 60)
        self.assertEqual(records[0]["settings"]["asked_after"], 20)
        facts = [record for record in records[1:] if record["group"] == "facts"]
        self.assertEqual(sorted(record["type"] for record in facts),
                         ["corrected", "retracted", "stated", "stated", "stated"])
        self.assertEqual(len(records), 1 + 5 + 2)
        again = self.run_program(*line[:-1], str(self.home / "other.jsonl"))
        self.assertIn("measured from its beginning", again.stderr)

    def test_it_is_said_once(self):
        shown = self.evaluate("--contexts", "messages,routed", "--baseline", "routed").stdout
        self.assertIn("Paired differences from routed", shown)
        (chat,) = (self.home / "memory").glob("talks-own-*/chat-1/fake-chats.json")
        said = json.loads(chat.read_text())["chat-1"]
        self.assertEqual([message["text"] for message in said][:2], ["My zebra eats thistles.", "Noted."])
        self.evaluate("--contexts", "messages,routed", "--baseline", "routed", "--resume")
        self.assertEqual(len(json.loads(chat.read_text())["chat-1"]), 4)


class Calibration(ProgramCase):
    def setUp(self):
        super().setUp()
        self.text = self.home / "account.txt"
        self.text.write_text("".join(f"Paragraph {i} says what the one before it has left out of the account.\n\n"
                                     for i in range(400)))
        self.verdict = self.home / "verdict.json"

    def calibrate(self, *arguments, code=0):
        result = self.run_program("calibrate", "--verdict-file", str(self.verdict), *arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_a_verdict_holds_a_row_for_each_way_and_size_of_passages(self):
        shown = self.calibrate(str(self.text))
        verdict = json.loads(self.verdict.read_text())
        rows = {(row["policy"], row["selector"], row["share"], row["least_tokens"]) for row in verdict["readings"]}
        ways = [("reuse", "", 0), ("blend", "attention+first", 0.15), ("blend", "attention+first", 0.3)]
        self.assertEqual(rows, {(*way, least) for way in ways for least in (0, 256)})
        self.assertEqual({row["questions"] for row in verdict["readings"]}, {12})
        self.assertIn("blend 15 % by attention+first, up to 255 tokens", shown.stdout)
        self.assertIn(f"the verdict is {self.verdict}", shown.stderr)
        again = json.loads(self.calibrate("--json", str(self.text)).stdout)
        self.assertEqual(again["file"], str(self.verdict))
        self.assertEqual(len(again["readings"]), 6)

    def test_measurements_of_another_stored_type_are_kept(self):
        self.calibrate(str(self.text))
        self.calibrate("--stored-kv", "i8", str(self.text))
        stored = [row["stored"] for row in json.loads(self.verdict.read_text())["readings"]]
        self.assertEqual(sorted(stored), ["f16"] * 6 + ["i8"] * 6)

    def test_too_little_text_is_refused(self):
        self.text.write_text("One line.\n\nAnother.\n")
        result = self.calibrate(str(self.text), code=2)
        self.assertIn("give more text", result.stderr)
        self.assertFalse(self.verdict.exists())


if __name__ == "__main__":
    ProgramCase.program = os.path.abspath(sys.argv.pop(1))
    unittest.main()
