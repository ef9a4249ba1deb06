"""A run in its trainer's process, whichever trainer it is."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine.wire import RPC_DRAFT_STATS, RPC_MEASURES
from tandem_plugin.training import run as run_module
from tandem_plugin.training.authorship_wire import ResponseAuthorship
from tandem_plugin.training.imitation import IMITATION_METRIC
from tandem_plugin.training.metrics import counters_of_engines
from tandem_plugin.training.rows import Row
from tandem_plugin.training.run import TandemRun
from tandem_plugin.training.validation_log import CHANGE, ValidationLog

VOCABULARY = Vocabulary(tuple("abcdefgh"), "a test")


def started(**settings: Any) -> TandemRun:
    config = TandemConfig.from_mapping({"schedule": "solo", "seed": 3, **settings})
    return TandemRun.start(TandemRules(config, VOCABULARY))


def test_start_says_in_the_log_what_is_on(capsys: pytest.CaptureFixture[str]) -> None:
    run = started()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("tandem is on: schedule=solo")
    assert f"fingerprint={run.rules.fingerprint}" in line
    started(schedule="handover", after=8, steps=4)
    assert "training_step=(the trainer's)" in capsys.readouterr().out


def test_update_trains_on_the_batch_that_was_admitted_last_and_on_none_that_was_refused() -> None:
    run = started()
    whole = ((0, 5),)
    settings = run.rules.default.settings()
    facts = ResponseAuthorship(run.rules.fingerprint, settings, 7, 5, ((7, 0, 5),), whole, whole)
    row = Row("Row 0", "a prompt", np.arange(5), np.ones(5, dtype=bool), facts)
    with refused("row-not-checked"):
        run.check_update([row])
    assert run.admit([row])["tandem/senior_share"] == 1
    run.check_update([row])
    left_out = [replace(row, response_mask=~row.response_mask)]
    with refused("mask-changed-after-check", count=5):
        run.check_update(left_out)
    run.rejects = True  # tokens may be left out
    run.check_update(left_out)
    with refused("row-without-authorship"):
        run.admit([replace(row, facts=None)])
    with refused("row-not-checked"):
        run.check_update([row])


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"measure_every": 0}, []),
        ({"measure_every": 8}, [RPC_MEASURES]),
        ({"measure_every": 0, "partner_logprobs": True}, [RPC_MEASURES]),
        ({"mode": "speculative", "drafts": 2, "measure_every": 0}, [RPC_DRAFT_STATS]),
        ({"mode": "speculative", "drafts": 2, "measure_every": 1}, [RPC_DRAFT_STATS, RPC_MEASURES]),
    ],
)
def test_engines_are_asked_for_what_they_count(settings: dict[str, Any], names: list[str]) -> None:
    asked: list[str] = []

    def counters(name: str) -> list[dict[str, Any]]:
        asked.append(name)
        return []

    started(**settings).engine_metrics(counters)
    assert asked == names


def test_model_is_identified_when_it_first_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of the Hub comes after the run began; what replaces it is no part of the run."""
    contents = iter([None, "first", "second"])
    monkeypatch.setattr(run_module, "mark_of", lambda model: next(contents))
    run = started()
    marks = [run.note("organisation/model").marks["senior's start"] for _ in range(3)]
    assert marks == [None, "first", "first"]


def test_update_that_left_the_imitation_term_out_stops() -> None:
    run = started(lambda_jun=0.1)
    run.check_imitation({f"actor/{IMITATION_METRIC}": 0.0}, "actor/")
    started().check_imitation({}, "actor/")
    for metrics in ({"actor/loss": 0.0}, {IMITATION_METRIC: 0.0}):
        with refused("imitation-term-missing", lambda_jun=0.1):
            run.check_imitation(metrics, "actor/")


@pytest.mark.parametrize(
    ("gold", "dumped"),
    [
        (np.array(["1", "2"]), ["1", "2"]),
        (np.array([0.5]), [0.5]),
        (np.int64(3), 3),
        ({"a": (1, np.float32(2))}, {"a": [1, 2.0]}),
        (Decimal("1.50"), "1.50"),
        (None, None),
    ],
)
def test_dumped_golds_are_those_of_the_data_set_whatever_holds_them(
    tmp_path: Path, gold: Any, dumped: Any
) -> None:
    """As from a table: an array of acceptable answers stays several."""
    row = Row("Row 0", "a prompt", np.arange(2), np.ones(2, dtype=bool))
    started(rollouts=str(tmp_path)).write_rows(4, [(row, {"gts": gold})])
    assert json.loads((tmp_path / "4.jsonl").read_text())["gts"] == dumped


def test_engines_of_a_run_that_neither_drafts_nor_measures_are_not_asked() -> None:
    def counters(what: str) -> Any:
        raise AssertionError(what)

    assert started(measure_every=0).engine_metrics(counters) == {}
    nobody = partial(counters_of_engines, [])
    assert started(measure_every=1, mode="speculative").engine_metrics(nobody) == {}


def test_two_answerers_of_a_validation_have_folders_and_metrics_apart() -> None:
    for answerer in ("senior", "team"):
        (alone,) = ValidationLog().passes(answerer)
        assert (alone.answerer, alone.is_one_of_several) == (answerer, False)
        assert alone.folder("dumps") == "dumps"
    senior, team = ValidationLog().passes("both")
    assert [each.folder("dumps") for each in (senior, team)] == ["dumps/senior", "dumps/team"]
    assert senior.named({"pass@1": 0.5}) == {"pass@1": 0.5}
    assert team.named({"pass@1": 0.5}) == {"team/pass@1": 0.5}
    assert team.columns(2) == {"answered_by": ["team", "team"]}
    assert [senior.add(accuracy, 4, 0)[CHANGE] for accuracy in (0.5, 0.75)] == [0.0, 0.25]
    assert CHANGE not in team.add(0.5, 4, 0)
    *_, junior = ValidationLog().passes("all")
    assert junior.folder("dumps") == "dumps/junior"
    assert junior.named({"pass@1": 0.5}) == {"junior/pass@1": 0.5}


def text_row(token_ids: list[int]) -> Row:
    return Row("Row 0", "a prompt", np.array(token_ids), np.ones(len(token_ids), dtype=bool))


@pytest.mark.parametrize(
    ("boundaries", "token_ids", "share", "warns"),
    [
        ("word", [1] * 2000, 0.0, True),  # nothing begins with a space
        ("word", [0] * 80 + [1] * 1920, 0.04, True),
        ("word", [0, 1] * 1000, 0.5, False),
        ("word", [1] * 900, 0.0, False),  # too few to say
        ("word-any", [1] * 2000, 1.0, False),
        ("every", [1] * 2000, 1.0, False),
    ],
)
def test_text_without_words_is_measured_and_told_once(
    boundaries: str,
    token_ids: list[int],
    share: float,
    warns: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = TandemConfig.from_mapping({"schedule": "word", "boundaries": boundaries})
    run = TandemRun(TandemRules(config, Vocabulary(("Ġa", "ä½ł"), "a test")))
    for _ in range(2):
        assert run._boundary_share([text_row(token_ids)]) == {"tandem/boundary_share": share}
    assert run._boundary_share([text_row([])]) == {}
    warning = capsys.readouterr().err
    assert warning.count("tandem.boundaries=word-any") == warns
