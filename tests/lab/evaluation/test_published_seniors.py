"""The page and the script that score the published seniors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scripts import module_of

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "published" / "score.sh"


def test_papers_numbers_stand_beside_those_found(make_results: Callable[..., Path]):
    kinds = ("solo", "legibility")
    make_results("GRPO", [1, 2], benchmark="AIME", kinds=kinds)
    results = make_results("tandem", [1, 1], benchmark="AIME", kinds=kinds)
    rows = module_of(SCRIPT.with_name("beside.py")).beside(results, "positions").splitlines()
    (row,) = [one for one in rows if one.startswith("| legibility base | Cross-entropy | AIME")]
    assert row == (
        "| legibility base | Cross-entropy | AIME | 0.154 | 0.115 ± 0.004 | 0.156 | 0.110 ± 0.000 |"
    )
    assert "| handoff step base | pass@8 | average | 52.7 | not run | 55.8 | not run |" in rows
    assert "| drift base | KL | all | 0.026 | not run | 0.022 | not run |" in rows


def test_papers_drift_stands_beside_that_found_with_its_null(make_results: Callable[..., Path]):
    for senior, right in (("GRPO", [3, 4]), ("tandem", [1, 1])):
        results = make_results(senior, right)
    *_, kl, moved, rho = (
        module_of(SCRIPT.with_name("beside.py")).beside(results, "positions").split("\n")
    )
    junior = np.array([10] * 8) + 0.5
    written = [np.bincount([i % 8 for i in range(40 + 3 * n)] + [2] * n) + 0.5 for n in (7, 2)]
    shares = [stats.entropy(one / one.sum(), junior / junior.sum()) for one in written]
    assert kl == f"| drift base | KL | all | 0.026 | {shares[0]:.3f} | 0.022 | {shares[1]:.3f} |"
    grpo, tandem = (np.log(one / one.sum()) for one in written)
    base = np.log(junior / junior.sum())
    back = 100 * np.mean((grpo - base) * (tandem - grpo) < 0)
    assert moved.startswith(
        f"| drift base | top 500 moved back (%) | all |  |  | 87 | {back:.2f}, null "
    )
    correlation = stats.spearmanr(grpo - base, tandem - grpo).statistic
    assert rho.startswith(
        f"| drift base | ρ, top 500 | all |  |  | -0.58 | {correlation:.2f}, null "
    )
    assert "cross-fitted" in moved
    assert "cross-fitted" in rho


@pytest.mark.parametrize(
    ("protocol", "schedules", "over"),
    [
        ("paper", ["step", "step-bernoulli"], "positions"),
        ("release", ["step-text"], "responses"),
    ],
)
def test_script_evaluates_compares_and_sets_beside(
    tmp_path: Path, protocol: str, schedules: list[str], over: str
):
    said = tmp_path / "said"
    for name in ("tandem", "python"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >>{said}\n')
        program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PROTOCOL": protocol}
    subprocess.run(
        [str(SCRIPT), "--n", "2"],
        env=env
        | {"OUT": "out", "BENCHMARKS": "sums=sums.jsonl", "BASE": "b", "GRPO": "g", "TANDEM": "t"},
        check=True,
    )
    evaluated, compared, shown = said.read_text().splitlines()
    named = " ".join(f"--schedule {name}" for name in schedules)
    assert evaluated == (
        f"tandem eval all --protocol {protocol} --senior GRPO=g --senior tandem=t --junior base=b "
        f"--benchmark sums=sums.jsonl {named} --out out --n 2"
    )
    assert compared == (
        f"tandem compare out/GRPO out/tandem --legibility-over {over} --out out/tables"
    )
    assert shown.endswith(f"beside.py out {over}")
