"""The study in three worlds: it runs, resumes and repeats; its tests and its page are right."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STUDY = Path(__file__).parents[2] / "examples" / "study"
sys.path.append(str(STUDY))

pytest.importorskip("torch", reason="the study trains with PyTorch")
stats = pytest.importorskip("scipy.stats", reason="the study's statistics are SciPy's")
pytest.importorskip("transformers", reason="the tokenizer is Hugging Face's")

import worlds as study  # noqa: E402
from light import explored, verdicts  # noqa: E402
from light.grpo import GRPO, TANDEM, Method  # noqa: E402
from light.page import read_rows  # noqa: E402
from light.worlds import (  # noqa: E402
    ARMS,
    HANDOVER,
    KL,
    QUARTER,
    QUICK,
    RARE,
    SELF,
    SOME,
    Schedules,
    Unit,
    arm_name,
)

from tandem_plugin.plugins import using_plugins  # noqa: E402

RESULTS = STUDY / "results" / "worlds"
ARM_NAMES = ["as taught", *map(arm_name, ARMS)]


def test_every_arm_trains_resumes_and_repeats_to_the_byte(tmp_path: Path) -> None:
    unit = Unit(1, (RARE, SOME))
    arms = [GRPO, QUARTER, HANDOVER, Method("KL-Reg 0.1", kl=0.1)]
    listed = list(study._jobs(unit, arms))
    with using_plugins(Schedules()):
        study.run(tmp_path / "one", tmp_path / "models", QUICK, 1.0, listed[:5])
        study.run(tmp_path / "one", tmp_path / "models", QUICK, 1.0, listed)
        study.run(tmp_path / "two", tmp_path / "again", QUICK, 1.0, listed[2:5])
    lines = [(tmp_path / name / "rows.jsonl").read_bytes().splitlines() for name in ("one", "two")]
    assert lines[0][2:6] == lines[1]
    rows = read_rows(tmp_path / "one" / "rows.jsonl")
    assert len(rows) == 2 * (1 + len(arms))
    assert {row["arm"] for row in rows} == {"as taught", *map(arm_name, arms)}
    for row in rows:
        point = row["points"][-1]
        for name in ("continued", "recovered", "read"):
            each = [point[f"{name}_{place}"] for place in (1, 2, 3)]
            assert point[name] == pytest.approx(np.mean(each), abs=1e-6)


def test_rows_of_another_study_are_not_added_to(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"lesson": 7}))
    with pytest.raises(SystemExit, match="other settings"):
        study.run(tmp_path, tmp_path / "models", QUICK, 1.0, [])


def test_a_line_that_a_killed_process_left_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"unit": 1}\n{"unit": ')
    kept = study.Rows(tmp_path)
    assert kept.rows == [{"unit": 1}]
    assert kept.hours == 0
    kept.drop_torn_lines()
    assert (tmp_path / "rows.jsonl").read_text() == '{"unit": 1}\n'


def test_jobs_cover_every_unit_and_the_choice_comes_before_its_arm() -> None:
    names = [(job.unit.number, job.name) for job in study.jobs()]
    last_choice = max(place for place, (number, _) in enumerate(names) if number < 510)
    assert min(place for place, (_, name) in enumerate(names) if name == KL) > last_choice
    assert len({place for job in study.jobs() for place in job.places()}) == sum(
        len(job.places()) for job in study.jobs()
    )
    for units, count in ((range(511, 521), 2), (range(531, 547), 1)):
        for number in units:
            done = [p for job in study.jobs() if job.unit.number == number for p in job.places()]
            assert sum(place[2] == KL for place in done) == count


def row(unit: int, world: str, arm: str, continued: float, reached: bool = True) -> dict[str, Any]:
    measures = dict.fromkeys(
        [*verdicts._SHARES, *verdicts._NATS, "tokens", "reward"], 0.5 + continued / 10
    ) | {f"{name}_{k}": 0.5 for name in ("continued", "recovered", "read") for k in (1, 2, 3)}
    points = [
        measures | {"step": step, "validation": validation, "continued": value}
        for step, validation, value in ((20, 0.8, 0.0), (40, 1.0, 2 * continued))
    ]
    return {"unit": unit, "world": world, "arm": arm, "reached": reached, "points": points}


def test_a_row_counts_half_way_where_its_checkpoints_lie_around_the_level() -> None:
    found = verdicts.at_level(row(1, "w", "a", 0.3))
    assert (found["continued"], found["step"]) == pytest.approx((0.3, 30))
    assert verdicts.at_level(row(1, "w", "a", 0.3, reached=False))["continued"] == 0.6


def test_the_coefficient_is_that_which_is_continued_best_and_reaches_the_level() -> None:
    rows = [
        row(unit, world.name, f"{KL} {coefficient:g}", value, reached)
        for unit in (1, 2)
        for world in (RARE, SOME)
        for coefficient, value, reached in ((0.05, 0.2, True), (0.1, 0.4, True), (0.2, 0.5, False))
    ]
    units = [Unit(number, (RARE, SOME)) for number in (1, 2)]
    assert verdicts.chosen_coefficient(rows, units) == 0.1
    with pytest.raises(ValueError, match="lacks"):
        verdicts.chosen_coefficient(rows[:-1], units)


def test_sign_flips_are_scipys_permutation_test() -> None:
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.5, 0.05])
    expected = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert verdicts.sign_flip(values) == pytest.approx(expected.pvalue)
    assert verdicts.equivalence(np.full(5, 0.002)) == 1 / 32
    assert verdicts.equivalence(np.full(5, 0.02)) == 1


def test_page_counts_seniors_up_to_the_first_that_lacks_an_arm() -> None:
    gain = {TANDEM.name: 0.4, GRPO.name: 0.3}
    rows = [
        row(unit, SELF.name, arm, gain.get(arm, 0.35) + unit / 1000)
        for unit in (531, 532, 534)
        for arm in ARM_NAMES
        if (unit, arm) != (534, KL)
    ]
    assert list(verdicts.complete(rows, SELF.name)) == [531, 532]
    text = verdicts.page(rows)
    assert sum(line.endswith("| 30 | 2 |") for line in text.splitlines()) == len(ARM_NAMES)
    assert "2 in self-pair, 0 in 1% seen" in text
    assert "no claim is made yet" in text
    assert "| self-pair: tandem within 1 point of GRPO | 2 of 16 | +10.0 ± 0.0 |" in text


def test_picture_of_the_predictors_has_a_point_for_each_arm_of_each_complete_senior(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    rows = [row(unit, SELF.name, arm, 0.5) for unit in (531, 532, 533) for arm in ARM_NAMES]
    marks = []
    for complete in (2, 3):
        verdicts.draw_predictors(rows[: complete * len(ARM_NAMES)], tmp_path / "predictors.svg")
        marks.append((tmp_path / "predictors.svg").read_text().count("<use "))
    assert marks[1] - marks[0] == len(verdicts.PREDICTORS) * len(ARMS)


def test_explored_tables_take_the_seniors_that_have_every_arm_they_compare() -> None:
    gain = {TANDEM.name: 0.4, GRPO.name: 0.3, explored.OWN_BEST.name: 0.45}
    arms = [GRPO.name, TANDEM.name, QUARTER.name, explored.HALF_ALONE.name]
    seniors = [(511, arms), (512, arms[:2]), (513, arms[:1]), (514, arms[:2])]
    rows = [
        row(unit, world.name, arm, gain.get(arm, 0.35))
        for world in (RARE, explored.EXPOSURES[0])
        for unit, names in seniors
        for arm in names
    ]
    assert list(explored.having(rows, RARE, (TANDEM, explored.HALF_ALONE))) == [511]
    tables = explored.exposure(rows)
    assert [world.seen for world in tables] == [0, 0.01, 0.02, 0.05, 0.2, 0.5]
    assert [list(table) for table in tables.values()] == [[511, 512], [511, 512], [], [], [], []]
    text = explored.explored(rows)
    assert "| 1% seen (1) | tandem, half alone | 53.5 | 35.0 |" in text
    assert "| 0% seen | 2 | 30.0 | 40.0 |" in text
    assert text.count("| +10.0 to +10.0 |") == 2
    assert "Not run yet." in text
    both = (TANDEM.name, explored.OWN_BEST.name)
    rows = [row(unit, SOME.name, arm, gain[arm]) for unit in (511, 512) for arm in both]
    assert "| 2 | -5.0 ± 0.0 | -5.0 | 0.5 |" in explored.explored(rows)


def test_choices_table_brackets_what_did_not_reach_the_level() -> None:
    rows = [
        row(501, RARE.name, f"{KL} {coefficient:g}", 0.3, reached)
        for coefficient, reached in ((0.1, True), (0.2, False))
    ]
    assert "| 1% seen | 501 | 30.0 | (60.0) |" in explored.explored(rows)


def test_picture_of_the_exposure_has_a_point_for_each_arm_of_each_senior(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    marks = []
    for seniors in (1, 2, 3):
        rows = [
            row(unit, world.name, arm.name, 0.3)
            for unit in range(511, 511 + seniors)
            for world in explored.EXPOSURES
            for arm in (GRPO, TANDEM)
        ]
        explored.draw_exposure(rows, tmp_path / "exposure.svg")
        marks.append((tmp_path / "exposure.svg").read_text().count("<use "))
    more = np.diff(marks)
    assert list(more) == [2 * 2 * len(explored.EXPOSURES)] * 2


def test_numbers_with_an_error_of_what_came_out_are_on_the_page() -> None:
    _, came_out = (STUDY / "WORLDS.md").read_text(encoding="utf-8").split("**What came out**")
    found = re.findall(r"[+-]\d+\.\d+ ± \d+\.\d+", came_out)
    page = (RESULTS / "worlds.md").read_text(encoding="utf-8")
    assert found
    assert [number for number in found if number not in page] == []


def test_correlations_of_the_page_on_evaluation_are_those_within_a_senior() -> None:
    text = (STUDY.parents[1] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    _, measures = text.split("**Which measure says who is continued?**")
    table = verdicts._predictor_lines(read_rows(RESULTS / "rows.jsonl"))
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[6:] for line in table}
    rare, some = ([float(cell) for cell in cells[world.name]] for world in (RARE, SOME))
    sizes = sorted(abs(size) for size in rare)
    assert f"of {sizes[0]:.2f} to {sizes[-1]:.2f}" in " ".join(measures.split())
    assert f"(overlap {some[0]:+.2f}, KL {some[2]:+.2f})" in " ".join(measures.split())


def test_sentences_about_three_worlds_have_the_numbers_of_the_rows() -> None:
    rows = read_rows(RESULTS / "rows.jsonl")
    self_pair, rare, some = (verdicts.complete(rows, world.name) for world in verdicts.WORLDS)
    each = (self_pair, rare, some)

    def mean(table: Any, arm: str, measure: str) -> float:
        return float(np.mean([arms[arm][measure] for arms in table.values()]))

    def steps(arm: str, other: str) -> list[float]:
        return [mean(table, arm, "step") / mean(table, other, "step") for table in each]

    found = verdicts.verdicts(rows)
    holms = verdicts.holm([one.p for one in found])
    gains = 100 * verdicts.differences(some, TANDEM.name, GRPO.name, "continued")
    own = explored.having(rows, SOME, (TANDEM, explored.OWN_BEST))
    own_gains = verdicts.differences(own, TANDEM.name, explored.OWN_BEST.name, "continued")
    half = explored.having(rows, RARE, (TANDEM, explored.HALF_ALONE))
    chosen = verdicts.measured_arms(rows, RARE.name)
    tried = [100 * chosen[502][f"{KL} {one}"]["continued"] for one in ("0.1", "0.2")]
    slower, saved = steps(TANDEM.name, GRPO.name), [1 - s for s in steps(QUARTER.name, TANDEM.name)]
    results = [
        f"(p {holms[0]:.1g} by Holm), and takes half as many steps again",
        f"GRPO writes {mean(rare, GRPO.name, 'jargon'):.0%} in the second notation",
        f"tandem writes {mean(rare, TANDEM.name, 'jargon'):.0%} there",
        f"needs {slower[1]:.1f} times GRPO's steps",
        f"(p {found[2].p:.2g})",
        f"costs {-gains.min():.0f} points",
        f"gains {gains.max():.0f}.",
        f"(p {verdicts.sign_flip(own_gains):.2g}, neither",
        f"continued at {tried[0]:.0f}%, where all of it gives {tried[1]:.0f}%",
        f"{100 * min(saved):.0f} to {max(saved):.0%} fewer steps",
        f"continued {mean(half, explored.HALF_ALONE.name, 'continued'):.0%} in place of "
        f"{mean(half, TANDEM.name, 'continued'):.0%} at 1%",
    ]
    wanted = {
        "docs/results.md": results,
        "docs/schedules.md": [f"{100 * min(saved):.0f} to {max(saved):.0%} fewer steps"],
        "README.md": [f"takes {min(slower):.1f} to {max(slower):.1f} times the steps"],
    }
    assert 1.45 < slower[0] < 1.6
    assert sum(abs(gain) < 1 for gain in gains) == 8
    assert mean(rare, GRPO.name, "continued") < mean(rare, "as taught", "continued")
    for page, sentences in wanted.items():
        text = " ".join((STUDY.parents[1] / page).read_text(encoding="utf-8").split())
        assert [sentence for sentence in sentences if sentence not in text] == []


def test_pages_of_results_have_the_table_of_all_three_worlds() -> None:
    rows = read_rows(RESULTS / "rows.jsonl")
    results = (STUDY.parents[1] / "docs" / "results.md").read_text(encoding="utf-8")
    assert "\n".join(verdicts.summary_lines(rows)) in results


def test_published_page_is_that_of_the_published_rows() -> None:
    text = (RESULTS / "worlds.md").read_text(encoding="utf-8")
    rows = read_rows(RESULTS / "rows.jsonl")
    assert text == f"{verdicts.page(rows)}\n{explored.explored(rows)}"
