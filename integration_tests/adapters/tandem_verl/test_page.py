"""docs/verl.md, followed: its commands run as they stand, on a small model."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.commands import TANDEM, run
from support.page import page_script, write_problems
from support.verl_run import VerlBench

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


def test_page_leads_to_the_first_metrics(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    bench = VerlBench.make(tmp_path / "verl", checkpoints["senior"])
    problems = write_problems(tmp_path / "sums.jsonl", 120)
    trained = bench.run(
        "trainer.total_training_steps=1",
        "data.max_prompt_length=256",
        "actor_rollout_ref.rollout.max_model_len=320",
        "actor_rollout_ref.actor.strategy=fsdp2",
        "actor_rollout_ref.actor.use_kl_loss=False",
        recipe=[str(page_script("verl.md", tmp_path, problems))],
        keeps=["data.train_files", "data.val_files", "actor_rollout_ref.rollout.n="],
        name="page",
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    assert "tandem is on: schedule=word p=0.5 cap=32" in trained.log
    (step,) = trained.steps
    assert 0 < step["tandem/senior_share"] < 1
    outcomes = ("correct", "incorrect", "copied", "no_answer", "timeout", "error")
    assert sum(step[f"grading/{name}"] for name in outcomes) == pytest.approx(1)

    dumped = trained.folder / "rollouts" / "1.jsonl"
    replayed = run([*TANDEM, "replay", str(dumped), "--tokenizer", str(bench.model), "--json"])
    assert json.loads(replayed.stdout)["ok"] is True
    page = tmp_path / "rollouts.html"
    run([*TANDEM, "view", str(dumped), "--tokenizer", str(bench.model), "--out", str(page)])
    rows = [json.loads(line) for line in dumped.read_text().splitlines()]
    assert sum(a != b for row in rows for a, b in itertools.pairwise(row["authorship"])) > 0
    assert len(page.read_text(encoding="utf-8")) > 10_000
