#!/usr/bin/env python3
"""Trains the evidence ranker: weights of the numbers that are known of a question's candidates.

Its input are results of `rhapsode eval TASK --recall-only --contexts CONTEXT --depth 400`: every candidate of a question
with its numbers (`evidence`) and which evidence it holds (`gold`). Listwise: the softmax of the scores over a question's
candidates should put its mass on those that hold evidence, in equal parts; every file counts alike, however many
questions it has. Weights are trained kind by kind: those for judged candidates over what the program gathers and
judges with the others.

  python3 python/train_evidence.py --start start.gguf
  rhapsode eval multihop-dev --recall-only --contexts evidence --depth 400 --ranker start.gguf --output a.jsonl
  python3 python/train_evidence.py --kind found --output found.gguf a.jsonl
  rhapsode eval multihop-dev --recall-only --contexts evidence+judged --depth 400 --ranker found.gguf --output b.jsonl
  python3 python/train_evidence.py --kind judged --base found.gguf --output evidence.gguf b.jsonl

A question belongs to one of two folds by a hash of its id; `--fold 0` trains on fold 0 and reports fold 1, so that what
is reported was never trained on. Needs numpy and gguf (requirements-test.txt).
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import gguf
import numpy

HEADER = Path(__file__).resolve().parent.parent / "src/recall/evidence_model.h"
KINDS = ("found", "judged")


def feature_names():
    """The features in their order, from the one place that lists them."""
    text = HEADER.read_text()
    block = text[text.index("kEvidenceFeatures = {"):text.index("};", text.index("kEvidenceFeatures"))]
    return [line.split('"')[1] for line in block.splitlines() if line.strip().startswith('"')]


def fold_of(question):
    return int(hashlib.sha256(question.id.encode()).hexdigest(), 16) % 2


class Question:
    """Candidates of one question: numbers [candidates][features], and the evidence each holds."""

    def __init__(self, record):
        self.id, self.group = record["id"], record["group"]
        self.rows = numpy.array([one["evidence"] for one in record["ranked"]], dtype=numpy.float64)
        self.gold = [one["gold"] for one in record["ranked"]]
        self.documents = [one["document"] for one in record["ranked"]]
        self.holds = numpy.array([bool(gold) for gold in self.gold], dtype=numpy.float64)
        self.golds = record["golds"]


def read(path):
    questions = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record.get("golds") and record.get("ranked") and "evidence" in record["ranked"][0]:
                questions.append(Question(record))
    return questions


def train(files, penalty, steps=600, rate=0.05):
    """Adam on the listwise loss; deterministic. Returns weights of the features as they are."""
    used = [[q for q in questions if q.holds.any()] for questions in files]
    rows = numpy.concatenate([q.rows for questions in used for q in questions])
    scale = numpy.where(rows.std(0) > 1e-9, rows.std(0), 1.0)
    weights = numpy.zeros(rows.shape[1])
    first, second = numpy.zeros_like(weights), numpy.zeros_like(weights)
    for step in range(1, steps + 1):
        gradient = penalty * weights
        for questions in used:
            for question in questions:
                rows = question.rows / scale
                scores = rows @ weights
                chance = numpy.exp(scores - scores.max())
                chance /= chance.sum()
                wanted = question.holds / question.holds.sum()
                gradient = gradient + rows.T @ (chance - wanted) / (len(questions) * len(used))
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        weights -= rate * (first / (1 - 0.9**step)) / (numpy.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return weights / scale


def recall(question, weights, count):
    """Share of the question's evidence among the first `count` documents; what is no candidate counts as missed."""
    order = numpy.argsort(-(question.rows @ weights), kind="stable")
    documents, found = [], set()
    for place in order:
        if question.documents[place] not in documents:
            documents.append(question.documents[place])
        if len(documents) > count:
            break
        found.update(question.gold[place])
    return len(found) / question.golds


def report(questions, weights, label):
    for group in sorted({q.group for q in questions}):
        some = [q for q in questions if q.group == group]
        values = {k: numpy.mean([recall(q, weights, k) for q in some]) for k in (1, 2, 5, 10)}
        print(f"{label:28s} {group:12s} {len(some):4d} questions: recall@1/2/5/10 "
              + " ".join(f"{100 * value:.1f}" for value in values.values()))


def write(path, weights):
    names = feature_names()
    writer = gguf.GGUFWriter(path, "rhapsode-evidence")
    writer.add_array("evidence.features", names)
    for kind, values in weights.items():
        writer.add_tensor(f"evidence.{kind}", numpy.asarray(values, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def weights_of(path):
    return {t.name.removeprefix("evidence."): numpy.array(t.data, numpy.float64) for t in gguf.GGUFReader(path).tensors}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--start", type=Path, help="only write weights that rank as finding does")
    parser.add_argument("--kind", choices=KINDS, default="found")
    parser.add_argument("--base", type=Path, help="weights of the other kind")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--fold", type=int, choices=(0, 1), help="train on this one of two, report the other")
    parser.add_argument("--penalty", type=float, default=1e-3)
    arguments = parser.parse_args()
    names = feature_names()
    if arguments.start:
        write(arguments.start, dict.fromkeys(KINDS, [float(name == "fused") for name in names]))
        return
    files = [read(path) for path in arguments.results]
    if not all(files):
        parser.error("a file of results has no candidates with evidence: run eval with --contexts evidence --depth 400")
    wanted = arguments.fold
    used = [[q for q in questions if wanted is None or fold_of(q) == wanted] for questions in files]
    weights = train(used, arguments.penalty)
    for path, questions in zip(arguments.results, files):
        shown = [q for q in questions if wanted is None or fold_of(q) != wanted]
        report(shown, weights, path.name if wanted is None else f"{path.name}, fold {1 - wanted}")
    for name, weight in sorted(zip(names, weights), key=lambda pair: -abs(pair[1])):
        print(f"    {name:26s} {weight:+.3f}", file=sys.stderr)
    if arguments.output:
        known = weights_of(arguments.base) if arguments.base else dict.fromkeys(KINDS, weights)
        write(arguments.output, known | {arguments.kind: weights})


if __name__ == "__main__":
    main()
