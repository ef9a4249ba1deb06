"""OpenRLHF's adapter, advantages and loss, held to the shared rollouts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("openrlhf.utils", reason="OpenRLHF is not installed: make test-openrlhf")

# OpenRLHF imports flash_attn, which needs a GPU to be built: the stand-in, where there is none.
sys.path.append(str(Path(__file__).parents[2] / "adapters/tandem_openrlhf/without_flash_attn"))

from held_to_the_rollouts import HeldToTheRollouts  # noqa: E402
from shared_rollouts import (  # noqa: E402
    CLIP,
    DUAL_CLIP,
    LONGEST,
    Rollout,
    old_log_probs,
    reference_gradients,
    relative_error,
    response_log_probs,
    rollouts,
    rule,
    tiny_model,
)

from tandem_openrlhf.batch import mask_of_the_junior, row_of_sample  # noqa: E402
from tandem_openrlhf.patches.loss import (  # noqa: E402
    Imitation,
    counted_windows,
)
from tandem_openrlhf.rollouts import RolloutActorInTandem, SharedCalls, narrowed  # noqa: E402
from tandem_plugin.training.authorship_wire import AUTHORSHIP  # noqa: E402
from tandem_plugin.training.calls import Trajectory  # noqa: E402

LAMBDA_JUN = 0.2


def experience(rollout: Rollout) -> Any:
    """What OpenRLHF makes of the response that the adapter hands on."""
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    calls = [call for turn in rollout.calls for call in turn]
    answers = iter(calls)

    async def generate(prompt: Any, params: Any, multi_modal_data: Any = None) -> Any:
        return SimpleNamespace(
            outputs=[SimpleNamespace(index=0, token_ids=list(next(answers).tokens))]
        )

    trajectory = Trajectory(rule(), lambda call: calls[call].seed)
    shared = SharedCalls()
    shared.begin(trajectory)
    engine = RolloutActorInTandem(SimpleNamespace(generate=generate), trajectory, shared)
    sent, ranges = list(rollout.prompt), []
    for turn, sampled in zip(rollout.turns, rollout.calls, strict=True):
        for _ in sampled:
            asyncio.run(engine.generate(sent, SimpleNamespace(extra_args=None)))
        ranges.append((len(sent), len(sent) + len(turn.tokens)))
        sent = [*sent, *turn.tokens, *turn.feedback]
    response = {
        "prompt": "",
        "label": "",
        "observation_tokens": sent,
        "action_ranges": ranges,
        "rollout_log_probs": None,
        "reward": rollout.reward,
        "scores": rollout.reward,
    }
    longest = len(rollout.prompt) + LONGEST
    handed_on = narrowed(response, trajectory, shared)
    made = SamplesGenerator._process_response_into_experience(
        SimpleNamespace(), handed_on, max_len=longest
    )
    setattr(made, AUTHORSHIP, handed_on[AUTHORSHIP])
    return made


def junior_mask_of(made: Any) -> Any:
    """What an admitted response is told to imitate."""
    return mask_of_the_junior(made, row_of_sample(made, "", ""))


def in_groups() -> tuple[list[tuple[int, Rollout]], list[Any]]:
    """The shared rollouts with their numbers, and OpenRLHF's experiences with their advantages."""
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

    # In order of their groups, as OpenRLHF has the responses of a prompt side by side.
    every = sorted(enumerate(rollouts()), key=lambda one: one[1].group)
    made = [experience(one) for _, one in every]
    for i, one in enumerate(made):
        one.index = [i]
        one.kl = torch.zeros_like(one.action_mask, dtype=torch.float32)
    args = SimpleNamespace(
        algo=SimpleNamespace(
            advantage=SimpleNamespace(
                estimator="group_norm", gamma=1.0, lambd=1.0, no_std_norm=False
            )
        ),
        reward=SimpleNamespace(
            clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None
        ),
        rollout=SimpleNamespace(n_samples_per_prompt=8, max_new_tokens=LONGEST),
    )
    maker = SimpleNamespace(
        strategy=SimpleNamespace(args=args),
        args=args,
        kl_ctl=SimpleNamespace(value=0.0),
        advantage_estimator="group_norm",
    )
    maker.get_cumulative_returns = RemoteExperienceMaker.get_cumulative_returns.__get__(maker)
    return every, RemoteExperienceMaker.compute_advantages_and_returns(maker, made)


