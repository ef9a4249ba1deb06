from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tandem_plugin.lab.evaluation.drift import (
    drift_metrics,
    token_counts,
    write_counts,
)
from tandem_plugin.lab.evaluation.results import run_folder, write_summary

SAMPLING = {"samples": 4, "temperature": 0.6, "top_p": 0.95, "max_tokens": 50, "seed": 0}


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
        out, junior = tmp_path / "results", "base"
        rows = [{"problem": i, "samples": 4, "correct": c} for i, c in enumerate(right)]
        models: dict[str, Any] = {
            "senior": {"name": senior, "fingerprint": "00"},
            "junior": {"name": junior, "fingerprint": "11"},
        }
        solo: dict[str, Any] = {"sampling": SAMPLING}
        team = {**solo, "schedule": {"schedule": "step", "first": "senior"}, "junior": "11"}
        for kind, settings, extra in (("solo", solo, ()), ("handoff", team, (junior, "step"))):
            if kind not in kinds:
                continue
            folder = run_folder(out, kind, senior, *extra)
            content = {**models, "settings": settings, "benchmarks": {benchmark: rows}}
            write_summary(
                folder, kind, content if kind == "handoff" else content | {"junior": None}
            )
        read = [
            {"problem": i, "tokens": 9, "cross_entropy": 0.1 + 0.01 * c, "overlap": 0.9 + 0.01 * c}
            for i, c in enumerate(right)
        ]
        content = {**models, "settings": {"samples": 1}, "benchmarks": {benchmark: read}}
        if "legibility" in kinds:
            write_summary(run_folder(out, "legibility", senior, junior), "legibility", content)
        if "drift" in kinds:
            _write_drift(out, senior, junior, models, right)
        return out

    return make


def _write_drift(
    out: Path, senior: str, junior: str, models: dict[str, Any], right: list[int]
) -> None:
    folder = run_folder(out, "drift", senior, junior)
    written = [[i % 8 for i in range(40 + 3 * sum(right))], [2] * sum(right)]
    ours = token_counts(written, 8)
    theirs = token_counts([[i, i + 4] for i in range(4) for _ in range(10)], 8)
    write_counts(folder, ours, theirs)
    content = {
        **models,
        "settings": {"smoothing": 0.5, "frequent": 2},
        "metrics": drift_metrics(ours, theirs, 2),
        "benchmarks": {},
    }
    write_summary(folder, "drift", content)
