"""What the study makes of its rows: checkpoints paired, differences tested, and the power that it
announces; and that its published numbers are those of its published rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STUDY = Path(__file__).parents[2] / "examples" / "study"
sys.path.append(str(STUDY))

pytest.importorskip("torch", reason="the study trains with PyTorch")
stats = pytest.importorskip("scipy.stats", reason="the tests of claims are SciPy's")

from light.grpo import GRPO, HALF, TANDEM  # noqa: E402
from light.judging import (  # noqa: E402
    COUPLES,
    EXPECTED,
    HANDOFFS,
    Curves,
    complete_models,
    detectable,
    differences,
    holm,
    judge,
    pair,
    power,
    reach,
)
from light.page import MEASURES, comparisons, page, points, read_rows, write_page  # noqa: E402
from light.runs import METHODS, TAUGHT, WHOLE, trainings  # noqa: E402


def point(step: int, validation: float, team: float, tokens: int, own: float = 0.0) -> Any:
    values = dict.fromkeys(MEASURES, team)
    counts = {"step_number": step, "trained_tokens": tokens}
    return {
        **values,
        **counts,
        "validation": validation,
        "own_validation": own,
        "solo": 1 - validation,
    }


def rows_of(model: int, shift: float = 0.0) -> list[dict[str, Any]]:
    """GRPO reaches 0.8 alone with twice the tokens, tandem 0.6; the half stays between."""
    points = {
        TAUGHT: [point(0, 0.4, 0.4, 0)],
        GRPO.name: [point(10, 0.7, 0.5, 200, 0.9), point(20, 0.8, 0.6, 400, 0.8)],
        HALF.name: [point(10, 0.6, 0.45, 100, 0.6), point(20, 0.7, 0.5, 200, 0.7)],
        TANDEM.name: [
            point(10, 0.5, 0.45, 100, 0.4),
            point(20, 0.6, 0.55 + shift, 200, 0.5),
        ],
    }
    return [
        {"model": model, "method": name, "seconds": 60, "points": made}
        for name, made in points.items()
    ]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [row for model, shift in ((41, 0.0), (42, 0.02)) for row in rows_of(model, shift)]


@pytest.fixture
def curves(rows: list[dict[str, Any]]) -> Curves:
    return complete_models(rows)


def test_at_equal_accuracy_both_are_where_they_first_reach_the_lower_last_one(curves: Curves):
    tandem, grpo = pair(curves[41][TANDEM.name], curves[41][GRPO.name], "accuracy")
    assert tandem["step"] == pytest.approx(0.55)  # its last checkpoint
    assert grpo["validation"] == pytest.approx(0.6)
    assert grpo["step"] == pytest.approx(0.4 + 0.1 * 2 / 3)  # two thirds of the way to step 10
    assert grpo["step_number"] == pytest.approx(20 / 3)


def test_at_equal_tokens_grpo_is_taken_half_way(curves: Curves):
    tandem, grpo = pair(curves[41][TANDEM.name], curves[41][GRPO.name], "tokens")
    assert (tandem["step_number"], grpo["step_number"]) == (20, 10)
    assert grpo["step"] == pytest.approx(0.5)


def test_best_is_chosen_by_each_methods_own_validation(curves: Curves):
    tandem, grpo = pair(curves[41][TANDEM.name], curves[41][GRPO.name], "best")
    assert (tandem["step_number"], grpo["step_number"]) == (20, 10)
    assert [at["step_number"] for at in pair(*_of(curves, 41, GRPO, TANDEM), "steps")] == [20, 20]


def _of(curves: Curves, model: int, *methods: Any) -> list[Any]:
    return [curves[model][one.name] for one in methods]


def test_level_that_is_never_reached_is_an_error(curves: Curves):
    with pytest.raises(ValueError, match=r"No checkpoint has validation of 0\.9"):
        reach(curves[41][GRPO.name], "validation", 0.9)


def test_differences_are_of_each_model(curves: Curves):
    found = differences(curves, COUPLES[0], "accuracy", "step")
    expected = 0.55 - (0.4 + 0.1 * 2 / 3)
    assert found == pytest.approx([expected, expected + 0.02])
    assert differences(curves, COUPLES[2], "steps", "step") == pytest.approx([-0.1, -0.1])


def test_models_count_in_order_up_to_the_first_that_lacks_a_method(rows: list[dict[str, Any]]):
    missing = [row for row in rows_of(43) if row["method"] != GRPO.name]
    assert list(complete_models([*rows, *missing, *rows_of(44)])) == [41, 42]


def test_judgement_is_the_two_sided_paired_test():
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.5])
    found, expected = judge(values), stats.ttest_1samp(values, 0.0)
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert judge(-values).p == pytest.approx(found.p)


def test_holm_multiplies_by_the_tests_that_are_left_and_never_falls():
    assert holm([0.03, 0.01]) == pytest.approx([0.03, 0.02])
    assert holm([0.01, 0.04, 0.011]) == pytest.approx([0.03, 0.04, 0.03])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_announced_power_is_that_of_simulated_studies():
    rng = np.random.default_rng(1)
    for difference, expected in ((detectable(0.01, 18), 0.8), (0.004, power(0.004, 0.01, 18))):
        found = [judge(rng.normal(difference, 0.01, 18)) for _ in range(800)]
        share = np.mean([one.p < 0.05 and one.mean > 0 for one in found])
        assert abs(share - expected) < 4 * (0.25 / 800) ** 0.5


def test_every_model_is_taught_before_its_trainings():
    units = trainings(WHOLE, 3)
    assert [[one.method for one in unit] for unit in units] == [[None, *METHODS]] * 3
    assert [unit[0].model for unit in units] == [41, 42, 43]
    assert len({one.name for unit in units for one in unit}) == 12


def test_page_says_what_the_rows_do(rows: list[dict[str, Any]], tmp_path: Path):
    pytest.importorskip("matplotlib", reason="the page has a figure")
    text = write_page(tmp_path, rows).read_text()
    assert "2 models, numbers 41 to 42" in text
    assert "| tandem - GRPO | `step` | +9.33 ± 1.00 |" in text
    assert "| tandem - GRPO | equal steps | +0.2000 ± 0.0000 | -0.0400 ± 0.0100 |" in text
    assert (tmp_path / "curves.svg").stat().st_size > 1000
    # At 0.60 alone: GRPO 0.467 at step 7, tandem at its last.
    (level,) = (line for line in text.splitlines() if line.startswith("| 0.60 |"))
    assert "| 0.467 ± 0.000 | 0.450 ± 0.000 | 0.560 ± 0.010 |" in level
    assert level.endswith("| 7 | 10 | 20 |")


RESULTS = STUDY / "results"


def test_published_page_is_that_of_the_published_rows():
    assert (RESULTS / "study.md").read_text(encoding="utf-8") == page(
        read_rows(RESULTS / "rows.jsonl")
    )


def in_points(curves: Curves, couple: tuple[str, str], choice: Any, measure: str) -> str:
    """A difference as the pages write it, in points of accuracy."""
    return points(judge(differences(curves, couple, choice, measure)))


def test_numbers_of_the_readmes_are_those_of_the_published_rows():
    curves = complete_models(read_rows(RESULTS / "rows.jsonl"))
    tandem, half, control = COUPLES
    quoted = {
        "docs/results.md": [
            in_points(curves, tandem, "accuracy", "step-bernoulli"),
            in_points(curves, tandem, "accuracy", "step"),
            in_points(curves, control, "accuracy", "step-bernoulli"),
            in_points(curves, tandem, "steps", "solo"),
            in_points(curves, tandem, "steps", "step-bernoulli"),
        ],
        "examples/study/README.md": [
            *(points(found) for _, _, found, _ in comparisons(curves)),
            *(f"{corrected:.2g}" for *_, corrected in comparisons(curves)),
            in_points(curves, control, "tokens", "step-bernoulli"),
            in_points(curves, control, "tokens", "step"),
            *(in_points(curves, couple, "accuracy", "solo") for couple in (tandem, half)),
            *(
                in_points(curves, couple, choice, measure)
                for couple in (tandem, half)
                for choice in ("steps", "tokens", "best")
                for measure in ("solo", "step-bernoulli", "step")
            ),
        ],
    }
    for file, numbers in quoted.items():
        text = (STUDY.parents[1] / file).read_text(encoding="utf-8")
        assert f"{len(curves)} models" in text
        assert [number for number in numbers if number not in text] == [], file


def test_what_weakens_the_result_is_said_with_the_numbers_of_the_published_rows():
    curves = complete_models(read_rows(RESULTS / "rows.jsonl"))
    each = [np.sort(differences(curves, COUPLES[0], "accuracy", name)) for name in HANDOFFS]
    spreads = [own.std(ddof=1) for own in each]
    chances = [f"{power(mean, assumed, len(curves)):.0%}" for mean, assumed in EXPECTED.values()]
    real = [
        f"{power(EXPECTED[name][0], spread, len(curves)):.0%}"
        for name, spread in zip(HANDOFFS, spreads, strict=True)
    ]
    positive = [int((own > 0).sum()) for own in each]
    text = " ".join((STUDY / "README.md").read_text(encoding="utf-8").split())
    for sentence in (
        "standard deviations of {:.2f} and {:.2f} points, not".format(*(100 * s for s in spreads)),
        "was {} and {}, not {} and {},".format(*real, *chances),
        f"{positive[0]} of 20 differences are positive under random handoffs, {positive[1]} under",
        f"it is {points(judge(each[0][:-1]))} and {points(judge(each[1][:-1]))}.",
    ):
        assert sentence in text
    for file in ("docs/results.md", "examples/study/README.md"):
        said = " ".join((STUDY.parents[1] / file).read_text(encoding="utf-8").split())
        medians = " and ".join(f"{100 * np.median(own):+.2f}" for own in each)
        rest = [(own[:-4].mean(), stats.ttest_1samp(own[:-4], 0).pvalue) for own in each]
        without = " and ".join(f"{100 * mean:+.2f} (p {p:.2f})" for mean, p in rest)
        assert f"the medians are {medians}" in said
        assert f"it is {without}" in said
        assert f"p {stats.binomtest(positive[1], 20).pvalue:.2f})" in said
    leading = [
        set(np.argsort(differences(curves, COUPLES[0], "accuracy", name))[-4:]) for name in HANDOFFS
    ]
    assert leading[0] == leading[1]
    shares = [own[-4:].sum() / own.sum() for own in each]
    assert shares == pytest.approx([0.8, 0.8], abs=0.05)
    steps = differences(curves, COUPLES[0], "accuracy", "step_number").mean()
    assert f"needs {steps:.0f} steps more" in text
