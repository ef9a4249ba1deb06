"""verl trains an adapter (LoRA) and sends the engine that alone: the junior is its base."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.records import all_records
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
BENCH, STEPS = VerlBench, 3
MODEL, ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
ADAPTER = [f"{MODEL}.lora_rank=8", f"{MODEL}.lora_alpha=64"]
FLAGS = [f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6", f"{TANDEM}.measure_every=1"]
LEARNING = "actor_rollout_ref.actor.optim.lr=1e-2"
"""So that a few steps move the senior far from its base."""


@pytest.fixture(scope="module")
def trained(
    bench: VerlBench, tmp_path_factory: pytest.TempPathFactory
) -> tuple[VerlRun, list[dict[str, Any]]]:
    """A run, and what its engine recorded."""
    record = tmp_path_factory.mktemp("record")
    run = bench.run(
        *FLAGS,
        *ADAPTER,
        LEARNING,
        f"{TANDEM}.record={record}",
        f"trainer.total_training_steps={STEPS}",
        name="adapter",
    )
    assert run.exit_code == 0, run.log[-3000:]
    return run, all_records(record)


def rollouts(run: VerlRun) -> list[dict[str, Any]]:
    return [row for step in range(1, STEPS + 1) for row in run.rollouts(step)]


def test_engine_and_actor_agree_on_the_seniors_tokens_at_every_step(
    trained: tuple[VerlRun, list[dict[str, Any]]],
) -> None:
    """Holds only if the adapter of each sync is the senior's, and the senior's alone."""
    steps = trained[0].steps
    assert len(steps) == STEPS
    assert max(step["training/rollout_probs_diff_max"] for step in steps) <= 1e-6
    assert min(step["actor/grad_norm"] for step in steps) > 0


def test_masks_are_the_replay_and_the_engines_record(
    trained: tuple[VerlRun, list[dict[str, Any]]], rule: Rule
) -> None:
    run, records = trained
    recorded = {row["tandem_seed"]: row for row in records}
    for row in rollouts(run):
        assert rule.replay(row["response_ids"], row["tandem_seed"]).tolist() == row["authorship"]
        assert recorded[row["tandem_seed"]]["authorship"] == row["authorship"]
    bits = [bit for row in rollouts(run) for bit in row["authorship"]]
    assert 0.3 < sum(bits) / len(bits) < 0.7


def test_the_senior_leaves_its_base_which_stays_the_junior(
    trained: tuple[VerlRun, list[dict[str, Any]]],
) -> None:
    """At first both are one model; what the adapter learns is the senior's alone."""
    first, *later = (step["tandem/overlap"] for step in trained[0].steps)
    assert first == pytest.approx(1, abs=1e-5)
    assert max(later) < 0.99
