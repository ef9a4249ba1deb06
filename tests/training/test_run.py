"""A run in its trainer's process, whichever trainer it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_plugin import ConfigError, TandemConfig, Vocabulary
from tandem_plugin.training.imitation import IMITATION_METRIC
from tandem_plugin.training.refusals import Refusal, Unproven, check_refusals, given
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
    with refused("TP421"):
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


def test_run_that_rejects_may_leave_tokens_out() -> None:
    run = started()
    batch = [row(run, 5)]
    fewer = [replace(batch[0], response_mask=np.zeros(5, dtype=bool))]
    for run.rejects in (True, False):
        run.admit(batch)
        if run.rejects:
            run.check_update(fewer)
        else:
            with refused("TP421", count=5):
                run.check_update(fewer)


def test_update_that_left_the_imitation_term_out_stops() -> None:
    run = started(lambda_jun=0.1)
    run.check_imitation({f"actor/{IMITATION_METRIC}": 0.0}, "actor/")
    started().check_imitation({}, "actor/")
    for metrics in ({"actor/loss": 0.0}, {IMITATION_METRIC: 0.0}):
        with refused("TP450", lambda_jun=0.1):
            run.check_imitation(metrics, "actor/")


def test_engines_of_a_run_that_neither_drafts_nor_measures_are_not_asked() -> None:
    assert started(measure_every=0).engine_metrics([SimpleNamespace()]) == {}
    assert started(measure_every=1, mode="speculative").engine_metrics([]) == {}


def test_metrics_of_engines_are_what_they_told_since_the_last_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(ray, "get", list)
    sums = {"senior_tokens": 2.0, "junior_cross_entropy": 3.0, "overlap": 1.0}
    sums |= {"junior_tokens": 4.0, "senior_cross_entropy": 1.0}
    drafts = {"rounds": 10, "drafts": 40, "tokens": 42}
    drafts |= {"senior_drafts": 20, "senior_accepted": 19, "junior_drafts": 18}
    told = {"tandem_measures": sums, "tandem_draft_stats": drafts}
    engine = SimpleNamespace(tandem_counters=SimpleNamespace(remote=lambda what: dict(told[what])))
    run = started(mode="speculative")
    first = run.engine_metrics([engine, engine])
    assert first["tandem/junior_cross_entropy"] == 1.5
    assert first["tandem/draft_acceptance"] == 0.95
    sums |= {"senior_tokens": 3.0, "junior_cross_entropy": 7.0, "overlap": 1.5}
    assert run.engine_metrics([engine, engine]) == {
        "tandem/junior_cross_entropy": 4.0,
        "tandem/overlap": 0.5,
    }


TABLE = (
    Refusal("a.b", given, "{key}={value!r} is wrong."),
    Refusal("c", lambda value, of: value > of("most"), "{key}={value} is too much.", "much"),
)


def checked(allowed: tuple[str, ...] = (), **settings: Any) -> list[str]:
    tandem = TandemConfig.from_mapping({"unproven": list(allowed)})
    unproven = Unproven(tandem, {"much": "more than most"})
    found = {"c": 1, "most": 2, **settings}
    check_refusals(TABLE, found.get, unproven)
    return unproven.warnings


def test_first_setting_that_is_refused_is_named_with_its_value() -> None:
    assert checked() == []
    with pytest.raises(ConfigError, match=r"^a\.b='x' is wrong\.$"):
        checked(**{"a.b": "x", "c": 3})
    with pytest.raises(ConfigError, match=r"^c=3 is too much\. .* add much to tandem\.unproven"):
        checked(c=3)


def test_what_is_only_unproven_may_be_allowed_by_name_and_is_said() -> None:
    (warning,) = checked(("much",), c=3)
    assert warning.startswith("c=3 is too much. tandem.unproven allows much")
    with pytest.raises(ConfigError, match="is wrong"):
        checked(("much",), **{"a.b": "x"})
