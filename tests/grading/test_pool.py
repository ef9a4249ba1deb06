"""Grading's processes, where none can be started."""

from __future__ import annotations

import pytest
from refused import refused

from tandem_plugin.grading import GradingLimits, pool

pytest.importorskip("sympy")


def test_a_process_that_cannot_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_BOOT", "import sys; sys.exit(1)")
    with refused("grading-workers-not-started", output=""):
        pool.WorkerPool(GradingLimits(workers=1)).ask(["1"], "1")


def test_workers_that_die_before_they_work_are_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool._Worker, "has_greeted", lambda self: False)
    workers = pool.WorkerPool(GradingLimits(workers=1))
    with refused("grading-workers-died", attempts=pool._ATTEMPTS):
        workers.ask(["1"], "1")
    assert workers.deaths == {"forkserver": pool._ATTEMPTS}
