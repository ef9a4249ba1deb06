"""What the study on a real model makes of its runs: which there are, and its tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples"))
sys.path.append(str(Path(__file__).parents[2] / "examples" / "study"))

pytest.importorskip("torch", reason="the study trains with PyTorch")
pytest.importorskip("scipy.stats", reason="its power is computed with SciPy")

from real import GRPO, MEASURES, TANDEM, Run, Size, all_runs, page, power_line

from tandem_plugin.lab.evaluation.results import write_json


def note(out: Path, run: Run, curve: list[dict[str, Any]]) -> None:
    run.note(out).parent.mkdir(parents=True, exist_ok=True)
    write_json(run.note(out), {"name": run.name, "seconds": 60, "rewards": [], "curve": curve})


def point(step: int, solo: float, other: float) -> dict[str, Any]:
    return {"step_number": step, **dict.fromkeys(MEASURES, other), "solo": solo}


def cells(text: str, name: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def every(seeds: int) -> list[Run]:
    return [run for unit in all_runs(seeds) for run in unit]


@pytest.fixture
def measured(tmp_path: Path) -> str:
    """Two seeds. GRPO reaches 0.6 alone at its last step, tandem half as much of the rise."""
    for seed, shift in ((1, 0.0), (2, 0.1)):
        note(tmp_path, Run(seed, None), [point(0, 0.2, 0.0)])
        note(tmp_path, Run(seed, GRPO), [point(4, 0.4, 0.2), point(8, 0.6, 0.4)])
        note(tmp_path, Run(seed, TANDEM), [point(4, 0.3, 0.1), point(8, 0.4, 0.5 + shift)])
    return page(tmp_path, Size(), every(2))


def test_grpo_and_tandem_have_one_seed_more_than_the_other_methods():
    runs = every(2)
    of = {run.method.name: 0 for run in runs if run.method}
    for run in runs:
        if run.method:
            of[run.method.name] += 1
    assert sorted(of.values()) == [2, 2, 2, 2, 3, 3]
    assert of["GRPO"] == of["tandem"] == 3
    assert len({run.name for run in runs}) == len(runs)
    # Every seed's taught model is trained from before any of its methods.
    assert next(run.method for run in runs if run.seed == 1) is None


def test_last_step_is_averaged_over_seeds_with_its_error(measured: str):
    assert cells(measured, "tandem")[:4] == ["tandem", "2", "0.400 ± 0.000", "0.550 ± 0.050"]


def test_differences_at_the_same_step_are_of_the_last_points(measured: str):
    assert cells(measured, "tandem, same step")[2:4] == ["-0.200 ± 0.000", "0.150 ± 0.050"]


def test_differences_at_equal_accuracy_compare_where_both_first_reach_it(measured: str):
    """Tandem reaches 0.4 at its last step, GRPO at its first evaluation."""
    assert cells(measured, "tandem, same accuracy alone")[2:4] == ["0.000 ± 0.000", "0.350 ± 0.050"]


def test_page_says_how_many_runs_there_are_and_lists_each_point(measured: str):
    assert "\n6 of 17 runs, 6 minutes" in measured
    assert measured.count("| tandem, step 8 |") == 2


def test_power_says_less_with_more_seeds():
    def least(seeds: int) -> float:
        return float(power_line(seeds, Size()).split("from ")[1].split(" ")[0])

    assert least(2) > least(3) > least(8)
