"""verl's PPO in tandem: gae, with verl's own critic, which is trained beside the senior."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
BENCH, STEPS = VerlBench, 2


@pytest.fixture(scope="module")
def run(bench: VerlBench, checkpoints: dict[str, Path]) -> VerlRun:
    done = bench.run(
        *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6"),
        f"{TANDEM}.junior={checkpoints['junior']}",
        "algorithm.adv_estimator=gae",
        "critic.strategy=fsdp2",
        f"critic.model.path={bench.model}",
        "critic.model.use_remove_padding=False",
        "+critic.model.override_config.attn_implementation=sdpa",
        "critic.model.enable_gradient_checkpointing=False",
        "critic.ppo_micro_batch_size_per_gpu=4",
        "critic.optim.lr=1e-3",
        "critic.fsdp.use_torch_compile=False",
        "+critic.fsdp.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
        f"trainer.total_training_steps={STEPS}",
        hook="critic_on_cpu",
        name="critic",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


def test_actor_and_critic_are_updated_in_every_step(run: VerlRun) -> None:
    assert len(run.steps) == STEPS
    for step in run.steps:
        for name in ("actor/grad_norm", "critic/grad_norm", "critic/vf_loss"):
            assert math.isfinite(step[name])
            assert step[name] > 0
        assert 0 < step["tandem/senior_share"] < 1


def test_authorship_of_every_response_is_its_replay(run: VerlRun, rule: Rule) -> None:
    rows = [row for step in range(1, STEPS + 1) for row in run.rollouts(step)]
    assert len({row["tandem_seed"] for row in rows}) == len(rows) == STEPS * 8
    for row in rows:
        assert row["authorship"] == rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
        assert row["score"] == pytest.approx(row["output"].count("e") / 100)  # moved, not changed
