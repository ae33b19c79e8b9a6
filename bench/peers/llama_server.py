#!/usr/bin/env python3
"""Our memory beside llama-server on the same prompts, question by question in one run.

A set of passages, and questions that each read some of them in random order: what retrieval gives an engine. One
passage holds the answer, the others are drawn at random; place, company and order change from question to question,
so an exact prefix seldom serves. Both sides get the same text: the memory reads stored KV (policy `reuse`), the server
has `--cache-reuse`, its prompt cache in RAM, and slots. Each question goes to one side, then to the other, so that both
feel the same load of the machine; time to the first token is taken here, from sending the question to the first piece
of text, for both.

  python3 bench/peers/llama_server.py --reader build/bench/rhapsode_memory_reader --server llama-server \\
      --model MODEL.gguf --data xquad.en.json --output results.jsonl

Data: SQuAD's format. Passages are the opening paragraphs of `--passages` articles, up to --words words each; questions
are drawn among those on them, each once, then from the first again, among other passages; all by --seed. Only the standard
library is needed. Prints a summary as JSON; --output gets a line a question and side.
"""

import argparse
import collections
import contextlib
import http.client
import json
import random
import re
import socket
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INSTRUCTION = ("You answer questions. Use only the given documents. Reply with the short answer only (a name, a phrase, "
               "a number, or yes/no), without any explanation and without repeating the question.\n"
               "Example: Question: In which city is the Eiffel Tower? Answer: Paris")


