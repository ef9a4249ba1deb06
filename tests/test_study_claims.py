"""What the study makes of its runs: claims judged, rows chosen, and the power that it announces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "examples" / "study"))

pytest.importorskip("torch", reason="the light part trains with PyTorch")
pytest.importorskip("scipy.stats", reason="the tests of claims are SciPy's")

from light.claims import CLAIMS, MOVED_BACK, Claim
from light.judging import TOO_FEW, detectable, judge, judge_all, judge_pairs, power
from light.notes import write_json
from light.page import write_page
from light.runs import Training, taught
from light.size import GRPO, SELF, TRL, LightSize, kl_reg
from light.table import CHOICES, START, Found, read_found

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


def test_runs_that_do_not_differ_in_how_much_or_are_alone_tell_nothing():
    for claim in (MORE, LESS, ALIKE):
        for differences in (np.zeros(10), np.full(10, 0.5), np.array([0.3])):
            assert judge(claim, differences)[1] == "cannot tell"


def test_pairs_are_units_and_two_of_them_too_few():
    """t = mean / (half of their difference) with one degree of freedom."""
    p, verdict = judge_pairs(MORE, (0.054, 0.147))
    assert p == pytest.approx(0.5 - np.arctan(0.1005 / 0.0465) / np.pi)
    assert verdict == TOO_FEW
    assert judge_pairs(MORE, (0.1, 0.12, 0.11, 0.13, 0.14))[1] == "agrees"
    assert judge_pairs(MORE, (0.5,) * 5)[1] == "cannot tell"


def test_another_pair_is_not_told_from_the_seeds_of_a_few():
    """Of no difference on average a claim is called right in 5% of studies of 5 pairs x 4 seeds."""
    rng = np.random.default_rng(2)
    right = {"pairs": 0, "runs": 0}
    for _ in range(1500):
        each = rng.normal(0, 0.02, (5, 1)) + rng.normal(0, 0.02, (5, 4))
        right["pairs"] += judge_pairs(MORE, each.mean(axis=1))[1] == "agrees"
        right["runs"] += judge(MORE, each.ravel())[1] == "agrees"
    assert abs(right["pairs"] / 1500 - 0.05) < 4 * (0.05 * 0.95 / 1500) ** 0.5
    assert right["runs"] / 1500 > 0.1


def test_error_rates_are_those_that_are_announced():
    """Of a true null a claim is called right in 5% of studies, and so is its opposite."""
    rng = np.random.default_rng(0)
    verdicts = [judge(MORE, rng.normal(0, 0.02, 10))[1] for _ in range(1500)]
    for verdict in ("agrees", "does not"):
        assert abs(verdicts.count(verdict) / 1500 - 0.05) < 4 * (0.05 * 0.95 / 1500) ** 0.5
    lost = [judge(ALIKE, rng.normal(0.02, 0.02, 10))[1] for _ in range(1500)]
    assert lost.count("agrees") / 1500 < 0.05 + 4 * (0.05 * 0.95 / 1500) ** 0.5


def test_announced_power_is_that_of_simulated_studies():
    rng = np.random.default_rng(1)
    for claim, difference, expected in (
        (MORE, detectable(MORE, 10), 0.8),
        (MORE, 0.01, power(MORE, 0.01, 10)),
        (LESS, -0.01, power(LESS, -0.01, 10)),
        (ALIKE, 0.0, power(ALIKE, 0.0, 10)),
    ):
        found = [judge(claim, rng.normal(difference, 0.02, 10))[1] for _ in range(600)]
        assert abs(found.count("agrees") / 600 - expected) < 4 * (0.25 / 600) ** 0.5
    assert power(ALIKE, 0.0, 10) > power(ALIKE, 0.02, 10)


def point(step: int, solo: float, value: float, validation: float = 0.0) -> dict[str, Any]:
    names = ("step", "step-bernoulli", "cross_entropy", "overlap", "kl")
    counts = np.random.default_rng(int(100 * value + step)).integers(1, 50, (8, 60)).tolist()
    return {
        "step": step, "validation": validation, "solo": solo, "jargon": 0.5, "counts": counts,
        "beside": {SELF: dict.fromkeys(names, value)},
    }  # fmt: skip


SIZE = LightSize(exposures=(SELF,), swept="", pairs=1, seeds=(1, 2))
NOTES = {"senior": point(0, 0.4, 0.0), "juniors": {SELF: point(0, 0.4, 9.0)}}


@pytest.fixture
def found() -> Found:
    curves = {}
    for seed, off in ((1, 0.0), (2, 0.1)):
        curves |= {
            Training(1, GRPO, seed, (SELF,)): [
                point(25, 0.8, 4.0 + off, 0.9),
                point(50, 1.0, 6.0 + off, 0.7),
            ],
            Training(1, TRL, seed, (SELF,)): [
                point(25, 0.5, 1.0 - off, 0.1),
                point(50, 0.6, 2.0 - off, 0.2),
            ],
            Training(1, kl_reg(0.05), seed, (SELF,)): [point(25, 0.7, 1.0), point(50, 0.7, 2.0)],
        }
    return Found(SIZE, (NOTES,), curves)


def test_best_checkpoint_is_chosen_by_each_runs_own_validation(found: Found):
    assert found.row(SELF, "GRPO", "best").mean("step") == pytest.approx(4.05)
    assert found.row(SELF, "TRL", "best").mean("step") == pytest.approx(1.95)
    assert found.row(SELF, "KL-Reg 0.05", "best").mean("step") == 1.0  # the first of equals
    assert found.row(SELF, "GRPO", "last").mean("step") == pytest.approx(6.05)
    assert found.row(SELF, START, "last").values["solo"].tolist() == [0.4, 0.4]


def test_matched_rows_are_where_both_runs_are_as_accurate_alone(found: Found):
    trl, grpo = found.couple(SELF, "TRL", "GRPO", "matched")
    assert trl.values["solo"] == pytest.approx([0.6, 0.6])
    assert grpo.values["solo"] == pytest.approx([0.6, 0.6])
    assert grpo.values["step"] == pytest.approx([2.0, 2.05])  # halfway to the first checkpoint
    assert grpo.values["step_number"] == pytest.approx([12.5, 12.5])
    assert trl.values["step"] == pytest.approx([2.0, 1.9])
    grpo, other = found.couple(SELF, "GRPO", "KL-Reg 0.05", "matched")
    assert grpo.values["solo"] == pytest.approx([0.7, 0.7])  # what TRL reaches plays no part
    assert other.values["step"] == pytest.approx([1.0, 1.0])


def test_claims_are_judged_run_by_run_and_only_where_they_say_something(found: Found):
    judged = {choice: judge_all(found, SELF, choice) for choice in CHOICES}
    for choice, lines in judged.items():
        couples = {(one.claim.text, one.method, one.against) for one in lines}
        assert len(couples) == len(lines)
        assert all(choice in one.claim.choices for one in lines)
    assert not [one for one in judged["matched"] if one.claim.measure == "solo"]
    (team,) = [
        one for one in judged["last"] if one.claim.measure == "step" and one.against == "GRPO"
        and one.method == "TRL"
    ]  # fmt: skip
    assert team.differences == pytest.approx([-4.0, -4.2])
    assert team.by_pair == pytest.approx((-4.1,))
    assert np.isnan(team.error)  # of one pair
    assert team.verdict == TOO_FEW
    assert team.within == "does not"


def test_moving_back_is_told_from_noise():
    """What stays with the junior moves GRPO's drift back; what drifts as GRPO does, does not."""
    rng = np.random.default_rng(4)
    base = np.full(60, 1 / 60)
    away = base * np.exp(rng.normal(0, 0.6, 60))

    def note(step: int, use: np.ndarray) -> dict[str, Any]:
        counts = rng.multinomial(1200, use / use.sum(), 8).tolist()
        return point(step, 0.5, 0.0) | {"counts": counts}

    curves = {}
    for seed, use in ((1, base), (2, away)):  # what TRL's runs write
        curves[Training(1, GRPO, seed, (SELF,))] = [note(25, away)]
        curves[Training(1, TRL, seed, (SELF,))] = [note(25, use)]
    start = {"senior": note(0, base), "juniors": {SELF: note(0, base)}}
    back, alike = Found(SIZE, (start,), curves).moved_back(SELF, "TRL", "last")
    assert back > 0.45
    assert abs(alike) < 0.2
    assert MOVED_BACK in {claim.measure for claim in CLAIMS}


