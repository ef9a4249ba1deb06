"""What the study makes of its runs: claims judged, rows chosen, and the power that it announces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "examples" / "study"))

pytest.importorskip("torch", reason="the light part trains with PyTorch")
stats = pytest.importorskip("scipy.stats", reason="the tests of claims are SciPy's")

from light.claims import CLAIMS, Claim, detectable, judge  # noqa: E402
from light.power import power_lines  # noqa: E402
from light.runs import Training, trainings  # noqa: E402
from light.size import GRPO, SELF, TRL, WHOLE, LightSize, kl_reg  # noqa: E402
from light.table import MEASURES, Found  # noqa: E402

MORE = Claim("more", "step", "GRPO", 1, "", 0.02)
LESS = Claim("less", "kl", "GRPO", -1, "", 0.02)
ALIKE = Claim("alike", "solo", "GRPO", 0, "", 0.02, margin=0.02)


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


def test_runs_that_do_not_differ_or_are_alone_tell_nothing():
    for claim in (MORE, LESS, ALIKE):
        assert judge(claim, np.zeros(10))[1] == "cannot tell"
        assert judge(claim, np.array([0.3]))[1] == "cannot tell"


def test_error_rates_are_those_that_are_announced():
    """Of a true null a claim is called right in 5% of studies, and so is its opposite."""
    rng = np.random.default_rng(0)
    verdicts = [judge(MORE, rng.normal(0, 0.02, 10))[1] for _ in range(1500)]
    for verdict in ("agrees", "does not"):
        assert abs(verdicts.count(verdict) / 1500 - 0.05) < 4 * (0.05 * 0.95 / 1500) ** 0.5
    lost = [judge(ALIKE, rng.normal(0.02, 0.02, 10))[1] for _ in range(1500)]
    assert lost.count("agrees") / 1500 < 0.05 + 4 * (0.05 * 0.95 / 1500) ** 0.5


def test_smallest_difference_that_is_found_has_the_announced_power():
    rng = np.random.default_rng(1)
    size = detectable(0.02, 10)
    found = [judge(MORE, rng.normal(size, 0.02, 10))[1] == "agrees" for _ in range(1500)]
    assert abs(np.mean(found) - 0.8) < 4 * (0.16 / 1500) ** 0.5


def test_power_of_every_comparison_is_said_and_the_null_declared():
    said = "\n".join(power_lines(WHOLE))
    for claim in CLAIMS:
        assert f"| {claim.text}" in said
    assert "10 runs" in said
    assert "null" in said


def test_whole_study_trains_what_it_promises():
    size = LightSize()
    runs = trainings(size)
    assert len(set(runs)) == len(runs)
    per_seed = [one for one in runs if one.seed == 1 and one.pair == 1]
    names = sorted(one.name for one in per_seed)
    assert len([one for one in per_seed if one.method == GRPO]) == 1  # it knows no junior
    assert len([one for one in per_seed if one.method == TRL]) == 3
    assert len([name for name in names if "KL-Reg" in name and "1%" in name]) == 3
    assert len(size.seeds) >= 5
    assert size.pairs == 2
    assert size.problems == 400


def point(step: int, solo: float, value: float, validation: float = 0.0) -> dict[str, Any]:
    beside = {name: value for name in MEASURES if name not in ("solo", "jargon")}
    return {
        "step": step, "validation": validation, "solo": solo, "jargon": 0.5,
        "beside": {SELF: beside},
    }  # fmt: skip


@pytest.fixture
def found() -> Found:
    size = LightSize(exposures=(SELF,), swept="", pairs=1, seeds=(1,))
    start = {"senior": {**point(0, 0.4, 0.0)}}
    curves = {
        Training(1, GRPO, 1, (SELF,)): [point(20, 0.8, 4.0, 0.9), point(40, 1.0, 6.0, 0.7)],
        Training(1, TRL, 1, (SELF,)): [point(20, 0.5, 1.0, 0.1), point(40, 0.6, 2.0, 0.2)],
        Training(1, kl_reg(0.05), 1, (SELF,)): [point(20, 0.7, 1.0), point(40, 0.7, 2.0)],
    }
    return Found(size, (start,), curves)


def test_best_checkpoint_is_chosen_by_each_runs_own_validation(found: Found):
    assert found.row(SELF, "GRPO", "best").mean("step") == 4.0
    assert found.row(SELF, "TRL", "best").mean("step") == 2.0
    assert found.row(SELF, "KL-Reg 0.05", "best").mean("step") == 1.0  # the first of equals
    assert found.row(SELF, "GRPO", "last").mean("step") == 6.0


def test_matched_rows_are_where_every_run_is_as_accurate_alone(found: Found):
    assert found.matched_solo(SELF) == 0.6
    for method in ("GRPO", "TRL", "KL-Reg 0.05"):
        assert found.row(SELF, method, "matched").mean("solo") == pytest.approx(0.6)
    assert found.row(SELF, "GRPO", "matched").mean("step") == pytest.approx(2.0)
    assert found.row(SELF, "TRL", "matched").mean("step") == pytest.approx(2.0)
