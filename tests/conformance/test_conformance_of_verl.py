"""verl's adapter and loss, held to the shared rollouts."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("verl", reason="verl is not installed")

from held_to_the_rollouts import HeldToTheRollouts  # noqa: E402
from shared_rollouts import (  # noqa: E402
    CLIP,
    DUAL_CLIP,
    LONGEST,
    Rollout,
    advantages,
    old_log_probs,
    reference_gradients,
    relative_error,
    response_log_probs,
    rollouts,
    rule,
    tiny_model,
)
from tensordict import TensorDict  # noqa: E402
from verl.utils import tensordict_utils  # noqa: E402
from verl.workers.config import ActorConfig  # noqa: E402
from verl.workers.utils import losses  # noqa: E402

from tandem_plugin.training.authorship_wire import (  # noqa: E402
    AUTHORSHIP,
    ResponseAuthorship,
)
from tandem_plugin.training.calls import Trajectory  # noqa: E402
from tandem_verl import loss as imitation  # noqa: E402
from tandem_verl.rollouts import TandemClient, narrow  # noqa: E402

LAMBDA_JUN, RANKS = 0.2, 2


@pytest.fixture(autouse=True)
def _ranks_that_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(count: Any, group: str) -> None:
        assert group == "the ranks"
        count *= RANKS

    monkeypatch.setattr(imitation.torch.distributed, "all_reduce", all_reduce)
    monkeypatch.setattr("verl.utils.device.get_device_id", lambda: "cpu")


def narrowed(rollout: Rollout) -> list[int]:
    """The response mask that the adapter makes of a trajectory, cut off as verl does."""
    return list(output_of(rollout).response_mask)


def to_imitate(rollout: Rollout) -> list[int]:
    """The tokens that the adapter lets the senior imitate."""
    facts = ResponseAuthorship.from_wire(output_of(rollout).extra_fields[AUTHORSHIP])
    assert facts is not None
    return facts.junior_mask.astype(int).tolist()


def output_of(rollout: Rollout) -> Any:
    """A trajectory's output as the adapter hands it on."""
    calls = [call for turn in rollout.calls for call in turn]
    trajectory = Trajectory(rule(), lambda call: calls[call].seed)
    answers = iter(calls)

    async def generate(request_id: str, **asked: Any) -> Any:
        return SimpleNamespace(token_ids=list(next(answers).tokens))

    client = TandemClient(SimpleNamespace(generate=generate), trajectory)
    sent = list(rollout.prompt)
    for turn, sampled in zip(rollout.turns, rollout.calls, strict=True):
        for _ in sampled:
            asyncio.run(client.generate("one", prompt_ids=sent, sampling_params={}))
        sent = [*sent, *turn.tokens, *turn.feedback]
    output = SimpleNamespace(
        prompt_ids=list(rollout.prompt),
        response_ids=rollout.response[:LONGEST],
        response_mask=rollout.generated[:LONGEST],
        response_logprobs=None,
        extra_fields={},
    )
    narrow([output], trajectory)
    return output


def padded(rows: list[Any], dtype: Any) -> Any:
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    return torch.stack([torch.nn.functional.pad(one, (0, LONGEST - len(one))) for one in tensors])


def actor(mode: str) -> ActorConfig:
    """verl's settings of the loss that the rollouts are held to."""
    return ActorConfig(
        strategy="fsdp2",
        rollout_n=8,
        loss_agg_mode=mode,
        ppo_micro_batch_size_per_gpu=3,
        clip_ratio=CLIP,
        clip_ratio_low=CLIP,
        clip_ratio_high=CLIP,
        clip_ratio_c=DUAL_CLIP,
    )


