"""Every command on small valid inputs, and which of its files a mutation may spoil."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.lab.commands.grade import _deciding
from tandem_plugin.lab.evaluation.checkpoint import fingerprint_folder
from tandem_plugin.lab.evaluation.drift import SMOOTHING, drift_metrics, write_counts
from tandem_plugin.lab.evaluation.results import run_folder, write_summary
from tandem_plugin.lab.rollouts.grades import input_digest, response_digest

__all__ = ["COMMANDS", "Command", "make_inputs"]

PIECES = ("a", "b", "Ġa", "Ġb", "ĊĊ", "c", "Ġ", ".")
SENIORS = {"base": 1, "GRPO": 2, "TRL": 3}


def make_inputs(folder: Path) -> None:
    """Write the valid inputs of all commands."""
    rows = _rollouts()
    _lines(folder / "rollouts.jsonl", rows)
    _json(folder / "rollouts.jsonl.run.json", {"senior": "vocab.json", "seed": 0})
    _json(folder / "vocab.json", {piece: i for i, piece in enumerate(PIECES)})
    _tokenizer(folder / "tokenizer")
    _tokenizer(folder / "model")
    _json(folder / "model/config.json", {"model_type": "qwen3"})
    (folder / "model/model.safetensors").write_bytes(b"weights")
    problems: list[dict[str, Any]] = [
        {"problem": f"What do {i} and {i + 1} and seven more make?", "answer": i} for i in range(4)
    ]
    problems[1]["answer"] = ["3", "3.0"]
    problems[2] = {"messages": [{"role": "user", "content": "Add."}], "solution": "\\boxed{3}"}
    _lines(folder / "problems.jsonl", problems)
    _json(folder / "problems.json", {"data": problems})
    _lines(folder / "responses.jsonl", [{"response": f"\\boxed{{{i}}}", "gold": i} for i in "123"])
    grade = {"outcome": "correct", "reward": 1, "answer": "1", "rule": "text", "milliseconds": 1.5}
    known = {
        "golds": ["1"],
        "response_sha256": response_digest("\\boxed{1}"),
        "input_sha256": input_digest("\\boxed{1}", "1"),
    }
    _lines(folder / "grades.jsonl", [{"line": 1, **grade, **known}])
    _json(folder / "grades.jsonl.run.json", _deciding(seconds=5.0))
    for step in (1, 20):
        _lines(folder / f"dumps/{step}.jsonl", [row | {"step": step} for row in rows])
    for name, right in SENIORS.items():
        _results(folder / "results", folder / "model", name, right)


def _rollouts() -> list[dict[str, Any]]:
    vocabulary = Vocabulary(PIECES, "a test")
    rows = []
    for i, settings in enumerate(({"schedule": "word", "p": 0.5}, {"schedule": "chunk"})):
        rule = TandemRules(TandemConfig.from_mapping(settings), vocabulary).default
        ids = random.Random(i).choices(range(8), k=20)
        rows.append(
            {
                "problem": i, "sample": 0, "prompt": "2+2?", "answer": "4", "reward": 1.0,
                "response": b"".join(vocabulary.texts()[t] for t in ids).decode(),
                "response_ids": ids, "authorship": rule.replay(ids, 7).tolist(), "tandem_seed": 7,
                "tandem_fingerprint": rule.fingerprint, "tandem_schedule": settings,
                "tandem_segments": [[7, 0, 20]], "step": 3,
            }
        )  # fmt: skip
    alone: dict[str, Any] = {
        "response_ids": [0, 1],
        "response": "ab",
        "tandem_seed": None,
        "input": [{"a": 1}],
    }
    alone["gts"] = ["1"]
    return [*rows, alone]


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True)
    core.save(str(folder / "tokenizer.json"))
    _json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def _results(out: Path, model: Path, senior: str, right: int) -> None:
    """What ``tandem eval`` leaves of a senior, all of its kinds."""
    path, mark = str(model), fingerprint_folder(model)
    ours = {"name": senior, "path": path, "fingerprint": mark}
    base = {"name": "base", "path": path, "fingerprint": mark}
    sampling = {"samples": 2, "temperature": 0.6, "top_p": 0.95, "max_tokens": 50, "seed": 0}
    solo: dict[str, Any] = {"sampling": sampling, "benchmarks": {"sums": {"problems": 4}}}
    team = {**solo, "schedule": {"schedule": "step", "first": "senior"}, "junior": mark}
    problems = range(4)
    for kind, settings, extra in (("solo", solo, ()), ("handoff", team, ("base", "step"))):
        folder = run_folder(out, kind, senior, *extra)
        rows = [{"problem": i, "samples": 2, "correct": (right + i) % 3} for i in problems]
        junior = base if kind == "handoff" else None
        content = {"senior": ours, "junior": junior, "settings": settings}
        shares = {"sums": {"senior_share": {"mean": 0.5, "standard_deviation": 0.1}}}
        write_summary(folder, kind, {**content, "benchmarks": {"sums": rows}, "metrics": shares})
        responses, grades = [], []
        for i in problems:
            for j in range(2):
                row: dict[str, Any] = {
                    "problem": i, "sample": j, "prompt": "Q", "answer": ["1"], "response": "a b",
                    "finish_reason": "stop", "prompt_ids": [1, 2], "response_ids": [0, 3, 4],
                }  # fmt: skip
                if kind == "handoff":
                    row["authorship"] = [1, 0, 0]
                responses.append(row)
                grades.append({"problem": i, "sample": j, "outcome": "correct", "rule": "text"})
        _lines(folder / "sums.jsonl", responses)
        _lines(folder / "sums.grades.jsonl", grades)
    read = [
        {"problem": i, "tokens": 9, "cross_entropy": 0.1 * right + 0.01 * i, "overlap": 0.9}
        | {"responses": 1, "response_cross_entropy": 0.1, "response_overlap": 0.9}
        for i in problems
    ]
    folder = run_folder(out, "legibility", senior, "base")
    content = {"senior": ours, "junior": base, "settings": {"samples": 1}}
    write_summary(folder, "legibility", {**content, "benchmarks": {"sums": read}})
    counts = {"senior": [20 * right, 5, 6, 7, 8, 9, 30, 31], "junior": [20, 5, 6, 7, 8, 9, 30, 33]}
    folder = run_folder(out, "drift", senior, "base")
    import numpy as np

    both = [np.array(c) for c in counts.values()]
    write_counts(folder, *both)
    settings = {"smoothing": SMOOTHING, "frequent": 2}
    found = drift_metrics(*both, frequent=2)
    content = {"senior": ours, "junior": base, "settings": settings, "metrics": found}
    write_summary(folder, "drift", {**content, "benchmarks": {}})


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@dataclass(frozen=True)
class Command:
    """A command line on the inputs, in their folder."""

    name: str
    arguments: Callable[[random.Random], list[str]]
    spoiled: tuple[str, ...]
    """The files that a mutation may spoil, as patterns."""
    weight: int
    """Its share of the mutated inputs."""
    written: tuple[str, ...] = ()
    """The files that the command is meant to write or to go on with, as patterns."""


def _fixed(*arguments: str) -> Callable[[random.Random], list[str]]:
    return lambda rng: list(arguments)


def _one_of(*choices: tuple[str, ...]) -> Callable[[random.Random], list[str]]:
    return lambda rng: list(rng.choice(choices))


_VOCABULARY = ("--tokenizer", "vocab.json")
_SENIOR = ("--senior", "GRPO=model", "--out", "results")
_JUNIOR = ("--junior", "base=model")
_SUMS = ("--benchmark", "sums=problems.jsonl", "--n", "2", "--max-tokens", "50")
_RUNS = ("results/*/solo/*", "results/*/handoff/*/*/*", "results/*/legibility/*/*",
         "results/*/drift/*/*")  # fmt: skip
_MINE = tuple(pattern.replace("*", "GRPO", 1) for pattern in _RUNS)
_ANSWERED = ("results/GRPO/*",)

COMMANDS: tuple[Command, ...] = (
    Command(
        "view",
        _one_of(
            ("rollouts.jsonl", *_VOCABULARY, "--out", "page.html"),
            ("rollouts.jsonl", *_VOCABULARY, "--out", "page.html", "--json"),
            ("rollouts.jsonl", "--out", "page.html"),
            ("rollouts.jsonl", "--tokenizer", "tokenizer/tokenizer.json", "--json"),
            ("dumps", *_VOCABULARY, "--out", "page.html"),
        ),
        ("rollouts.jsonl", "rollouts.jsonl", "rollouts.jsonl", "rollouts.jsonl.run.json",
         "vocab.json", "tokenizer/tokenizer.json", "dumps/*"),
        48, ("page.html", "rollouts.html"),
    ),
    Command(
        "replay",
        _one_of(
            ("rollouts.jsonl", *_VOCABULARY),
            ("rollouts.jsonl", *_VOCABULARY, "--json"),
            ("rollouts.jsonl", "--set", "p=0.3"),
        ),
        ("rollouts.jsonl", "rollouts.jsonl", "rollouts.jsonl", "vocab.json",
         "rollouts.jsonl.run.json"),
        48,
    ),
    Command(
        "grade",
        _one_of(
            ("responses.jsonl",), ("responses.jsonl", "--out", "grades.jsonl"),
            ("responses.jsonl", "--json"), ("rollouts.jsonl", "--out", "new.jsonl"),
        ),
        ("responses.jsonl", "responses.jsonl", "grades.jsonl", "rollouts.jsonl"),
        20, ("grades.jsonl", "grades.jsonl.run.json", "new.jsonl", "new.jsonl.run.json", "nowhere"),
    ),
    Command(
        "data prepare",
        _one_of(
            ("problems.jsonl", "--to", "openrlhf", "--out", "out", "--bad-rows", "skip"),
            ("problems.json", "--to", "openrlhf", "--out", "out", "--heldout", "1"),
            ("problems.jsonl", "--to", "verl", "--out", "out", "--json"),
            ("aime25", "--file", "problems.jsonl", "--to", "openrlhf", "--out", "out"),
        ),
        ("problems.jsonl", "problems.json"),
        14, ("out/*",),
    ),
    Command(
        "data check",
        _one_of(("problems.jsonl", "problems.json"), ("problems.json", "problems.jsonl", "--json")),
        ("problems.jsonl", "problems.json"),
        8,
    ),
    Command(
        "rollout",
        _one_of(
            ("--senior", "model", "--problems", "problems.jsonl", "--out", "rollouts.jsonl"),
            ("--senior", "model", "--problems", "problems.json", "--out", "new.jsonl", "--json"),
        ),
        ("problems.jsonl", "problems.json", "rollouts.jsonl", "rollouts.jsonl.run.json"),
        8, ("rollouts.jsonl*", "new.jsonl*", "nowhere*"),
    ),
    Command("eval solo", _fixed(*_SENIOR, *_SUMS), ("problems.jsonl", "results/GRPO/solo/*"), 6,
            _ANSWERED),
    Command("eval handoff", _fixed(*_SENIOR, *_JUNIOR, *_SUMS[:2], "--team-n", *_SUMS[3:]),
            ("problems.jsonl", "results/GRPO/handoff/*/*/*"), 6, _ANSWERED),
    Command("eval legibility", _fixed(*_SENIOR, *_JUNIOR),
            ("results/GRPO/solo/*", "results/GRPO/legibility/*/*"), 6, _ANSWERED),
    Command(
        "eval drift",
        _fixed("--senior", "GRPO", "--junior", "base", "--out", "results", "--frequent", "1"),
        ("results/GRPO/solo/*", "results/base/solo/*"), 6, _ANSWERED,
    ),
    Command(
        "compare",
        _one_of(
            ("results/base", "results/GRPO"),
            ("results/GRPO", "results/TRL", "--out", "tables", "--json"),
        ),
        (*_MINE, "results/GRPO/*/summary.json"),
        14, ("tables/*",),
    ),
    Command(
        "report",
        _fixed("results", "--out", "report"),
        _RUNS,
        1, ("report/*",),
    ),
)  # fmt: skip