def padded(every: list[tuple[int, Rollout]], rows: list[Any]) -> Any:
    """``[rows, longest sequence - 1]``, zero where a row has ended."""
    width = max(len(one.prompt) + len(one.response[:LONGEST]) for _, one in every) - 1
    return torch.stack([torch.cat([r, torch.zeros(width - len(r), dtype=r.dtype)]) for r in rows])


def policy_loss(
    model: Any, every: list[tuple[int, Rollout]], made: list[Any], mode: str
) -> tuple[Any, Any]:
    """OpenRLHF's own loss of all rollouts as one optimizer step, and the log-probabilities."""
    from openrlhf.models import loss as losses
    from openrlhf.utils.loss_utils import get_loss_batch_info

    now, old = [], []
    for number, one in every:
        prompt = torch.zeros(len(one.prompt) - 1)
        now.append(torch.cat([prompt, response_log_probs(model, one)]))
        old.append(torch.cat([prompt, old_log_probs(one, number).float()]))
    mask = padded(every, [one.action_mask[0].float() for one in made])
    policy = losses.PolicyLoss(CLIP, CLIP, DUAL_CLIP, token_level_loss=mode == "token-mean")
    strategy = SimpleNamespace(args=None)
    log_probs = padded(every, now)
    loss, *_ = policy(
        log_probs,
        padded(every, old),
        padded(every, [one.advantages[0] for one in made]),
        action_mask=mask,
        **get_loss_batch_info(strategy, mask),
    )
    return loss, log_probs


class TestOpenRLHF(HeldToTheRollouts):
    modes = ("token-mean", "seq-mean-token-mean")
    epsilon = 1e-9

    def masks(self, rollout: Rollout) -> tuple[list[int], list[int]]:
        made = experience(rollout)
        action_mask = made.action_mask[0].bool().numpy()
        junior_mask = junior_mask_of(made)[0].bool().numpy()
        prompt = len(rollout.prompt) - 1
        assert not action_mask[:prompt].any()
        assert not junior_mask[:prompt].any()
        both = action_mask[prompt:].astype(int), junior_mask[prompt:].astype(int)
        return both[0].tolist(), both[1].tolist()

    def gradient(self, mode: str) -> Any:
        every, made = in_groups()
        model = tiny_model()
        loss, _ = policy_loss(model, every, made, mode)
        loss.backward()
        return model


def test_trainer_divides_means_over_responses_by_those_with_a_token_of_the_seniors() -> None:
    """In one optimizer step of as many micro-batches as responses, as the trainer counts it."""
    from openrlhf.utils.loss_utils import iter_grad_accum_global_norm

    _, made = in_groups()
    trained = sum(bool(one.action_mask.any()) for one in made)
    assert trained < len(made)
    steps = iter_grad_accum_global_norm(made, SimpleNamespace(), len(made), lambda e: e.action_mask)
    for _, info in steps:
        assert info["global_batch_size"] * len(made) == pytest.approx(trained)
        tokens = sum(int(one.action_mask.sum()) for one in made)
        assert info["batch_num_tokens"] * len(made) == pytest.approx(tokens)


def test_term_of_imitation_has_the_references_gradient() -> None:
    """In micro-batches of one response, as OpenRLHF's optimizer step counts them."""
    from openrlhf.utils.loss_utils import iter_grad_accum_global_norm

    every, made = in_groups()
    for response in made:
        response.junior_mask = junior_mask_of(response)
    model = tiny_model()
    loss, log_probs = policy_loss(model, every, made, "token-mean")
    windows = counted_windows(
        iter_grad_accum_global_norm, made, SimpleNamespace(), len(made), lambda e: e.action_mask
    )
    for row, (response, _) in enumerate(windows):
        length = response.junior_mask.shape[1]
        # The count is divided by the number of micro-batches, since DeepSpeed divides losses by it.
        tokens = response.tandem_junior_tokens * len(made)
        imitation = Imitation(LAMBDA_JUN, response.junior_mask, tokens, 1)

        def forward(_: Any, mask: Any, row: int = row, length: int = length) -> Any:
            return log_probs[row : row + 1, :length] * mask.float(), None

        kept, _ = imitation.forward(forward, None, response.action_mask)
        assert kept.equal(log_probs[row : row + 1, :length] * response.action_mask.float())
        loss = imitation.backward(lambda with_term: with_term, loss)
    loss.backward()
    reference = reference_gradients(rollouts(), "token-mean", 1e-9, LAMBDA_JUN)
    assert relative_error(model, reference) <= 1e-5
    assert relative_error(model, reference_gradients(rollouts(), "token-mean", 1e-9)) > 1e-2