def loss_of_micro_batches(
    model: Any, lambda_jun: float, patch: bool, mode: str = "token-mean"
) -> Any:
    """verl's own ``ppo_loss`` of the shared rollouts, summed over micro-batches of three rows."""
    every = rollouts()
    mask = padded([narrowed(one) for one in every], torch.int64)
    junior = padded([to_imitate(one) for one in every], torch.int64)
    loss_function = partial(losses.ppo_loss, config=actor(mode))
    if patch:
        loss_function = partial(imitation.imitating, loss_function)
    counted = TensorDict({"junior_mask": junior}, batch_size=len(every))
    tensordict_utils.assign_non_tensor(counted, **{imitation.LAMBDA_JUN: LAMBDA_JUN})
    engine = SimpleNamespace(get_data_parallel_group=lambda: "the ranks")
    imitation.counting(lambda data: data, engine, counted)
    total = 0.0
    for rows in torch.arange(len(every)).split(3):
        some = [every[row] for row in rows]
        lengths = torch.tensor([len(one.response[:LONGEST]) for one in some])
        # What verl's engine gives: the log-probability of each next token, rows end to end.
        flat = [torch.cat([response_log_probs(model, one), torch.zeros(1)]) for one in some]
        data = TensorDict(
            {
                "prompts": torch.ones(len(some), 1, dtype=torch.int64),
                "responses": torch.zeros(len(some), LONGEST, dtype=torch.int64),
                "attention_mask": torch.cat(
                    [torch.ones(len(some), 1), torch.arange(LONGEST) < lengths[:, None]], dim=1
                ).long(),
                "response_mask": mask[rows],
                "junior_mask": junior[rows],
                "old_log_probs": padded(
                    [old_log_probs(one, int(row)) for row, one in zip(rows, some, strict=True)],
                    torch.float32,
                ),
                "advantages": padded(
                    [[a] * LONGEST for a in (advantages(every, 1e-6)[row] for row in rows)],
                    torch.float32,
                ),
            },
            batch_size=len(some),
        )
        settings = {
            "dp_size": 1,
            "batch_num_tokens": int(mask.sum()),
            "global_batch_size": len(every),
            "max_response_len": LONGEST,
            imitation.LAMBDA_JUN: lambda_jun,
            imitation.JUNIOR_TOKENS: counted[imitation.JUNIOR_TOKENS] / RANKS,
        }
        tensordict_utils.assign_non_tensor(data, **settings)
        output = {"log_probs": torch.cat(flat)}
        loss, metrics = loss_function(model_output=output, data=data)
        assert ("junior_imitation_loss" in metrics) is bool(lambda_jun)
        total = total + loss
    return total


def test_gradient_with_the_imitation_term_is_the_references() -> None:
    model = tiny_model()
    loss_of_micro_batches(model, LAMBDA_JUN, patch=True).backward()
    reference = reference_gradients(rollouts(), "token-mean", 1e-6, LAMBDA_JUN)
    assert relative_error(model, reference) <= 1e-5
    assert relative_error(model, reference_gradients(rollouts(), "token-mean", 1e-6)) > 1e-2


def test_weight_of_0_changes_no_bit_of_the_gradient() -> None:
    gradients = []
    for patch in (False, True):
        model = tiny_model()
        loss_of_micro_batches(model, 0.0, patch).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(map(torch.equal, *gradients))


class TestVerl(HeldToTheRollouts):
    modes = (
        "token-mean",
        "token-sum",
        "seq-mean-token-sum",
        "seq-mean-token-sum-norm",
        "seq-mean-token-mean",
    )

    def masks(self, rollout: Rollout) -> tuple[list[int], list[int]]:
        return narrowed(rollout), to_imitate(rollout)

    def gradient(self, mode: str) -> Any:
        """verl's means over responses count those without a token of the senior's."""
        trained = sum(any(narrowed(one)) for one in rollouts())
        assert trained < len(rollouts())
        share = trained / len(rollouts()) if mode.startswith("seq-mean") else 1.0
        model = tiny_model()
        (loss_of_micro_batches(model, 0.0, patch=False, mode=mode) / share).backward()
        return model
