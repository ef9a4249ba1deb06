from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_results import write_run
from refused import refused

from tandem_plugin import TandemConfig
from tandem_plugin.lab.evaluation.generation import (
    engine_settings,
    schedule_label,
    team_schedule,
)
from tandem_plugin.lab.evaluation.results import read_summary
from tandem_plugin.request import TandemRequest


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("step", {}, "step"),
        ("step", {"first": "senior"}, "step"),
        ("handover", {"after": 32, "first": "senior"}, "handover,first=senior,after=32"),
        ("word", {"p": 0.25}, "word,p=0.25"),
    ],
)
def test_label_says_what_is_not_by_default(name: str, parameters: dict[str, Any], expected: str):
    team = team_schedule(name, parameters)
    assert schedule_label(team) == expected
    assert TandemConfig.from_mapping(engine_settings(team)).schedule == name
    request = TandemRequest.parse({**team, "seed": 1})
    assert request is not None
    assert {"schedule": request.schedule, **request.parameters} == team


def test_unknown_schedules_and_parameters_are_refused():
    with refused("TP117", kind="schedule", name="leap"):
        team_schedule("leap", {})
    with refused("TP139", parameter="before", value=3):
        team_schedule("handover", {"before": 3})


def test_runs_of_other_parameters_are_called_otherwise(tmp_path: Path):
    """The label is read from the result: the plugin that knows the defaults may be missing."""
    settings = {"schedule": {"schedule": "leap", "far": 3, "label": "leap,far=3"}, "junior": "bb"}
    benchmarks = {"sums": [{"problem": 0, "samples": 2, "correct": 1}]}
    place = tmp_path, "handoff", "s", "base", "leap"
    folder = write_run(*place, settings=settings, benchmarks=benchmarks)
    summary = read_summary(folder / "summary.json")
    assert summary.label == "handoff leap,far=3 base"
