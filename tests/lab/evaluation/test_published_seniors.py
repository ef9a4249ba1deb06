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

from tandem_plugin.lab.protocols import defaults

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples" / "published" / "score.sh"


def test_papers_numbers_stand_beside_those_found(make_results: Callable[..., Path]):
    kinds = ("solo", "legibility")
    make_results("GRPO", [1, 2], benchmark="AIME", kinds=kinds)
    results = make_results("tandem", [1, 1], benchmark="AIME", kinds=kinds)
    rows = module_of(SCRIPT.with_name("beside.py")).beside(results, "positions").splitlines()
    (row,) = [one for one in rows if one.startswith("| legibility base | Cross-entropy | AIME")]
    assert row == (
        "| legibility base | Cross-entropy | AIME "
        "| 0.154 | 0.115 ± 0.004 | 0.156 | 0.110 ± 0.000 |  |  |"
    )
    stated = "| 52.7 | not run | 55.8 | not run | 52.9 | not run |"
    assert f"| handoff step base | pass@8 | average {stated}" in rows
    assert "| drift base | KL | all | 0.026 | not run | 0.022 | not run |  |  |" in rows


def test_papers_tests_stand_beside_those_found(make_results: Callable[..., Path]):
    kinds = ("handoff", "legibility")
    make_results("GRPO", [1, 2, 0, 1], benchmark="AIME", kinds=kinds)
    results = make_results("tandem", [3, 2, 1, 1], benchmark="AIME", kinds=kinds)
    page = module_of(SCRIPT.with_name("beside.py")).beside(results, "positions")
    rows = [line for line in page.split("\n\n")[1].splitlines() if line.startswith(("| h", "| l"))]
    assert len(rows) == 12
    expected = stats.ttest_rel([3, 2, 1, 1], [1, 2, 0, 1], alternative="greater").pvalue
    assert rows[0] == (
        f"| handoff step base | pass@1 | GRPO | +1.42 | 0.005 | +18.75 | {expected:.2g} |"
    )
    assert rows[3].endswith("| +2.07 | 0.034 | not run |  |")  # of 4 samples
    assert all(row.endswith("| not run |  |") for row in rows if "| KL-Reg |" in row)


def test_papers_samples_give_every_k_that_the_table_shows():
    module = module_of(SCRIPT.with_name("beside.py"))
    for protocol in ("paper", "paper-code"):
        stated = defaults(protocol)
        for run, measure, _ in [*module.PAPER, *module.PAPER_TESTS]:
            if measure.startswith("pass@"):
                samples = stated["samples" if run == "solo" else "team_samples"]
                assert int(measure.removeprefix("pass@")) <= samples


def test_papers_drift_stands_beside_that_found_with_its_null(make_results: Callable[..., Path]):
    for senior, right in (("GRPO", [3, 4]), ("tandem", [1, 1])):
        results = make_results(senior, right)
    table, _ = module_of(SCRIPT.with_name("beside.py")).beside(results, "positions").split("\n\n")
    *_, kl, moved, rho = table.split("\n")
    junior = np.array([10] * 8) + 0.5
    written = [np.bincount([i % 8 for i in range(40 + 3 * n)] + [2] * n) + 0.5 for n in (7, 2)]
    shares = [stats.entropy(one / one.sum(), junior / junior.sum()) for one in written]
    assert (
        kl == f"| drift base | KL | all | 0.026 | {shares[0]:.3f} | 0.022 | {shares[1]:.3f} |  |  |"
    )
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
        ("paper-code", ["step", "step-bernoulli"], "positions"),
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