def normalized(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def token_f1(answer, golds):
    """SQuAD's F1: the best over the accepted answers."""
    best = 0.0
    for gold in golds:
        said, wanted = normalized(answer), normalized(gold)
        common = sum((collections.Counter(said) & collections.Counter(wanted)).values())
        if common:
            best = max(best, 2 * common / (len(said) + len(wanted)))
    return best


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def read_data(path, passages, words):
    """[(title, text, [(question, answers)])] of the first articles of a seeded order."""
    articles = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
    random.shuffle(articles)
    chosen = []
    for article in articles:
        texts, questions, length = [], [], 0
        for paragraph in article["paragraphs"]:
            length += len(paragraph["context"].split())
            if texts and length > words:
                break
            texts.append(paragraph["context"])
            questions += [(qa["question"], [a["text"] for a in qa["answers"]]) for qa in paragraph["qas"]]
        if length <= 1.5 * words:
            chosen.append((article.get("title") or f"article {len(chosen) + 1}", "\n\n".join(texts), questions))
        if len(chosen) == passages:
            return chosen
    sys.exit(f"{path} has {len(chosen)} passages of at most {words} words; {passages} were asked for")


class Reader:
    """A process with one memory of ours."""

    def __init__(self, arguments, folder):
        self.process = subprocess.Popen(
            [arguments.reader, arguments.model, str(folder / "memory"), INSTRUCTION, str(arguments.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", cwd=folder)
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the memory reader ended")
        reply = json.loads(line)
        if "error" in reply:
            sys.exit(f"the memory reader: {reply['error']}")
        return reply

    def call(self, command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Ours:
    """Our side, under one policy."""

    def __init__(self, reader, policy):
        self.reader = reader
        self.policy = policy
        self.name = policy

    def ask(self, question, passages, max_tokens):
        command = {"ask": question, "passages": [p["id"] for p in passages], "policy": self.policy,
                   "max_tokens": max_tokens}
        begin = time.monotonic()
        reply = self.reader.call(command)
        ttft = time.monotonic() - begin
        if reply.get("event") == "text":
            reply = self.reader.read()
        return {"text": reply["text"], "ttft_s": ttft,
                "evaluated": reply["evaluated_tokens"] + reply["recomputed_tokens"],
                "prompt": reply["prompt_tokens"]}


class Server:
    """The peer: llama-server with everything it has for repeated text."""

    name = "llama-server"

    def __init__(self, arguments):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [arguments.server, "--model", arguments.model, "--host", "127.0.0.1", "--port", str(self.port),
                   "--threads", str(arguments.threads), "--threads-batch", str(arguments.threads),
                   "--parallel", str(arguments.slots), "--ctx-size", str(arguments.slots * arguments.slot_tokens),
                   "--cache-reuse", str(arguments.cache_reuse), "--cache-ram", str(arguments.cache_ram),
                   "--flash-attn", "on", *arguments.server_option]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"llama-server ended with {self.process.returncode}: {' '.join(command)}")
            with contextlib.suppress(OSError):
                if self.request("GET", "/health").status == 200:
                    return
            time.sleep(0.5)
        sys.exit("llama-server did not start")

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json"})
        return connection.getresponse()

    def prompt(self, question, passages):
        """The prompt of the memory, as text, in the server's own rendering of the model's template."""
        documents = "".join(f"{p['header']}\n{p['text'].rstrip()}\n\n" for p in passages)
        messages = [{"role": "system", "content": INSTRUCTION},
                    {"role": "user", "content": f"Documents:\n\n{documents}Question: {question}"}]
        return json.loads(self.request("POST", "/apply-template", {"messages": messages}).read())["prompt"]

    def ask(self, question, passages, max_tokens):
        body = {"prompt": self.prompt(question, passages), "n_predict": max_tokens, "temperature": 0, "stream": True,
                "cache_prompt": True}
        begin = time.monotonic()
        response = self.request("POST", "/completion", body)
        text, ttft, last = "", None, {}
        for line in response:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            last = json.loads(line[6:])
            if "error" in last:
                sys.exit(f"llama-server: {last['error']}")
            if ttft is None:
                ttft = time.monotonic() - begin
            text += last.get("content", "")
        timings = last.get("timings", {})
        evaluated, cached = timings["prompt_n"], timings.get("cache_n", 0)
        return {"text": text, "ttft_s": ttft, "evaluated": evaluated, "prompt": evaluated + cached}

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)


def ask_all(sides, questions, passages, arguments, output):
    rows = []
    for number, (question, answers, home) in enumerate(questions, 1):
        drawn = random.sample([p for p in passages if p is not home], arguments.drawn - 1) + [home]
        random.shuffle(drawn)
        for side in sides if number % 2 else sides[::-1]:
            row = {"question": number, "side": side.name, **side.ask(question, drawn, arguments.max_tokens)}
            row["f1"] = token_f1(row["text"], answers)
            rows.append(row)
            if output:
                output.write(json.dumps({**row, "asked": question, "answers": answers}) + "\n")
                output.flush()
        print(f"\r{number} of {len(questions)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def summary_of(rows):
    first, last = rows[:20], rows[-20:]

    def reuse(part):
        return 1 - sum(r["evaluated"] for r in part) / max(1, sum(r["prompt"] for r in part))

    return {"questions": len(rows), "f1": round(sum(r["f1"] for r in rows) / len(rows), 4),
            "ttft_p50_s": round(percentile([r["ttft_s"] for r in rows], 0.5), 4),
            "ttft_p95_s": round(percentile([r["ttft_s"] for r in rows], 0.95), 4),
            "evaluated_tokens": sum(r["evaluated"] for r in rows), "prompt_tokens": sum(r["prompt"] for r in rows),
            "reuse_first_20": round(reuse(first), 4), "reuse_last_20": round(reuse(last), 4)}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--reader", required=True, help="build/bench/rhapsode_memory_reader")
    parser.add_argument("--server", help="the llama-server program (absent: only our side)")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--output")
    parser.add_argument("--policies", default="reuse", help="of ours, each a side of its own: reuse,blend,prefix,full")
    parser.add_argument("--passages", type=int, default=20)
    parser.add_argument("--words", type=int, default=380)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--drawn", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--slot-tokens", type=int, default=8192)
    parser.add_argument("--cache-reuse", type=int, default=256)
    parser.add_argument("--cache-ram", type=int, default=8192, help="MiB of the server's prompt cache")
    parser.add_argument("--server-option", action="append", default=[], help="handed to llama-server as it is")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    for name in ("reader", "model"):
        setattr(arguments, name, str(Path(getattr(arguments, name)).resolve()))
    random.seed(arguments.seed)
    data = read_data(arguments.data, arguments.passages, arguments.words)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "docs").mkdir()
        for number, (title, text, _) in enumerate(data):
            (folder / "docs" / f"{number:02}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
        reader = Reader(arguments, folder)
        stack.callback(reader.close)
        begin = time.monotonic()
        added = reader.call({"add": ["docs"]})["passages"]
        add_seconds = time.monotonic() - begin
        passages = sorted(added, key=lambda p: p["source"])
        if len(passages) != len(data):
            sys.exit(f"{len(data)} texts became {len(passages)} passages: lower --words")
        before = reader.call({"stats": True})
        sides = [Ours(reader, policy) for policy in arguments.policies.split(",")]
        if arguments.server:
            sides.append(Server(arguments))
            stack.callback(sides[-1].close)
        candidates = [(q, a, p) for (_, _, questions), p in zip(data, passages) for q, a in questions]
        questions = []
        while candidates and len(questions) < arguments.questions:
            questions += random.sample(candidates, min(arguments.questions - len(questions), len(candidates)))
        for side in sides:  # pages of the model come from disk once
            side.ask("Is this a question?", passages[:1], 1)
        output = stack.enter_context(open(arguments.output, "w", encoding="utf-8")) if arguments.output else None
        rows = ask_all(sides, questions, passages, arguments, output)
        after = reader.call({"stats": True})
        result = {"passages": len(passages), "passage_tokens": sum(p["tokens"] for p in passages),
                  "add_seconds": round(add_seconds, 2), "seed": arguments.seed, "kv_bytes_before": before["kv_bytes"],
                  "kv_bytes_after": after["kv_bytes"], "kv_misses": after["kv_misses"]}
        for side in sides:
            result[side.name] = summary_of([r for r in rows if r["side"] == side.name])
        if arguments.server:
            for side in sides[:-1]:
                ratio = result["llama-server"]["ttft_p50_s"] / result[side.name]["ttft_p50_s"]
                result[side.name]["ttft_p50_ratio"] = round(ratio, 2)
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
