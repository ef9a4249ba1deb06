"""What the study makes of its runs: claims judged, rows chosen, and the power that it announces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "study"))

pytest.importorskip("torch", reason="the study trains with PyTorch")
pytest.importorskip("scipy.stats", reason="the tests of claims are SciPy's")

from light.grpo import GRPO, TRL
from light.judging import START, TOO_FEW, Claim, detectable, judge, power
from light.page import CHOICES, MEASURES, Curves, couple, judge_all, read_curves, row, write_page
from light.runs import METHODS, LightSize, Training, trainings

from tandem_plugin.lab.evaluation.results import write_json
from tandem_plugin.lab.evaluation.significance import unit_error

MORE = Claim("more", "step", "GRPO", "")
LESS = Claim("less", "kl", "GRPO", "")
ALIKE = Claim("alike", "step", "GRPO", "", margin=0.02)


@pytest.mark.parametrize(
    ("claim", "mean", "verdict"),
    [
        (MORE, 0.05, "agrees"),
        (MORE, -0.05, "does not"),
        (MORE, 0.001, "cannot tell"),
        (LESS, -0.05, "agrees"),
        (LESS, 0.05, "does not"),
        (ALIKE, 0.001, "agrees"),
        (ALIKE, 0.06, "does not"),
        (ALIKE, -0.06, "does not"),
        (ALIKE, 0.018, "cannot tell"),
    ],
)
def test_claim_is_judged_by_its_own_test(claim: Claim, mean: float, verdict: str):
    spread = np.array([-1.2, -0.8, -0.5, -0.1, 0.0, 0.2, 0.3, 0.6, 0.7, 0.8]) * 0.01
    assert judge(claim, mean + spread - spread.mean())[1] == verdict


def test_starts_that_do_not_differ_in_how_much_or_are_few_tell_nothing():
    for claim in (MORE, LESS, ALIKE):
        for differences in (np.zeros(10), np.full(10, 0.5), np.array([0.3])):
            assert judge(claim, differences)[1] == "cannot tell"
    p, verdict = judge(MORE, (0.054, 0.147))  # t = mean / (half of their difference), 1 d.f.
    assert p == pytest.approx(0.5 - np.arctan(0.1005 / 0.0465) / np.pi)
    assert verdict == TOO_FEW


def test_error_rates_are_those_that_are_announced():
    """Of a true null a claim is called right in 5% of studies, and so is its opposite."""
    rng = np.random.default_rng(0)
    verdicts = [judge(MORE, rng.normal(0, 0.02, 8))[1] for _ in range(1500)]
    for verdict in ("agrees", "does not"):
        assert abs(verdicts.count(verdict) / 1500 - 0.05) < 4 * (0.05 * 0.95 / 1500) ** 0.5
    lost = [judge(ALIKE, rng.normal(0.02, 0.02, 8))[1] for _ in range(1500)]
    assert lost.count("agrees") / 1500 < 0.05 + 4 * (0.05 * 0.95 / 1500) ** 0.5


def test_announced_power_is_that_of_simulated_studies():
    rng = np.random.default_rng(1)
    for claim, difference, expected in (
        (MORE, detectable(MORE.spread, 8), 0.8),
        (MORE, 0.01, power(MORE, 0.01, 8)),
        (LESS, -0.01, power(LESS, -0.01, 8)),
        (ALIKE, 0.0, power(ALIKE, 0.0, 8)),
    ):
        found = [judge(claim, rng.normal(difference, claim.spread, 8))[1] for _ in range(600)]
        assert abs(found.count("agrees") / 600 - expected) < 4 * (0.25 / 600) ** 0.5


SIZE = LightSize(starts=2, seeds=(1, 2))


def point(step: int, solo: float, value: float, validation: float = 0.0) -> dict[str, Any]:
    values = dict.fromkeys(MEASURES, value)
    return values | {"step_number": step, "validation": validation, "solo": solo}


@pytest.fixture
def found() -> Curves:
    curves = {}
    for one in trainings(SIZE):
        off = 0.1 * (one.seed - 1) + 0.2 * (one.start - 1)
        curves[one] = {
            GRPO: [point(10, 0.8, 4.0 + off, 0.9), point(20, 1.0, 6.0 + off, 0.7)],
            TRL: [point(10, 0.5, 1.0 - off, 0.1), point(20, 0.6, 2.0 - off, 0.2)],
        }.get(one.method, [point(10, 0.7, 1.0, 0.5), point(20, 0.7, 2.0, 0.5)])
    return {one: [point(0, 0.4, 0.0), *curve] for one, curve in curves.items()}


def test_best_checkpoint_is_chosen_by_each_runs_own_validation(found: Curves):
    assert row(found, "GRPO", "best").values["step"] == pytest.approx([4.0, 4.1, 4.2, 4.3])
    assert row(found, "TRL", "best").mean("step") == pytest.approx(1.85)
    assert row(found, "KL-Reg 0.05", "best").mean("step") == 1.0  # the first of equals
    assert row(found, "GRPO", "last").mean("step") == pytest.approx(6.15)
    assert row(found, START, "last").values["solo"].tolist() == [0.4] * 4


def test_errors_are_over_starts(found: Curves):
    """Means 6.05 and 6.25 of two starts: half of their difference."""
    assert row(found, "GRPO", "last").error("step") == pytest.approx(0.1)


def test_matched_rows_are_where_both_runs_are_as_accurate_alone(found: Curves):
    trl, grpo = couple(found, "TRL", "GRPO", "matched")
    assert trl.values["solo"] == pytest.approx([0.6] * 4)
    assert grpo.values["solo"] == pytest.approx([0.6] * 4)
    assert grpo.values["step"][0] == pytest.approx(2.0)  # halfway to the first checkpoint
    assert grpo.values["step_number"] == pytest.approx([5.0] * 4)
    assert trl.values["step"] == pytest.approx([2.0, 1.9, 1.8, 1.7])


def test_claims_are_judged_start_by_start_and_only_where_they_say_something(found: Curves):
    judged = {choice: judge_all(found, choice) for choice in CHOICES}
    for choice, lines in judged.items():
        couples = {(one.claim.text, one.method, one.against) for one in lines}
        assert len(couples) == len(lines)
        assert all(choice in one.claim.choices for one in lines)
    assert not [one for one in judged["matched"] if one.claim.measure == "solo"]
    (team,) = [
        one
        for one in judged["last"]
        if one.claim.measure == "step" and (one.method, one.against) == ("TRL", "GRPO")
    ]
    assert team.by_start == pytest.approx((-4.1, -4.5))
    assert unit_error(team.by_start) == pytest.approx(0.2)
    assert team.verdict == TOO_FEW


def test_page_has_every_row_and_a_verdict_on_every_claim(found: Curves, tmp_path: Path):
    pytest.importorskip("matplotlib", reason="the page has a figure")
    for one, (start, *curve) in found.items():
        write_json(Training(one.start).note(tmp_path), {"senior": start})
        write_json(one.note(tmp_path), {"curve": curve})
    assert read_curves(tmp_path, SIZE) == found
    said = write_page(tmp_path, SIZE).read_text().splitlines()
    for method in (START, *(one.name for one in METHODS)):
        rows = [line for line in said if line.startswith(f"| {method} | ") and " ± " in line]
        assert len(rows) >= 2
    verdicts = [line.split(" | ")[-1].strip(" |") for line in said if line.count("|") == 8]
    judged = sum(len(judge_all(found, choice)) for choice in CHOICES)
    assert sum(one in (TOO_FEW, "cannot tell") for one in verdicts) == judged
    assert (tmp_path / "curves.svg").exists()


def test_every_training_has_a_note_of_its_own(tmp_path: Path):
    every = trainings(SIZE)
    assert len({one.note(tmp_path) for one in every}) == len(every) == 2 * 2 * len(METHODS)
    assert Training(1, TRL, 1) in every
