"""A run in its trainer's process, whichever trainer it is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_plugin import TandemConfig, Vocabulary
from tandem_plugin.engine.measures import MeasureSums
from tandem_plugin.engine.speculative.draft_stats import DraftStats
from tandem_plugin.engine.wire_names import RPC_DRAFT_STATS, RPC_MEASURES
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


def test_prompts_without_senior_and_unknown_authors_are_counted_and_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = started(max_unknown_share=1)
    plain = row(run, 5)
    run.admit([plain])
    assert capsys.readouterr().err == ""
    masked = replace(plain, trained=plain.response_mask & False, response_mask=~plain.response_mask)
    unknown = np.array([0, 0, 1, 1, 0], dtype=bool)
    partly = replace(plain, unknown=unknown, response_mask=~unknown)
    for _ in range(3):
        metrics = run.admit([partly, replace(masked, group="another prompt")])
        assert metrics["tandem/prompts_without_senior"] == 1
        assert metrics["tandem/tokens_of_unknown_author"] == 2
        assert metrics["tandem/senior_share"] == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("tandem warning: ") for line in lines] == [True, True]


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


def test_metrics_of_engines_are_what_they_told_since_the_last_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(ray, "get", list)
    told = {
        RPC_MEASURES: MeasureSums(2.0, 3.0, 1.0, 4.0, 1.0),
        RPC_DRAFT_STATS: DraftStats(10, 40, 42, 20, 19, 18),
    }
    counters = SimpleNamespace(remote=lambda what: told[what].to_row())
    engines, run = [SimpleNamespace(tandem_counters=counters)] * 2, started(mode="speculative")
    counters_of = partial(counters_of_engines, engines)
    first = run.engine_metrics(counters_of)
    assert first["tandem/junior_cross_entropy"] == 1.5
    assert first["tandem/draft_acceptance"] == 0.95
    assert run.engine_metrics(counters_of) == {}
