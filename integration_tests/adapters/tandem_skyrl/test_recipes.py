"""``examples/skyrl/train.sh``: the paper's runs, with only sizes overridden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("skyrl", reason="SkyRL is not installed: make test-skyrl")

from support.commands import TANDEM, run
from support.recipes import EVALUATION, follow
from support.skyrl_run import SkyRLBench

from tandem_plugin.training.checkpoint_note import NOTE

SCRIPT = str(Path(__file__).parents[3] / "examples" / "skyrl" / "train.sh")

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]
BENCH = SkyRLBench
SIZES: dict[str, Any] = {
    "trainer__train_batch_size": 4,
    "trainer__policy_mini_batch_size": 2,
    "trainer__max_prompt_length": 300,
    "generator__max_input_length": 300,
    "trainer__eval_interval": 1,
    "trainer__hf_save_interval": 1,
    "generator__n_samples_per_prompt": 4,
    "generator__eval_n_samples_per_prompt": 1,
}


@pytest.mark.parametrize("method", ["tandem", "kl-reg"])
def test_recipe_trains_to_its_end_and_its_next_commands_run(
    bench: SkyRLBench, tmp_path: Path, method: str
) -> None:
    rows = [{"problem": f"What is {i} and {i}?", "answer": str(2 * i)} for i in range(12)]
    problems = tmp_path / "sums.jsonl"
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = tmp_path / "data"
    prepare = ["data", "prepare", str(problems), "--to", "skyrl", "--out", str(data)]
    run([*TANDEM, *prepare, "--heldout", "4"])
    environment = {
        "GPUS": "1",
        "TRIAL": "1",
        "STEPS": "2",
        "RESPONSE": "16",
        "MODEL": str(bench.model),
        "DATA": str(data),
        "BENCHMARKS": f"heldout={data / 'heldout.parquet'}",
        "EVAL": EVALUATION,
    }
    trained = bench.run(
        {}, recipe=[SCRIPT, method], environment=environment, name=method, timeout=800, **SIZES
    )
    assert trained.exit_code == 0, trained.log[-5000:]
    out = trained.folder / "runs" / "skyrl" / method
    assert (out / "done").read_text() == "2\n"
    assert ("tandem is on: schedule=word" in trained.log) is (method == "tandem")
    # Nothing was solved: of equally good seniors it is the last.
    assert (out / "senior").resolve() == out / "export" / "global_step_2" / "policy"
    assert [path.name for path in (out / "checkpoints").glob("global_step_*")] == ["global_step_2"]
    if method == "tandem":
        assert (out / "senior" / NOTE).exists()
        assert sorted(path.name for path in (out / "rollouts").iterdir()) == ["1.jsonl", "2.jsonl"]
        replay = [*TANDEM, "replay", str(out / "rollouts"), "--tokenizer", str(bench.model)]
        assert json.loads(run([*replay, "--json"]).stdout)["ok"] is True
    follow(trained, out, method)
