"""docs/openrlhf.md, followed: its commands run as they stand, on a small model."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

from support.openrlhf_run import OpenRLHFBench
from support.page import page_script, write_problems

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


def test_page_leads_to_the_first_metrics(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    bench = OpenRLHFBench.make(tmp_path / "openrlhf", checkpoints["senior"])
    problems = write_problems(tmp_path / "sums.jsonl", 120)
    trained = bench.run(
        *("--data.max_samples", "4", "--data.max_len", "320"),
        recipe=[str(page_script("openrlhf.md", tmp_path, problems))],
        keeps=["--data.prompt_dataset", "--data.input_key", "--data.label_key"],
        name="page",
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    assert "tandem is on: schedule=word p=0.5 cap=32" in trained.log
    (step,) = trained.steps
    assert 0 < step["tandem/senior_share"] < 1
    outcomes = [value for name, value in step.items() if name.startswith("outcome_")]
    assert sum(outcomes) == pytest.approx(1)
