"""A recipe's run by OpenRLHF: each of the paper's, with only sizes overridden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

import torch
from support import recipes
from support.commands import TANDEM, run
from support.openrlhf_run import OpenRLHFBench, OpenRLHFRun
from support.recipes import (
    assert_bad_reward_names_its_row,
    assert_reads_its_command,
    assert_replays,
    assert_trains_by_rewards_of_ones_own,
    follow,
    train,
)

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]
BENCH = OpenRLHFBench


OWN = ["--ds.attn_implementation", "--ckpt.path", "--ckpt.output_dir"]
"""What the recipe says where flash-attn is not installed."""


@pytest.mark.parametrize("method", ["tandem", "grpo", "kl-reg"])
def test_recipe_trains_to_its_end_and_its_next_commands_run(
    method: str, tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    model = checkpoints["senior"]
    trained = train(tmp_path, "openrlhf", model, method=method, validate_every=1)
    assert trained.exit_code == 0, trained.log[-3000:]
    steps = OpenRLHFRun(**vars(trained)).steps
    assert len(steps) == 2
    for step in steps:
        outcomes: list[Any] = [value for name, value in step.items() if name.startswith("outcome_")]
        assert sum(outcomes) == pytest.approx(1)
        assert ("tandem/senior_share" in step) is (method == "tandem")
        assert ("kl" in step and step["kl"] >= 0) or method != "kl-reg"
    out = trained.folder / "runs" / "openrlhf" / method
    assert (out / "done").read_text() == "2\n"
    # Nothing was solved, so that the first evaluated senior is still the best.
    assert (out / "senior").resolve().name == "best_global_step1_hf"
    assert [path.name for path in (out / "checkpoints").glob("*_hf")] == ["best_global_step1_hf"]
    if method == "tandem":
        assert_replays(out, model)
    follow(trained, out, method)


def one_step(bench: OpenRLHFBench, method: str, captured: Path, *arguments: str) -> dict[str, Any]:
    """One step of 4 prompts with the bench's reward: its metrics."""
    trained = bench.run(
        *("--data.max_samples", "4", "--eval.steps", "-1"),
        *("--reward.remote_url", str(bench.folder / "reward.py")),
        *("--eval.dataset", str(bench.folder / "prompts.jsonl")),
        *arguments,
        recipe=recipes.command(
            "openrlhf", bench.model, captured.parent, method=method, device="cpu"
        ),
        keeps=[*OWN, "--rollout.n_samples_per_prompt"],
        hooks="capture_openrlhf",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name=method,
    )
    assert trained.exit_code == 0, trained.log[-3000:]
    (step,) = trained.steps
    return step


def test_grpo_half_trains_what_word_draws(bench: OpenRLHFBench, tmp_path: Path) -> None:
    rollouts = tmp_path / "rollouts"
    step = one_step(bench, "grpo-half", tmp_path / "found", "--tandem.rollouts", str(rollouts))
    assert 0.3 < step["tandem/senior_share"] < 0.7
    masks = [torch.load(file)["mask"] for file in (tmp_path / "found").glob("loss-*.pt")]
    rows = [json.loads(line) for line in (rollouts / "1.jsonl").read_text().splitlines()]
    assert len(rows) == 4 * 8
    assert sum(int(mask.sum()) for mask in masks) == sum(sum(row["authorship"]) for row in rows)
    replay = [*TANDEM, "replay", str(rollouts), "--tokenizer", str(bench.model)]
    assert json.loads(run([*replay, "--json"]).stdout)["ok"] is True


def test_grpo_g16_has_groups_of_sixteen(bench: OpenRLHFBench, tmp_path: Path) -> None:
    step = one_step(bench, "grpo-g16", tmp_path, "--train.batch_size", "64")
    assert "tandem/senior_share" not in step
    rows = torch.load(tmp_path / "advantages-0.pt")
    assert len(rows) == 4 * 16
    rewards = torch.tensor([float(row["reward"]) for row in rows]).view(4, 16)
    spread = rewards.std(dim=1, keepdim=True) + 1e-9
    expected = ((rewards - rewards.mean(dim=1, keepdim=True)) / spread).flatten()
    found = [set(row["advantages"][row["mask"]].tolist()) for row in rows]
    assert [len(one) for one in found] == [1] * len(rows)
    assert [one.pop() for one in found] == pytest.approx(expected.tolist(), abs=1e-3)


def test_trainer_reads_its_command(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_reads_its_command(tmp_path, "openrlhf", checkpoints["senior"], ["--no_such_thing", "1"])


def test_printed_command_trains_by_rewards_of_ones_own(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    assert_trains_by_rewards_of_ones_own(tmp_path, "openrlhf", checkpoints["senior"])


def test_bad_reward_names_its_row(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    assert_bad_reward_names_its_row(tmp_path, "openrlhf", checkpoints["senior"])
