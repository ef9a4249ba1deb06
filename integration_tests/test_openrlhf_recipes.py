"""``examples/openrlhf/train.sh``: each of the paper's runs starts, with only sizes overridden."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-openrlhf")

from support.openrlhf_run import ON_CPU, OpenRLHFBench

SCRIPT = str(Path(__file__).parents[1] / "examples" / "openrlhf" / "train.sh")

pytestmark = pytest.mark.timeout(1200)
BENCH = OpenRLHFBench


@pytest.mark.parametrize("method", ["trl", "grpo", "kl-reg"])
def test_recipe_trains(bench: OpenRLHFBench, method: str) -> None:
    run = bench.run(
        *("--data.max_samples", "4", "--eval.dataset", str(bench.folder / "prompts.jsonl")),
        recipe=[SCRIPT, method],
        # What the script says, and finds, where flash-attn is not installed.
        keeps=["--ds.attn_implementation"],
        environment={
            "GPUS": "1",
            "TRIAL": "1",
            "PYTHONPATH": os.pathsep.join([str(ON_CPU), str(ON_CPU.parents[1])]),
        },
        name=method,
    )
    assert run.exit_code == 0, run.log[-3000:]
    (step,) = run.steps
    outcomes: list[Any] = [value for name, value in step.items() if name.startswith("outcome_")]
    assert sum(outcomes) == pytest.approx(1)
    assert ("tandem/senior_share" in step) is (method == "trl")
    assert ("kl" in step and step["kl"] >= 0) or method != "kl-reg"
