from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refused import refused
from typer.testing import CliRunner

from tandem_plugin import TandemConfig
from tandem_plugin.cli import app
from tandem_plugin.lab.evaluation.generation import (
    engine_settings,
    schedule_label,
    team_schedule,
)
from tandem_plugin.lab.evaluation.results import read_summary, write_summary
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
    content = {
        "senior": {"name": "s", "path": "/s", "fingerprint": "a"},
        "junior": {"name": "base", "path": "/b", "fingerprint": "b"},
        "settings": settings,
        "benchmarks": {"sums": [{"problem": 0, "samples": 2, "correct": 1}]},
    }
    summary = read_summary(write_summary(tmp_path, "handoff", content))
    assert summary.label == "handoff leap,far=3 base"


def test_command_refuses_a_schedule_before_anything_is_read(tmp_path: Path):
    given = ["eval", "handoff", "--schedule", "handover", "--set", "after=-1"]
    models = ["--senior", f"s={tmp_path}", "--junior", f"j={tmp_path}"]
    out = ["--benchmark", "amc=none.jsonl", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*given, *models, *out])
    assert result.exit_code == 1
    assert "after=-1 is not a valid count" in result.stderr
    assert not (tmp_path / "out").exists()
