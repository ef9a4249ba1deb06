from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin.lab.evaluation.checkpoint import Checkpoint
from tandem_plugin.lab.evaluation.drift import run_drift
from tandem_plugin.lab.evaluation.legibility import _noted, run_legibility
from tandem_plugin.lab.evaluation.results import read_summary, solo_summary
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile

MakeResults = Callable[..., Path]
SENIOR, JUNIOR = Checkpoint("s", "", "00"), Checkpoint("base", "", "11")


@pytest.fixture
def solo(make_results: MakeResults) -> Path:
    out = make_results("s", [0, 1], kinds=("solo",))
    path = out / "s/solo/summary.json"
    content = json.loads(path.read_text())
    content["settings"]["benchmarks"] = {"sums": {"prompt_ids": "00"}}
    path.write_text(json.dumps(content))
    return out


def test_model_without_a_solo_run_is_refused(tmp_path: Path):
    with refused("TP897", name="x"):
        solo_summary(tmp_path, "x")


def test_reading_other_weights_than_those_that_wrote_is_refused(solo: Path):
    with refused("TP898", fingerprint="ff"):
        run_legibility(solo, Checkpoint("s", "", "ff"), [JUNIOR])


@pytest.mark.parametrize("samples", [0, 5])
def test_reading_more_samples_than_there_are_is_refused(solo: Path, samples: int):
    with refused("TP913", used=samples):
        run_legibility(solo, SENIOR, [JUNIOR], samples=samples)


def test_finished_scores_are_pooled_by_problem_without_reading_again(solo: Path):
    """Scores of two samples: tokens of all of a problem's responses count alike."""
    summary = solo_summary(solo, "s")
    settings = {"junior": "11", "dtype": "auto"}
    file = solo / "s/legibility/base/sums.scores.jsonl"
    sums = {(1, 0): (10, 1.0, 9.0), (0, 1): (1, 2.0, 0.5), (0, 0): (3, 2.0, 2.5), (1, 1): (0, 0, 0)}
    with RolloutFile(file, _noted("sums", summary, SENIOR, settings)) as written:
        for (problem, sample), (tokens, nats, overlap) in sums.items():
            row = {"tokens": tokens, "cross_entropy": nats, "overlap": overlap}
            written.append(problem, sample, row)
    (path,) = run_legibility(solo, SENIOR, [JUNIOR], samples=2)
    assert read_summary(path).problems["sums"] == [
        {
            "problem": 0,
            "tokens": 4,
            "cross_entropy": 1.0,
            "overlap": 0.75,
            "responses": 2,
            "response_cross_entropy": pytest.approx((2 / 3 + 2) / 2),
            "response_overlap": pytest.approx((2.5 / 3 + 0.5) / 2),
        },
        {
            "problem": 1,
            "tokens": 10,
            "cross_entropy": 0.1,
            "overlap": 0.9,
            "responses": 1,
            "response_cross_entropy": 0.1,
            "response_overlap": 0.9,
        },
    ]


def test_drift_between_runs_of_other_settings_is_refused(make_results: MakeResults):
    make_results("s", [0, 1], kinds=("solo",))
    out = make_results("base", [0, 1], kinds=("solo",))
    path = out / "base/solo/summary.json"
    path.write_text(path.read_text().replace('"top_p": 0.95', '"top_p": 1.0'))
    with refused("TP914", name="sampling.top_p"):
        run_drift(out, "s", "base")
