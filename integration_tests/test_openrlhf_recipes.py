"""``examples/openrlhf/train.sh``: each of the paper's runs, with only sizes overridden."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf", reason="OpenRLHF is not installed: make test-openrlhf")

from support.commands import TANDEM, run
from support.openrlhf_run import ON_CPU, OpenRLHFBench
from support.recipes import EVALUATION, follow

SCRIPT = str(Path(__file__).parents[1] / "examples" / "openrlhf" / "train.sh")

pytestmark = pytest.mark.timeout(2400)
BENCH = OpenRLHFBench


@pytest.mark.parametrize("method", ["trl", "grpo", "kl-reg"])
def test_recipe_trains_to_its_end_and_its_next_commands_run(
    bench: OpenRLHFBench, method: str
) -> None:
    trained = bench.run(
        *("--data.max_samples", "8", "--eval.steps", "1"),
        recipe=[SCRIPT, method],
        # What the script says, and finds, where flash-attn is not installed.
        keeps=[
            "--ds.attn_implementation",
            "--data.prompt_dataset",
            "--ckpt.path",
            "--ckpt.output_dir",
        ],
        environment={
            "GPUS": "1",
            "TRIAL": "1",
            "STEPS": "2",
            "MODEL": str(bench.model),
            "TRAIN": str(bench.folder / "prompts.jsonl"),
            "VALIDATION": str(bench.folder / "prompts.jsonl"),
            "EVAL": EVALUATION,
            "PYTHONPATH": os.pathsep.join([str(ON_CPU), str(ON_CPU.parents[1])]),
        },
        name=method,
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    assert len(trained.steps) == 2
    for step in trained.steps:
        outcomes: list[Any] = [value for name, value in step.items() if name.startswith("outcome_")]
        assert sum(outcomes) == pytest.approx(1)
        assert ("tandem/senior_share" in step) is (method == "trl")
        assert ("kl" in step and step["kl"] >= 0) or method != "kl-reg"
    out = trained.folder / "runs" / "openrlhf" / method
    assert (out / "done").read_text() == "2\n"
    # Nothing was solved, so that the first evaluated senior is still the best.
    assert (out / "senior").resolve().name == "best_global_step1_hf"
    assert [path.name for path in (out / "checkpoints").glob("*_hf")] == ["best_global_step1_hf"]
    if method == "trl":
        assert sorted(path.name for path in (out / "rollouts").iterdir()) == ["1.jsonl", "2.jsonl"]
        replay = [*TANDEM, "replay", str(out / "rollouts"), "--tokenizer", str(bench.model)]
        assert json.loads(run([*replay, "--json"]).stdout)["ok"] is True
    follow(trained, out, method)
