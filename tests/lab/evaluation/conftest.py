from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_results import read_problem, write_run

from tandem_plugin.lab.evaluation.drift import Counts, drift_metrics, token_counts, write_counts

SAMPLING = {"samples": 4, "temperature": 0.6, "top_p": 0.95, "max_tokens": 50, "seed": 0}
STEP = {"schedule": "step", "first": "senior"}


@pytest.fixture
def make_results(tmp_path: Path) -> Callable[..., Path]:
    """Writes the results of a senior as ``tandem eval`` leaves them, from little."""

    def make(
        senior: str,
        right: list[int],
        *,
        benchmark: str = "sums",
        kinds: tuple[str, ...] = ("solo", "handoff", "legibility", "drift"),
    ) -> Path:
        out = tmp_path / "results"
        answered = [{"problem": i, "samples": 4, "correct": c} for i, c in enumerate(right)]
        read = [read_problem(i, 0.1 + 0.01 * c, 0.9 + 0.01 * c) for i, c in enumerate(right)]
        places = {
            "solo": (senior,),
            "handoff": (senior, "base", "step"),
            "legibility": (senior, "base"),
        }
        settings: dict[str, dict[str, Any]] = {
            "solo": {"sampling": SAMPLING},
            "handoff": {"sampling": SAMPLING, "schedule": STEP, "junior": "11"},
            "legibility": {"samples": 1},
        }
        for kind in settings.keys() & kinds:
            rows = {benchmark: read if kind == "legibility" else answered}
            write_run(out, kind, *places[kind], settings=settings[kind], benchmarks=rows)
        if "drift" in kinds:
            _write_drift(out, senior, sum(right))
        return out

    return make


def _write_drift(out: Path, senior: str, right: int) -> None:
    wrote = [[i % 8 for i in range(40 + 3 * right)], [2] * right]
    junior = [[i, i + 4] for i in range(4) for _ in range(10)]
    ours, theirs = (
        Counts(token_counts(rows, 8), token_counts(rows[::2], 8)) for rows in (wrote, junior)
    )
    settings = {"smoothing": 0.5, "frequent": 2}
    metrics = drift_metrics(ours, theirs, 2)
    folder = write_run(out, "drift", senior, "base", settings=settings, metrics=metrics)
    write_counts(folder, ours, theirs)
