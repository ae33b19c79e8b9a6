"""How the commands over a memory behave: output, JSON, questions, errors, signals and terminals.

    memory_test.py PROGRAM_OVER_A_STAND_IN_MEMORY

The stand-in keeps texts in one JSON file and answers with the sentence that shares most words with the question.
RHAPSODE_FAKE_DELAY_MS is the time a word of an answer or a source takes, RHAPSODE_FAKE_PLAN_S what plans promise.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from program_case import PATIENCE_S, ProgramCase, tiny_gguf  # noqa: E402

GUIDE = """# The guide

A page holds sixty-four tokens of one layer. It is immutable once sealed.

The cache is filled on the first read.
"""
HOURS = "Das Rathaus öffnet um neun. 市役所は九時に開きます。\n"

PASSAGE_FIELDS = ["id", "source", "version", "start_byte", "end_byte", "line", "page", "tokens", "header", "tier",
                  "superseded_by"]
FOUND_FIELDS = [*PASSAGE_FIELDS, "score", "latent", "keywords", "judged", "chained", "found_by", "link", "text"]
ANSWER_FIELDS = ["answer", "abstained", "citations", "usage", "timing", "policy", "policy_reason", "passages", "self_check", "hops",
                 "as_of", "notes", "finish", "model", "trace"]
REPLY_FIELDS = ["turn", "message", "answer", "recalled", "spilled", "usage", "timing", "policy", "policy_reason",
                "finish", "conversation", "model"]
USAGE_FIELDS = ["prompt_tokens", "cached_tokens", "recomputed_tokens", "evaluated_tokens", "probe_tokens",
                "generated_tokens", "sparse_tokens", "memory_tokens_read", "reroutings",
                "joined_passages", "cold_candidates", "charged_tokens"]
TIMING_FIELDS = ["route_ms", "load_ms", "blend_ms", "prefill_ms", "ttft_ms", "decode_tokens_per_s", "cite_ms", "total_ms"]
TRACE_FIELDS = ["format", "version", "question", "answer", "policy", "policy_reason", "model", "passages", "routings",
                "tokens", "probe_tokens", "probe_ms"]
ROUTING_FIELDS = ["cause", "token", "signal", "query", "found", "joined", "left", "places", "probe_tokens",
                  "evaluated_tokens", "route_ms", "read_ms", "problem"]
TRACED_FOUND_FIELDS = ["passage", "source", "line", "score", "latent", "latent_z", "keywords", "keywords_z", "judged",
                       "chained", "evidence", "link"]
PLACE_FIELDS = ["passage", "position", "tokens", "exact_tokens", "approximate_tokens", "recomputed_tokens", "miss"]
TOKEN_FIELDS = ["token", "text", "routing", "entropy", "attention"]
HOP_FIELDS = ["query", "passages", "answer"]
CITATION_FIELDS = ["n", "source", "version", "start_byte", "end_byte", "line", "page", "quote", "support"]
ADD_FIELDS = ["memory", "made", "added", "updated", "unchanged", "removed", "skipped", "failed", "warnings", "passages",
              "encoded_tokens", "evaluated_tokens", "kv_bytes", "index_only", "cancelled", "seconds", "removed_sources"]
PLAN_FIELDS = ["sources_new", "sources_changed", "sources_unchanged", "tokens", "kv_bytes", "seconds", "index_only"]
SOURCE_FIELDS = ["source", "kind", "title", "tags", "version", "versions", "bytes", "passages", "tokens", "added",
                 "event_time", "user", "identifier", "superseded_by", "supersedes"]
FACT_FIELDS = ["action", "source", "user", "subject", "attribute", "value", "quote", "message", "speaker", "told",
               "made_by", "event_time", "version", "valid_from", "valid_to", "current"]
REMEMBER_FIELDS = ["memory", "recorded", "known", "superseded", "facts", "problems", "evaluated_tokens", "generations",
                   "prompt_tokens", "generated_tokens"]
VERSION_FIELDS = ["version", "added", "replaced", "event_time", "bytes", "sha256"]
STATS_FIELDS = ["memory", "model", "fingerprint", "sources", "versions", "contents", "passages", "passages_with_kv",
                "tokens", "text_bytes", "catalog_bytes", "code_bytes", "kv_bytes", "kv_cap_bytes", "stale_bytes",
                "foreign_kv_entries", "quarantined", "kv_hits", "kv_misses", "kv_outrun", "kv_resident_bytes", "kv_ram_bytes", "search", "indexed_passages",
                "index_bytes", "index_problem", "recall_questions", "recall", "lowest_recall", "found_on", "device_bytes",
                "device_problem"]
VERIFY_FIELDS = ["sound", "extents_checked", "texts_checked", "passages_encoded", "largest_difference", "problems"]


class MemoryCase(ProgramCase):
    """A folder with documents as the current one, and a home folder beside it."""

    def setUp(self):
        super().setUp()
        self.work = self.home / "work"
        (self.work / "docs" / "sub").mkdir(parents=True)
        (self.work / "docs" / "guide.md").write_text(GUIDE)
        (self.work / "docs" / "sub" / "hours.txt").write_text(HOURS)
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.work)

    def succeed(self, *arguments, **keywords):
        result = self.run_program(*arguments, **keywords)
        self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
        return result.stdout

    def json_of(self, *arguments, code=0, **keywords):
        result = self.run_program(*arguments, "--json", **keywords)
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)

    def add_docs(self):
        result = self.run_program("add", "docs")
        self.assertEqual(result.returncode, 0, result.stderr)

    def sources(self):
        return [source["source"] for source in self.json_of("list")["sources"]]


class Add(MemoryCase):
    def test_says_where_a_new_memory_is(self):
        result = self.run_program("add", "docs")
        self.assertEqual(result.stderr,
                         "new memory at .rhapsode (in the current folder; --memory FOLDER chooses another)\n")
        self.assertRegex(result.stdout, r"^added 2 sources\n4 passages, \d+ tokens encoded at ")
        self.assertEqual(self.succeed("add", "docs"), "added 0 sources, 2 unchanged\n")
        named = self.run_program("add", "docs", "--memory", "elsewhere")
        self.assertEqual(named.stderr, "new memory at elsewhere\n")
        self.assertTrue((self.work / "elsewhere").is_dir())

    def test_a_memory_upwards_and_the_home_folder(self):
        outside = self.home / "outside.txt"
        outside.write_text("Outside of the folder.")
        result = self.run_program("add", str(outside))
        self.assertIn(f"new memory at {self.home}/memory (in the home folder; ", result.stderr)
        self.add_docs()
        os.chdir(self.work / "docs" / "sub")
        self.assertEqual(self.json_of("add", "hours.txt")["memory"], str(self.work / ".rhapsode"))

    def test_json_shape(self):
        (self.work / "docs" / "a.bin").write_text("x")
        (self.work / "docs" / "b.bad").write_text("x")
        report = self.json_of("add", "docs", code=1)
        self.assertEqual(list(report), ADD_FIELDS)
        self.assertEqual(report["skipped"], [{"source": "docs/a.bin", "reason": "binary"}])
        self.assertEqual(list(report["failed"][0]), ["source", "reason"])
        self.assertIs(report["made"], True)
        self.assertEqual((report["added"], report["cancelled"]), (2, False))

    def test_dry_run_leaves_nothing(self):
        plan = self.json_of("add", "docs", "--dry-run")
        self.assertEqual(list(plan), PLAN_FIELDS)
        self.assertEqual(plan["sources_new"], 2)
        self.assertFalse((self.work / ".rhapsode").exists())
        self.assertRegex(self.succeed("add", "docs", "--dry-run"), r"^2 new sources: \d+ tokens to encode, ")

    def test_standard_input(self):
        self.assertEqual(self.json_of("add", "-", "--name", "notes", "--tag", "a", "--tag", "b",
                                      stdin="Something to keep.")["added"], 1)
        listed = self.json_of("list")["sources"][0]
        self.assertEqual((listed["source"], listed["tags"]), ("notes", ["a", "b"]))

    def test_long_work_is_asked_for(self):
        long = {"RHAPSODE_FAKE_PLAN_S": "500"}
        result = self.run_program("add", "docs", **long)
        self.assertEqual(result.returncode, 2)
        self.assertIn("about 8:20 min of work; pass --yes to begin without being asked", result.stderr)
        self.assertEqual(self.json_of("add", "docs", "--yes", **long)["added"], 2)
        (self.work / "docs" / "more.md").write_text("More.")
        code, shown = self.run_on_terminal("add", "docs", typed="no\n", **long)
        self.assertEqual(code, 1)
        self.assertIn("1 new source, 2 unchanged: ", shown)
        self.assertIn("Go on?", shown)
        self.assertIn("nothing was added", shown)
        code, shown = self.run_on_terminal("add", "docs", typed="y\n", **long)
        self.assertEqual(code, 0)
        self.assertIn("added 1 source, 2 unchanged", shown)

    def test_sync_asks_before_it_removes(self):
        self.add_docs()
        (self.work / "docs" / "guide.md").unlink()
        self.assertEqual(self.json_of("add", "docs")["removed"], 0)
        refused = self.run_program("add", "--sync", "docs")
        self.assertEqual(refused.stdout, "added 0 sources, 1 unchanged\n")
        self.assertEqual(refused.stderr, "rhapsode: 1 source gone from the given folders was kept; pass --yes to remove "
                                         "what is gone without being asked\n")
        self.assertEqual(refused.returncode, 2)
        _, shown = self.run_on_terminal("add", "--sync", "docs", typed="\n")
        self.assertIn("gone from the given folders:\r\n  docs/guide.md\r\n", shown)
        self.assertEqual(len(self.sources()), 2)
        report = self.json_of("add", "--sync", "--yes", "docs")
        self.assertEqual((report["removed"], report["removed_sources"]), (1, ["docs/guide.md"]))
        self.assertEqual(self.sources(), ["docs/sub/hours.txt"])

    def test_ctrl_c_keeps_what_is_done(self):
        for i in range(50):
            (self.work / "docs" / f"{i:02}.md").write_text(f"Number {i}.")
        process = self.start("add", "--json", "docs", RHAPSODE_FAKE_DELAY_MS="50")
        time.sleep(0.6)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(errors, b"stopped; the same command goes on from here\n")
        report = json.loads(output)
        self.assertIs(report["cancelled"], True)
        self.assertTrue(0 < report["added"] < 52, report["added"])
        self.assertEqual(len(self.sources()), report["added"])

    def test_refusals(self):
        self.assert_fails(2, "add needs PATH...; run `rhapsode add --help`", "add")
        self.assert_fails(1, "there is no nowhere; nothing was added", "add", "docs", "nowhere")
        self.assertFalse((self.work / ".rhapsode").exists())
        code, shown = self.run_on_terminal("add", "-")
        self.assertIn("- reads standard input, which is the terminal; give it through a pipe", shown)
        self.assertEqual(code, 2)


class Models(MemoryCase):
    def setUp(self):
        super().setUp()
        (self.home / "models" / "other.gguf").write_bytes(tiny_gguf())
        self.add_docs()

    def test_the_memory_keeps_its_own(self):
        self.assertEqual(self.json_of("ask", "page", RHAPSODE_MODEL="other")["model"]["name"], "m")
        refused = self.run_program("ask", "page", "--model", "other")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("pass --reencode", refused.stderr)
        self.assertEqual(self.json_of("ask", "page", "--model", "other", "--reencode")["model"]["name"], "other")
        self.assertEqual(self.json_of("ask", "page")["model"]["name"], "other")

    def test_a_model_that_has_gone(self):
        (self.home / "models" / "m.gguf").unlink()
        self.assert_fails(1, f"the memory at .rhapsode was made with m, which is not at {self.home}/models/m.gguf any "
                             "more; --model FILE says where it is now", "ask", "page")
        self.assertEqual(self.run_program("list").returncode, 0, "what is stored needs no model")


class Ask(MemoryCase):
    def setUp(self):
        super().setUp()
        self.add_docs()

    def test_plain_text_in_a_pipe(self):
        self.assertEqual(self.succeed("ask", "How many tokens does a page hold?"),
                         'A page holds sixty-four tokens of one layer.\n\n'
                         '[1] docs/guide.md:3 "A page holds sixty-four tokens of one layer."\n')
        self.assertEqual(self.succeed("ask", "-", "--no-cite", stdin="tokens of a page?\n"),
                         "A page holds sixty-four tokens of one layer.\n")

    def test_json_shape(self):
        answer = self.json_of("ask", "tokens of a page")
        self.assertEqual(list(answer), ANSWER_FIELDS)
        self.assertEqual(list(answer["usage"]), USAGE_FIELDS)
        self.assertEqual(list(answer["timing"]), TIMING_FIELDS)
        self.assertEqual(list(answer["citations"][0]), CITATION_FIELDS)
        self.assertEqual(list(answer["passages"][0]), FOUND_FIELDS)
        self.assertEqual((answer["abstained"], answer["policy"], answer["finish"]), (False, "reuse", "end"))
        citation = answer["citations"][0]
        self.assertIsNone(citation["page"])
        text = (self.work / citation["source"]).read_bytes()
        self.assertEqual(text[citation["start_byte"]:citation["end_byte"]].decode(), citation["quote"])

    def test_hops(self):
        answer = self.json_of("ask", "--hops", "2", "tokens of a page")
        self.assertEqual([list(hop) for hop in answer["hops"]], [HOP_FIELDS] * 2)
        self.assertEqual(self.json_of("ask", "tokens of a page")["hops"], [])
        found, linked = (hop["passages"][0] for hop in answer["hops"])
        self.assertEqual(list(linked), FOUND_FIELDS)
        self.assertEqual((found["found_by"], found["link"]), ("search", None))
        self.assertEqual((linked["found_by"], linked["link"]), ("link", {"from": 1, "mention": "page"}))
        _, shown = self.run_on_terminal("ask", "--hops", "2", "-v", "tokens of a page", NO_COLOR="1")
        self.assertIn('hop 2: tokens of a page 2\r\n    docs/guide.md:3 (linked by "page")\r\n', shown)
        self.assertNotIn("hop 1", self.succeed("ask", "--hops", "2", "tokens of a page"))

    def test_trace(self):
        self.assertIsNone(self.json_of("ask", "tokens of a page")["trace"])
        plain = self.succeed("ask", "tokens of a page", "--answer-trace", "trace.json")
        self.assertEqual(plain, self.succeed("ask", "tokens of a page"))
        trace = json.loads((self.work / "trace.json").read_text())
        self.assertEqual(list(trace), TRACE_FIELDS)
        self.assertEqual((trace["format"], trace["version"]), ("rhapsode-answer-trace", 1))
        self.assertEqual(list(trace["passages"][0]), PASSAGE_FIELDS)
        self.assertEqual(list(trace["routings"][0]), ROUTING_FIELDS)
        self.assertEqual(list(trace["routings"][0]["found"][0]), TRACED_FOUND_FIELDS)
        self.assertEqual(list(trace["routings"][0]["places"][0]), PLACE_FIELDS)
        self.assertEqual(list(trace["tokens"][0]), TOKEN_FIELDS)
        self.assertEqual(list(trace["tokens"][0]["attention"]), ["prefix", "passages", "question", "answer"])
        self.assertEqual("".join(token["text"] for token in trace["tokens"]), trace["answer"])
        self.assertEqual(self.json_of("ask", "tokens of a page", "--heat-map")["trace"]["tokens"], trace["tokens"])
        for message, file in [("there is no folder nowhere", "nowhere/trace.json"), ("docs is a folder", "docs"),
                              ("--heat-map shows the trace here", "-")]:
            refused = self.run_program("ask", "tokens of a page", "--answer-trace", file)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(message, refused.stderr)
            self.assertEqual(refused.stdout, "", "nothing was asked")

    def test_heat_map(self):
        shown = self.succeed("ask", "--heat-map", "--no-cite", "tokens of a page", LC_ALL="C")
        lines = shown.splitlines()
        self.assertIn("% A page holds sixty-four", lines[2])
        self.assertTrue(lines[3].startswith("docs/guide.md:3"), shown)
        self.assertIn("#", lines[3])
        self.assertTrue(all(len(line) <= 80 for line in lines), shown)
        self.assertIn("█", self.succeed("ask", "--heat-map", "tokens of a page", LC_ALL="C.UTF-8"))
        self.assertNotIn("%", self.succeed("ask", "zebra", "--heat-map"))
        self.assertIn("█", self.succeed("chat", "--heat-map", stdin="tokens of a page\n", LC_ALL="C.UTF-8"))

    def test_routing_again(self):
        answer = self.json_of("ask", "--reroute-sentences", "--heat-map", "tokens of a page")
        self.assertEqual(answer["usage"]["reroutings"], 1)
        again = answer["trace"]["routings"][1]
        self.assertEqual((again["cause"], again["joined"], again["places"]), ("sentence", [], []))
        self.assertEqual(again["query"], "tokens of a page " + answer["answer"])
        self.assertEqual(self.json_of("ask", "tokens of a page")["usage"]["reroutings"], 0)
        refused = self.run_program("chat", "--conversation", "c", "--reroute-every", "4", stdin="a\n")
        self.assertIn("--reroute-every does not apply to a conversation that is kept", refused.stderr)

    def test_json_lines(self):
        output = self.succeed("ask", "--json", "--stream", "tokens of a page")
        events = [json.loads(line) for line in output.splitlines()]
        self.assertEqual({event["event"] for event in events[:-1]}, {"text"})
        self.assertEqual(list(events[-1]), ["event", *ANSWER_FIELDS])
        self.assertEqual("".join(event["text"] for event in events[:-1]), events[-1]["answer"])

    def test_abstention(self):
        self.assertEqual(self.succeed("ask", "zebra"), "The memory does not say.\n")
        answer = self.json_of("ask", "zebra")
        self.assertEqual((answer["abstained"], answer["citations"]), (True, []))
        self.assertIs(self.json_of("ask", "zebra", "--no-abstain")["abstained"], False)
        _, shown = self.run_on_terminal("ask", "zebra", NO_COLOR="1")
        self.assertIn("nothing fit was found; --no-abstain answers all the same", shown)

    def test_what_is_read(self):
        answer = self.json_of("ask", "page cache", "--read", "3,2", "--policy", "full", "--source", "docs/guide.md")
        self.assertEqual({passage["id"] for passage in answer["passages"]}, {2, 3})
        self.assertEqual((answer["policy"], answer["policy_reason"]), ("full", "as asked"))
        self.assertEqual(len(self.json_of("ask", "page cache first tokens", "--passages", "1")["passages"]), 1)
        self.assertEqual(self.json_of("ask", "tokens of a page", "-n", "2")["finish"], "length")

    def test_refusals(self):
        for code, message, arguments in [
            (2, "the question is empty; give some text", [""]),
            (2, "--policy must be one of auto, full, prefix, reuse, blend, reorder; mix given",
             ["a", "--policy", "mix"]),
            (2, "--budget must be at least 1; 0 given", ["a", "--budget", "0"]),
            (1, "the memory holds no source 'guid.md'; did you mean 'docs/guide.md'?", ["a", "--source", "guid.md"]),
            (1, "the memory holds no source 'xyz'; `rhapsode list` shows what it holds", ["a", "--source", "xyz"]),
            (1, "no source of the memory has the tag 'x'", ["a", "--tag", "x"]),
            (1, "more tokens than the context holds", ["a", "-n", "1000001"]),
            (1, "there is no memory at nowhere; `rhapsode add PATH...` makes one", ["a", "--memory", "nowhere"]),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_fails(code, message, "ask", *arguments)
        os.chdir("/")
        self.assert_fails(1, f"there is no memory at {self.home}/memory; `rhapsode add PATH...` makes one, --memory "
                             "FOLDER names another", "ask", "a")

    def test_ctrl_c_prints_what_is_there(self):
        process = self.start("ask", "tokens of a page", RHAPSODE_FAKE_DELAY_MS="200")
        first = os.read(process.stdout.fileno(), 2).decode()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
        self.assertRegex(first + output.decode(), r"^A (page )?(holds )?\n$")
        self.assertEqual((process.returncode, errors), (130, b""))

    def test_ctrl_c_does_not_wait_for_a_long_pass(self):
        process = self.start("ask", "tokens of a page", RHAPSODE_FAKE_DELAY_MS="60000")
        time.sleep(0.5)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE_S), 130)
        self.assertLess(time.monotonic() - begin, 5)

    def test_on_a_terminal(self):
        code, shown = self.run_on_terminal("ask", "-v", "tokens of a page")
        self.assertEqual(code, 0)
        self.assertIn("Reading the memory …", shown)
        self.assertIn("\x1b[36m[1]\x1b[0m docs/guide.md:3", shown)
        self.assertRegex(shown, r"\x1b\[2mfirst token after 0.04 s \(.*\) · \d+ tokens reused, \d+ evaluated · .*reuse")
        self.assertRegex(shown, r"docs/guide.md:3 +\d+  \d\.\d+  on disk")
        _, narrow = self.run_on_terminal("ask", "tokens of a page", columns=40, NO_COLOR="1")
        self.assertIn('[1] docs/guide.md:3 "A page holds\r\n    sixty-four tokens of one layer."\r\n', narrow)


class Search(MemoryCase):
    def setUp(self):
        super().setUp()
        self.add_docs()

    def test_hits_and_their_scores(self):
        found = self.json_of("search", "cache of page tokens", "--limit", "5")
        self.assertEqual(list(found), ["question", "passages"])
        self.assertEqual(list(found["passages"][0]), [*FOUND_FIELDS, "latent_z", "keywords_z"])
        self.assertEqual([hit["line"] for hit in found["passages"]], [3, 5])
        self.assertEqual(len(self.json_of("search", "cache of page tokens", "--limit", "1")["passages"]), 1)
        self.assertEqual(self.json_of("search", "page", "--no-latent")["passages"][0]["latent"], 0)
        self.assertEqual(self.succeed("search", "zebra"), "nothing found\n")
        shown = self.succeed("search", "What fills the cache?")
        self.assertIn(" 1  docs/guide.md:5\n    score ", shown)
        self.assertIn("\n    The cache is filled on the first read.\n", shown)

    def test_something_must_search(self):
        self.assert_fails(2, "--no-latent and --no-keywords leave nothing to search by; drop one of them", "search",
                          "x", "--no-latent", "--no-keywords")


class Sources(MemoryCase):
    def setUp(self):
        super().setUp()
        self.add_docs()

    def test_list(self):
        listed = self.json_of("list")
        self.assertEqual(list(listed), ["memory", "sources"])
        self.assertEqual(list(listed["sources"][0]), SOURCE_FIELDS)
        lines = self.succeed("list", "--source", "docs/sub").splitlines()
        self.assertEqual(lines[0].split(), ["source", "kind", "versions", "passages", "tokens", "size", "tags", "superseded", "by"])
        self.assertEqual(len(lines), 2)

    def test_list_in_a_narrow_terminal(self):
        (self.work / "docs" / "数字の案内と使い方.md").write_text("Zahlen.")
        self.add_docs()
        for columns in (40, 60, 80):
            _, shown = self.run_on_terminal("list", columns=columns, NO_COLOR="1")
            table = re.sub(r"\r\x1b\[K|Loading m …", "", shown)
            for line in table.splitlines():
                wide = len(re.findall(r"[\u3040-\u9fff]", line))
                self.assertLessEqual(len(line) + wide, columns, line)

    def test_show(self):
        detail = self.json_of("show", "docs/guide.md")
        self.assertEqual(list(detail), ["source", "versions", "passages", "problems"])
        self.assertEqual(list(detail["source"]), SOURCE_FIELDS)
        self.assertEqual(list(detail["versions"][0]), VERSION_FIELDS)
        self.assertEqual(list(detail["passages"][0]), PASSAGE_FIELDS)
        self.assertIsNone(detail["versions"][0]["replaced"])
        self.assertIn("on disk", self.succeed("show", "docs/guide.md"))
        self.assert_fails(1, "the memory holds no source 'docs/giude.md'; did you mean 'docs/guide.md'?", "show",
                          "docs/giude.md")

    def test_show_text_is_byte_exact(self):
        text = "no line feed at the end, a\ttab, an escape \x1b[31m and 数字"
        (self.work / "odd.txt").write_text(text)
        self.assertEqual(self.json_of("add", "odd.txt")["added"], 1)
        self.assertEqual(self.succeed("show", "--text", "odd.txt"), text)
        self.assertEqual(self.json_of("show", "--text", "odd.txt"), {"source": "odd.txt", "text": text})
        _, shown = self.run_on_terminal("show", "--text", "odd.txt")
        self.assertIn("␛[31m", shown)

    def test_forget(self):
        self.assert_fails(2, "forget needs a SOURCE or --tag TAG; `rhapsode list` shows what there is", "forget")
        self.assert_fails(2, "2 sources would be forgotten; pass --yes to do it without being asked", "forget", "docs")
        self.assert_fails(1, "the memory holds no source 'docs/guid.md'; did you mean 'docs/guide.md'?", "forget",
                          "docs/guid.md", "docs/sub", "-y")
        code, shown = self.run_on_terminal("forget", "docs", typed="n\n", NO_COLOR="1")
        self.assertIn("  docs/guide.md\r\n  docs/sub/hours.txt\r\nForget 2 sources for ever? [y/N] n", shown)
        self.assertIn("nothing was forgotten", shown)
        self.assertEqual((code, len(self.sources())), (1, 2))
        code, shown = self.run_on_terminal("forget", "docs/sub", typed="yes\n")
        self.assertRegex(shown, r"forgot 1 source: 1 passage, \d+ B freed")
        self.assertEqual((code, self.sources()), (0, ["docs/guide.md"]))
        self.assertEqual(list(self.json_of("forget", "-y", "docs/guide.md")), ["sources", "passages", "bytes", "derived",
                                                                                "derived_erased"])
        self.assertEqual(self.succeed("list"), "the memory holds no sources\n")

    def test_forget_by_tag(self):
        self.succeed("add", "-", "--name", "note", "--tag", "project", stdin="Remember this.")
        self.assert_fails(1, "no source of the memory has the tag 'projct'; did you mean 'project'?", "forget", "--tag",
                          "projct", "-y")
        self.assertEqual(self.json_of("forget", "--tag", "project", "-y")["sources"], ["note"])
        self.assertEqual(len(self.sources()), 2)


class UsersAndFacts(MemoryCase):
    def test_facts_are_recorded_listed_and_looked_back_on(self):
        self.add_docs()
        said = self.json_of("remember", "--user", "ana", "--speaker", "Ana", "--at", "2026-03-08",
                            "My favourite tea is oolong.")
        self.assertEqual(list(said), REMEMBER_FIELDS)
        self.assertEqual((said["recorded"], said["superseded"], said["generations"]), (1, 0, 0))
        self.assertEqual(list(said["facts"][0]), FACT_FIELDS)
        again = self.succeed("remember", "--user", "ana", "--speaker", "Ana", "-", stdin="Ana now dislikes oolong, prefers mint")
        self.assertEqual(again, "stated Ana: favourite tea: mint\n")
        facts = self.json_of("facts", "--user", "ana")
        self.assertEqual([fact["value"] for fact in facts["facts"]], ["mint"])
        history = self.json_of("facts", "--user", "ana", "--history", "Ana")["facts"]
        self.assertEqual([fact["value"] for fact in history], ["oolong", "mint"])
        self.assertEqual(self.json_of("facts", "--user", "ana", "Ben")["facts"], [])
        self.assertIn("favourite tea", self.succeed("facts", "--user", "ana"))
        self.assertEqual(self.succeed("facts", "--user", "ben"), "no facts\n")
        self.assertEqual(self.succeed("remember", "--user", "ana", "What is my favourite tea?"), "no fact in this\n")

    def test_without_a_user_nothing_of_anybody_is_shown(self):
        self.add_docs()
        self.succeed("add", "docs/guide.md")
        own = self.work / "own.txt"
        own.write_text("The canary of Ana is a page.")
        self.assertEqual(self.run_program("add", "--user", "ana", "own.txt").returncode, 0)
        commands = [["list"], ["search", "page"], ["ask", "page"], ["show", "docs/guide.md"],
                    ["show", "--text", "docs/guide.md"], ["forget", "--yes", "docs/guide.md"], ["facts"], ["stats"],
                    ["verify"], ["export", "out.rhapsode"]]
        for command in commands:
            result = self.run_program(*command)
            self.assertEqual(result.returncode, 1, command)
            self.assertIn("--all-users", result.stderr, command)
        for command in commands[:3]:
            self.assertNotIn("canary", self.succeed(*command, "--user", "ben", "--json"), command)
            self.assertIn("@ana/own.txt", self.succeed(*command, "--user", "ana", "--json"), command)
        self.assertEqual(self.run_program("show", "--user", "ben", "@ana/own.txt").returncode, 1)
        self.succeed("stats", "--all-users")

    def test_superseded_sources_are_told(self):
        self.add_docs()
        self.assertEqual(self.run_program("add", "--supersedes", "docs/guide.md", "docs/sub/hours.txt").returncode, 0)
        (self.work / "new.md").write_text("New pages.")
        self.assertEqual(self.run_program("add", "--supersedes", "docs/guide.md", "new.md").returncode, 0)
        sources = {source["source"]: source for source in self.json_of("list")["sources"]}
        self.assertEqual(sources["docs/guide.md"]["superseded_by"], ["new.md"])
        self.assertEqual(sources["new.md"]["supersedes"], ["docs/guide.md"])
        self.assertIn("superseded by", self.succeed("show", "docs/guide.md"))


class Care(MemoryCase):
    def setUp(self):
        super().setUp()
        self.add_docs()

    def test_stats(self):
        stats = self.json_of("stats")
        self.assertEqual(list(stats), STATS_FIELDS)
        self.assertEqual(stats["sources"], 2)
        self.assertRegex(self.succeed("stats"), r"(?m)^sources +2 in 2 versions, 2 of them distinct$")
        self.json_of("add", "docs", "--cap", "20GiB")
        self.assertEqual(self.json_of("stats")["kv_cap_bytes"], 20 << 30)

    def test_verify(self):
        self.assertEqual(list(self.json_of("verify")), VERIFY_FIELDS)
        self.assertTrue(self.succeed("verify", "--sample", "0.5").startswith("sound: 2 extents and 2 texts checked, "))
        (self.work / "docs" / "bad.txt").write_text("DAMAGED")
        self.json_of("add", "docs")
        self.assertEqual(self.json_of("verify", code=1)["problems"],
                         [{"source": "docs/bad.txt", "reason": "the checksum of its text is wrong"}])
        result = self.run_program("verify")
        self.assertEqual(result.returncode, 1)
        self.assertIn("1 problem: ", result.stdout)

    def test_export_and_import(self):
        self.assertEqual(list(self.json_of("export", "out.rhapsode")), ["memory", "file", "bytes"])
        self.assert_fails(2, "out.rhapsode exists; pass --yes to replace it", "export", "out.rhapsode")
        self.succeed("export", "out.rhapsode", "--yes")
        self.assertEqual(list(self.json_of("import", "out.rhapsode", "--memory", "copy")),
                         ["memory", "file", "model", "model_path", "fingerprint"])
        self.assertEqual(len(self.json_of("list", "--memory", "copy")["sources"]), 2)
        self.assert_fails(2, "there is a memory at copy already; --memory FOLDER names a folder that is absent or empty",
                          "import", "out.rhapsode", "--memory", "copy")
        self.assert_fails(2, "there is a memory at .rhapsode already; --memory FOLDER names a folder that is absent or "
                             "empty", "import", "out.rhapsode")
        self.assert_fails(1, "nothing.rhapsode does not exist", "import", "nothing.rhapsode", "--memory", "new")

    def test_a_memory_whose_making_did_not_get_far(self):
        kept = json.loads((self.work / ".rhapsode" / "fake.json").read_text())
        (self.work / ".rhapsode" / "fake.json").write_text(json.dumps({**kept, "sources": {}, "model_path": ""}))
        self.assert_fails(1, "there is no memory at .rhapsode; `rhapsode add PATH...` makes one, --memory FOLDER names "
                             "another", "list")
        self.assertIs(self.json_of("add", "docs")["made"], True)

    def test_a_damaged_memory_is_not_overlooked(self):
        (self.work / ".rhapsode" / "fake.json").write_text("{")
        for command in (["list"], ["add", "docs"], ["ask", "x"]):
            result = self.run_program(*command, "--json")
            self.assertEqual((result.returncode, json.loads(result.stdout)["error"]["kind"]), (1, "corrupt"), command)

    def test_answers_made_of_what_is_forgotten_are_told(self):
        (self.work / "docs").mkdir(exist_ok=True)
        (self.work / "docs" / "told.md").write_text("DERIVED: the code is 7b21.\n")
        self.succeed("add", "docs")
        result = self.run_program("forget", "-y", "docs/told.md")
        self.assertIn("1 answer in conversations was given with this in view; they stay unless --derived is given:\n",
                      result.stderr)
        self.assertIn("work #3: It says so in docs/told.md.", result.stderr)
        self.succeed("add", "docs")
        report = self.json_of("forget", "-y", "--derived", "docs/told.md")
        self.assertEqual(report["derived"], [{"conversation": "work", "message": 3, "time": "2026-03-01T12:00:00Z",
                                              "text": "It says so in docs/told.md."}])
        self.assertIs(report["derived_erased"], True)


class Chat(MemoryCase):
    def setUp(self):
        super().setUp()
        self.add_docs()

    def test_lines_of_a_pipe(self):
        shown = self.succeed("chat", stdin="tokens of a page?\n\n  cache?  \nzebra")
        self.assertEqual(shown, 'A page holds sixty-four tokens of one layer.\n\n'
                                '[1] docs/guide.md:3 "A page holds sixty-four tokens of one layer."\n\n'
                                '2: The cache is filled on the first read.\n\n'
                                '[1] docs/guide.md:5 "The cache is filled on the first read."\n\n'
                                'The memory does not say.\n\n')

    def test_json_is_an_answer_a_line(self):
        result = self.run_program("chat", "--json", stdin="tokens of a page\r\n/new\ncache\n/quit\nnever\n")
        answers = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([list(answer) for answer in answers], [ANSWER_FIELDS] * 2)
        self.assertEqual(answers[1]["answer"], "The cache is filled on the first read.")
        self.assertEqual((result.returncode, result.stderr), (0, "a new conversation begins\n"))

    def test_an_error_does_not_end_it(self):
        result = self.run_program("chat", "-n", "1000001", "--json", stdin="page\ncache\n")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stdout.splitlines()), 2)
        self.assertEqual(json.loads(result.stdout.splitlines()[1])["error"]["kind"], "too_large")

    def test_on_a_terminal(self):
        code, shown = self.run_on_terminal("chat", NO_COLOR="1",
                                           typed=["tokens of a page?\n", "/sources\n", "/nope\n", "\x04"])
        self.assertEqual(code, 0)
        self.assertIn("2 sources at .rhapsode · m · /help lists what else there is\r\n> ", shown)
        self.assertIn("[1] docs/guide.md:3 ", shown)
        self.assertIn("passage read ", shown)
        self.assertIn("there is no /nope; /help lists what there is", shown)

    def test_a_conversation_is_kept_under_its_name(self):
        said = self.succeed("chat", "--conversation", "work", stdin="tokens of a page?\n")
        self.assertEqual(said, "A page holds sixty-four tokens of one layer.\n\n")
        result = self.run_program("chat", "--conversation", "work", "--speaker", "Ada", "--json", stdin="cache\n")
        reply = json.loads(result.stdout)
        self.assertEqual(list(reply), REPLY_FIELDS)
        self.assertEqual(list(reply["usage"]), ["message_tokens", "generated_tokens", "evaluated_tokens",
                                                "made_anew_tokens", "index_tokens", "probe_tokens",
                                                "recalled_tokens", "live_tokens"])
        self.assertEqual((reply["turn"], reply["message"], reply["conversation"]), (1, 3, "work"))
        self.assertEqual([passage["source"] for passage in reply["recalled"]], ["docs/guide.md"])
        history = self.succeed("chat", "--conversation", "work", stdin="/history\n").splitlines()
        self.assertEqual(history[0], "[user, 2026-03-01T12:00] tokens of a page?")
        self.assertEqual(history[2], "[Ada, 2026-03-01T12:00] cache")

    def test_a_conversation_spills_and_forks(self):
        lines = "cache\n" * 40
        result = self.run_program("chat", "--conversation", "long", "--live-budget", "256", "--json", stdin=lines)
        replies = [json.loads(line) for line in result.stdout.splitlines()]
        spilled = [entry for reply in replies for entry in reply["spilled"]]
        self.assertGreater(len(spilled), 0)
        self.assertEqual(list(spilled[0]), ["passage", "source", "tokens", "first_message", "last_message"])
        self.assertLessEqual(max(reply["usage"]["live_tokens"] for reply in replies), 256)
        result = self.run_program("chat", "--conversation", "branch", "--fork-from", "long", "--json", stdin="cache\n")
        self.assertEqual(json.loads(result.stdout)["turn"], 40)

    def test_options_that_do_not_fit_a_conversation(self):
        for arguments, sentence in [
                (["--conversation", "a", "--order", "parallel"], "--order does not apply to a conversation that is kept"),
                (["--conversation", "a", "--no-cite"], "--no-cite does not apply to a conversation that is kept"),
                (["--speaker", "Ada"], "need a conversation that is kept: name it with --conversation NAME"),
                (["--conversation", "a/b"], "'a/b' is no name of a conversation"),
                (["--conversation", "a", "--fork-from", "b"], "the memory has no conversation 'b'")]:
            with self.subTest(arguments=arguments):
                result = self.run_program("chat", *arguments, stdin="page\n")
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(sentence, result.stderr)

    def test_ctrl_c_stops_the_answer_and_not_the_chat(self):
        code, shown = self.run_on_terminal("chat", RHAPSODE_FAKE_DELAY_MS="400", NO_COLOR="1",
                                           typed=["tokens of a page?\n", "\x03", "/quit\n"])
        self.assertEqual(code, 0)
        self.assertIn("stopped", shown)
        self.assertNotIn("layer.", shown)


class Help(MemoryCase):
    def examples(self, command):
        lines = self.run_program(command, "--help").stdout.split("Examples\n")[1].splitlines()
        return [line.strip() for line in lines[:lines.index("")]]

    def test_every_example_runs(self):
        """As a shell reads it, in a folder that has what it names."""
        for name in ("notes", "law"):
            (self.work / name).mkdir()
            (self.work / name / "a.md").write_text("A page about the project.")
        for path in ("README.md", "docs/old.md", "question.txt", "law.rhapsode"):
            (self.work / path).write_text("What is a page? A question about the project.")
        for folder in ("docs/guide", "docs/drafts"):
            (self.work / folder).mkdir()
            (self.work / folder / "b.md").write_text("A page holds tokens of the project.")
        (self.home / "papers").mkdir()
        (self.home / "papers" / "p.txt").write_text("A paper.")
        (self.home / "models" / "qwen2.5-coder-1.5b.gguf").write_bytes(tiny_gguf())
        programs = self.home / "bin"
        programs.mkdir()
        (programs / "rhapsode").symlink_to(self.program)
        (programs / "git").write_text("#!/bin/sh\necho commit of the project\n")
        (programs / "git").chmod(0o755)
        path = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.home)}
        self.run_program("add", "README.md", "docs", "--tag", "project")
        for command in ("add", "remember", "facts", "ask", "search", "chat", "list", "show", "verify", "stats", "export", "import", "forget"):
            for example in self.examples(command):
                with self.subTest(example):
                    if command == "import":
                        shutil.copy(self.home / "law" / "fake.json", self.work / "law.rhapsode")
                    result = subprocess.run(["/bin/sh", "-c", example], env=self.environment(**path), text=True,
                                            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
                    needs_answer = command == "forget" and "--yes" not in shlex.split(example)
                    self.assertEqual(result.returncode, 2 if needs_answer else 0, result.stderr)


if __name__ == "__main__":
    ProgramCase.program = os.path.abspath(sys.argv.pop(1))
    unittest.main()