def test_page_has_every_row_and_a_verdict_on_every_claim(found: Found, tmp_path: Path):
    pytest.importorskip("matplotlib", reason="the page has figures")
    write_json(taught(tmp_path, 1), NOTES)
    for one, curve in found.curves.items():
        write_json(one.note(tmp_path), {"curve": curve})
    assert read_found(tmp_path, SIZE).curves.keys() == found.curves.keys()
    said = write_page(tmp_path, SIZE).read_text().splitlines()
    assert len([line for line in said if line.startswith("| taught senior |")]) == len(CHOICES)
    verdicts = [
        line.split(" | ")[-1].strip(" |")
        for line in said
        if line.count("|") == 10 and " ± " in line
    ]
    judged = sum(len(judge_all(found, SELF, choice)) for choice in CHOICES)
    known = [one for one in verdicts if one in ("agrees", "does not", "cannot tell")]
    assert len(known) == judged
    of_self = "# The junior: the senior as it was taught, the paper's setting"
    glance = said[said.index("# Verdicts within these pairs") : said.index(of_self)]
    cells = [cell.strip() for line in glance for cell in line.split("|")]
    assert sum(cells.count(one) for one in ("agrees", "does not", "cannot tell")) == judged
    assert (tmp_path / "figures" / "self.svg").exists()
