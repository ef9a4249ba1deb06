"""A run in its trainer's process, whichever trainer it is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_plugin import TandemConfig, Vocabulary
from tandem_plugin.training.imitation import IMITATION_METRIC
from tandem_plugin.training.juniors import counters_of_engines
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun

VOCABULARY = Vocabulary(tuple("abcdefgh"), "a test")


def started(**settings: Any) -> TandemRun:
    config = TandemConfig.from_mapping({"schedule": "solo", "seed": 3, **settings})
    return TandemRun.start(config, VOCABULARY)


def row(run: TandemRun, length: int) -> Row:
    every = np.ones(length, dtype=bool)
    ids = np.arange(length)
    whole = Row("Row 0", "a prompt", ids, every, every, 7, run.rules.fingerprint)
    return replace(whole, segments=[(7, 0, length)], trained=every)


def test_start_says_in_the_log_what_is_on(capsys: pytest.CaptureFixture[str]) -> None:
    run = started()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("tandem is on: schedule=solo")
    assert f"fingerprint={run.rules.fingerprint}" in line


def test_batch_is_admitted_before_an_update_may_train_on_it() -> None:
    run = started()
    batch = [row(run, 5)]
    with refused("TP419"):
        run.check_update(batch)
    metrics = run.admit(batch)
    assert metrics == run.metrics
    assert metrics["tandem/senior_share"] == 1
    run.check_update(batch)
    changed = replace(batch[0], response_mask=~batch[0].response_mask)
    run.rejects = True  # tokens may be left out
    run.check_update([changed])
    run.rejects = False
    with refused("TP421", count=5):
        run.check_update([changed])


def test_batch_that_is_refused_leaves_nothing_to_train_on() -> None:
    run = started()
    batch = [row(run, 5)]
    run.admit(batch)
    with refused("TP406"):
        run.admit([replace(batch[0], authorship=None)])
    assert run.metrics == {}
    with refused("TP419"):
        run.check_update(batch)


def test_update_that_left_the_imitation_term_out_stops() -> None:
    run = started(lambda_jun=0.1)
    run.check_imitation({f"actor/{IMITATION_METRIC}": 0.0}, "actor/")
    started().check_imitation({}, "actor/")
    for metrics in ({"actor/loss": 0.0}, {IMITATION_METRIC: 0.0}):
        with refused("TP450", lambda_jun=0.1):
            run.check_imitation(metrics, "actor/")


def test_engines_of_a_run_that_neither_drafts_nor_measures_are_not_asked() -> None:
    def counters(what: str) -> Any:
        raise AssertionError(what)

    assert started(measure_every=0).engine_metrics(counters) == {}
    nobody = partial(counters_of_engines, [])
    assert started(measure_every=1, mode="speculative").engine_metrics(nobody) == {}
