"""verl's KL penalty in the reward, by its estimate "k1", with returns that count trained tokens."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import torch
from support.grpo import GRPOReference
from support.verl_run import TANDEM, VerlBench, VerlRun

from tandem_plugin import Rule

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]
BENCH, STEPS, GAMMA, KL = VerlBench, 2, 0.9, 0.5


@pytest.fixture(scope="module")
def run(bench: VerlBench, checkpoints: dict[str, Path], captured: Path) -> VerlRun:
    done = bench.run(
        *(f"{TANDEM}.schedule=word", f"{TANDEM}.cap=6"),
        f"{TANDEM}.junior={checkpoints['junior']}",
        "algorithm.adv_estimator=reinforce_plus_plus",
        f"algorithm.gamma={GAMMA}",
        "algorithm.use_kl_in_reward=True",
        "algorithm.kl_penalty=k1",
        f"algorithm.kl_ctrl.kl_coef={KL}",
        # Else the reference computes in bfloat16, and the first step has a penalty.
        "+actor_rollout_ref.ref.fsdp_config.mixed_precision="
        "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
        f"trainer.total_training_steps={STEPS}",
        hook="capture_update",
        environment={"TANDEM_TEST_CAPTURE": str(captured)},
        name="penalty",
    )
    assert done.exit_code == 0, done.log[-3000:]
    return done


class PenalisedReference(GRPOReference):
    """The KL estimate at each of the senior's tokens, by Hugging Face, and the advantages of it."""

    def penalties(self, parameters: dict[str, torch.Tensor]) -> list[list[float]]:
        """Of a policy with these parameters, to the checkpoint, for each response."""
        self.gradients("token-mean", parameters)
        with torch.no_grad():
            gaps = [
                self.logprobs(row) - old for row, old in zip(self.rollouts, self.old, strict=True)
            ]
        return [
            [float(one) for one, senior in zip(gap, row["authorship"], strict=True) if senior]
            for gap, row in zip(gaps, self.rollouts, strict=True)
        ]

    def expected(self, penalties: list[list[float]]) -> list[list[float]]:
        """The advantages of each response, 0 at the junior's tokens: whitened, discounted sums."""
        sums = []
        for row, of_row in zip(self.rollouts, penalties, strict=True):
            rewards = [-KL * one for one in of_row]
            if rewards:
                rewards[-1] += row["score"]
            following, own = 0.0, []
            for reward in reversed(rewards):
                following = reward + GAMMA * following
                own.insert(0, following)
            sums.append(own)
        every = torch.tensor([one for own in sums for one in own], dtype=torch.float64)
        deviation = float((every.var() + 1e-8).sqrt())
        advantages = []
        for row, own in zip(self.rollouts, sums, strict=True):
            left = iter(own)
            advantages.append([
                (next(left) - float(every.mean())) / deviation if senior else 0.0
                for senior in row["authorship"]
            ])  # fmt: skip
        return advantages


def test_authorship_of_every_response_is_its_replay(run: VerlRun, rule: Rule) -> None:
    rows = [row for step in range(1, STEPS + 1) for row in run.rollouts(step)]
    assert len({row["tandem_seed"] for row in rows}) == len(rows) == STEPS * 8
    for row in rows:
        assert row["authorship"] == rule.replay(row["response_ids"], row["tandem_seed"]).tolist()
        assert row["score"] == pytest.approx(row["output"].count("e") / 100)


def test_advantages_are_those_of_penalties_at_the_seniors_tokens(
    run: VerlRun, bench: VerlBench, captured: Path
) -> None:
    """The first step's policy is the checkpoint; the second's has left it."""
    files = sorted(captured.glob("loss-*.pt"), key=lambda file: int(file.stem.split("-")[1]))
    assert len(files) == 2 * STEPS
    for step in range(STEPS):
        reference = PenalisedReference(bench.model, run.rollouts(step + 1))
        policy = torch.load(captured / f"step-{step}.pt")["parameters"]
        penalties = reference.penalties(policy)
        assert max(abs(one) for own in penalties for one in own) > 1e-3 or not step
        logged = run.steps[step]["actor/reward_kl_penalty"]
        assert logged == pytest.approx(fmean(fmean(own or [0]) for own in penalties), abs=1e-5)
        assert run.steps[step]["actor/reward_kl_penalty_coeff"] == KL

        losses = [torch.load(file) for file in files[2 * step : 2 * step + 2]]
        found = [
            row[: int(of.nonzero()[-1]) + 1 if of.any() else 0].tolist()
            for loss in losses
            for row, of in zip(loss["advantages"], loss["response_mask"], strict=True)
        ]
        for row, own in zip(reference.rollouts, reference.expected(penalties), strict=True):
            while own and not row["authorship"][len(own) - 1]:
                own.pop()  # what follows the senior's last token looks like padding
            found.remove(next(one for one in found if one == pytest.approx(own, abs=1e-4)))
        assert found == []
