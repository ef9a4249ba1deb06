"""Results of seniors made from little, and what `tandem compare` says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation.drift import (
    Counts,
    over_emitted,
    over_emitted_by_noise,
    token_counts,
    write_counts,
)
from tandem_plugin.lab.evaluation.results import run_folder, write_summary


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def found_tables(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return {table["name"]: table for table in json.loads(done.stdout)["tables"]}


def texts(table: Any) -> list[list[str]]:
    return [[cell["text"] for cell in row] for row in table["rows"]]


def write_run(
    out: Path, kind: str, senior: str, junior: str = "", schedule: str = "", **content: Any
) -> Path:
    """The summary of a run; returns its folder."""
    models = {
        "senior": {"name": senior, "fingerprint": "00"},
        "junior": {"name": junior, "fingerprint": "11"} if junior else None,
    }
    folder = run_folder(out, kind, senior, junior, schedule)
    write_summary(folder, kind, {**models, "benchmarks": {}, **content})
    return folder


def write_handoff(out: Path, senior: str, junior: str, right: list[int]) -> None:
    rows = [{"problem": i, "samples": 4, "correct": c} for i, c in enumerate(right)]
    settings = {"schedule": {"schedule": "step"}, "junior": junior}
    write_run(out, "handoff", senior, junior, "step", settings=settings, benchmarks={"A": rows})


def write_legibility(
    out: Path, senior: str, junior: str, nats: list[float], tokens: list[int] | None = None
) -> None:
    rows = [read_problem(i, n, 1 - n, tokens[i] if tokens else 9) for i, n in enumerate(nats)]
    settings = {"junior": junior}
    write_run(out, "legibility", senior, junior, settings=settings, benchmarks={"A": rows})


def read_problem(problem: int, nats: float, overlap: float, tokens: int = 9) -> dict[str, Any]:
    """A problem of a run of legibility, with one response."""
    return {
        "problem": problem, "tokens": tokens, "cross_entropy": nats, "overlap": overlap,
        "responses": 1, "response_cross_entropy": nats, "response_overlap": overlap,
    }  # fmt: skip


def write_drift(
    out: Path, senior: str, wrote: list[int], junior: list[int], halves: bool = True
) -> None:
    """A drift run with the counts of these tokens, and a divergence by the senior's name.

    halves: whether every second token is a half of them, as every second response is.
    """
    both = [counted(ids, halves) for ids in (wrote, junior)]
    kl = {"GRPO": 0.5, "tandem": 0.25, "tandem-2": 0.75, "base": 0.0}[senior]
    metrics = {
        "kl": kl,
        "kl_of_juniors_halves": 0.0625 if halves else None,
        "mean_absolute_log_ratio": 0.125,
        "survival": {"thresholds": [], "shares": []},
        "over_emitted": over_emitted(*both, 2),
        "over_emitted_by_noise": over_emitted_by_noise(both[1], 2),
    }
    settings = {"smoothing": 0.5, "frequent": 2}
    folder = write_run(out, "drift", senior, "base", settings=settings, metrics=metrics)
    write_counts(folder, *both)


def counted(ids: list[int], halves: bool = True) -> Counts:
    return Counts(token_counts([ids], 6), token_counts([ids[::2]], 6) if halves else None)


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Change what a JSON file holds."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
