"""verl's real trainer with estimators that walk back from a reward."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support.verl_run import TANDEM, VerlBench

from tandem_plugin import TandemConfig, TandemRules, Vocabulary

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
BENCH = VerlBench

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def captured_rows(folder: Path) -> Iterator[tuple[list[int], list[float]]]:
    """Mask and advantages of every row whose loss was computed."""
    for file in folder.glob("loss-*.pt"):
        loss = torch.load(file)
        yield from zip(
            loss["response_mask"].int().tolist(), loss["advantages"].tolist(), strict=True
        )


def test_every_token_of_the_seniors_has_the_reward_whoever_wrote_the_last_one(
    bench: VerlBench, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """REINFORCE++ without a discount: each trained token's return is its response's reward."""
    run = bench.run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.cap=6",
        f"{TANDEM}.junior={checkpoints['junior']}",
        "algorithm.adv_estimator=reinforce_plus_plus",
        "algorithm.rollout_correction.bypass_mode=True",
        f"{_ROLLOUT}.calculate_log_probs=True",
        "trainer.total_training_steps=1",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(tmp_path)},
        name="reinforce",
    )
    assert run.exit_code == 0, run.log[-3000:]
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 6})
    rule = TandemRules(config, Vocabulary.from_path(checkpoints["senior"])).default
    rows = run.rollouts(1)
    authorship = [rule.replay(r["response_ids"], r["tandem_seed"]).tolist() for r in rows]
    assert not all(bits[-1] for bits in authorship)  # the junior wrote some last tokens
    returns = torch.tensor(
        [row["score"] for row, bits in zip(rows, authorship, strict=True) for mine in bits if mine],
        dtype=torch.float64,
    )
    deviation = (returns.var() + 1e-8).sqrt()
    expected = sorted(
        ([int(bit) for bit in bits] + [0] * (32 - len(bits)), round(float(value), 3))
        for row, bits in zip(rows, authorship, strict=True)
        if any(bits)
        for value in [(row["score"] - returns.mean()) / deviation]
    )
    found = []
    for mask, advantages in captured_rows(tmp_path):
        of_row = {round(a, 3) for a, trained in zip(advantages, mask, strict=False) if trained}
        assert len(of_row) <= 1
        found += [(mask + [0] * (32 - len(mask)), value) for value in of_row]
    assert [mask for mask, _ in sorted(found)] == [mask for mask, _ in expected]
    assert [value for _, value in sorted(found)] == pytest.approx(
        [value for _, value in expected], abs=2e-3
    )


def test_ppo_with_a_critic_trains(bench: VerlBench, checkpoints: dict[str, Path]) -> None:
    """Micro-batches of one row, of which some have no token of the senior's."""
    run = bench.run(
        f"{TANDEM}.schedule=word",
        f"{TANDEM}.p=0.05",
        f"{TANDEM}.junior={checkpoints['junior']}",
        "algorithm.adv_estimator=gae",
        "algorithm.rollout_correction.bypass_mode=True",
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu=1",
        f"{_ROLLOUT}.calculate_log_probs=True",
        f"critic.model.path={checkpoints['senior']}",
        "critic.strategy=fsdp2",
        "critic.model.use_remove_padding=False",
        "critic.model.enable_gradient_checkpointing=False",
        "critic.ppo_micro_batch_size_per_gpu=4",
        "trainer.total_training_steps=2",
        hook="value_head_on_cpu",
        name="ppo",
    )
    assert run.exit_code == 0, run.log[-3000:]
    assert len(run.steps) == 2
    for step in run.steps:
        assert step["critic/vf_loss"] > 0
        assert step["actor/grad_norm"] > 0
        assert torch.isfinite(torch.tensor(step["actor/pg_loss"]))
    assert any(step["tandem/responses_without_senior"] for step in run.steps)
