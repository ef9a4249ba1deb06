"""TRL's adapter and loss, held to the shared rollouts."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("trl.scripts", reason="TRL is not installed")

from held_to_the_rollouts import HeldToTheRollouts  # noqa: E402
from shared_rollouts import (  # noqa: E402
    CLIP,
    DUAL_CLIP,
    LONGEST,
    Rollout,
    Turn,
    advantages,
    old_log_probs,
    rollouts,
    rule,
    tiny_model,
)
from trl.experimental.async_grpo.async_rollout_worker import TrainingSequence  # noqa: E402
from trl_trainer import grpo_trainer  # noqa: E402

from tandem_plugin.training.calls import Response, Trajectory  # noqa: E402
from tandem_plugin.training.rows import Row  # noqa: E402
from tandem_trl.async_rollouts import TandemSequence, narrowed  # noqa: E402
from tandem_trl.batch import Batch  # noqa: E402
from tandem_trl.engine import LLMInTandem, TandemPrompt, answered  # noqa: E402

MICRO_BATCH = 4


class Params(SimpleNamespace):
    """Of vLLM's ``SamplingParams`` what the adapter uses."""

    def clone(self) -> Params:
        return copy.copy(self)


class Scripted:
    """Answers the calls of a rollout with their tokens, in the order in which they are played."""

    def __init__(self, calls: Iterator[Turn]) -> None:
        self._calls = calls

    def generate(self, prompts: Any, sampling_params: Any, lora_request: None) -> list[Any]:
        answer = SimpleNamespace(token_ids=list(next(self._calls).tokens))
        return [SimpleNamespace(outputs=[answer])]


def row_of(rollout: Rollout) -> Row:
    """What the adapter makes of a rollout whose calls went to an engine of TRL's."""
    calls = [call for turn in rollout.calls for call in turn]
    trajectory = Trajectory(rule(), lambda number: calls[number].seed)
    engine = LLMInTandem(Scripted(iter(calls)))
    sent = TandemPrompt(rollout.prompt, trajectory)

    def generate(prompts: Any, **_: Any) -> tuple[Any, list[list[int]]]:
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = engine.generate(asked, Params(extra_args=None))
        return prompts, [output.outputs[0].token_ids for output in outputs]

    for turn, sampled in zip(rollout.turns, rollout.calls, strict=True):
        for _ in sampled:
            answered(generate, {}, [sent])
        more = [*turn.tokens, *turn.feedback]
        sent = sent + more
    batch = Batch(1, None, 8, 0, [trajectory])
    response, generated = rollout.response[:LONGEST], rollout.generated[:LONGEST]
    (narrowed,) = batch.narrow([Response(rollout.prompt, response, generated)])
    return batch.row(0, narrowed)


def padded(rows: Sequence[Any], side: str = "right", dtype: Any = torch.long) -> Any:
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_side=side)


class TestTRL(HeldToTheRollouts):
    epsilon = 1e-4

    def masks(self, rollout: Rollout) -> tuple[list[int], list[int]]:
        row = row_of(rollout)
        assert row.facts is not None
        return row.response_mask.astype(int).tolist(), row.facts.junior_mask.astype(int).tolist()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def gradient(self, mode: str) -> Any:
        every = rollouts()
        micro_batches = len(every) // MICRO_BATCH
        model = tiny_model()
        trainer = grpo_trainer(
            model,
            self.folder,
            epsilon=CLIP,
            delta=DUAL_CLIP,
            loss_type="dapo",
            per_device_train_batch_size=MICRO_BATCH,
            gradient_accumulation_steps=micro_batches,
            steps_per_generation=micro_batches,
        )
        trainer.current_gradient_accumulation_steps = micro_batches
        inputs = self.inputs(every)
        for start in range(0, len(every), MICRO_BATCH):
            rows = slice(start, start + MICRO_BATCH)
            part = {k: v if v.dim() == 0 else v[rows] for k, v in inputs.items()}
            trainer.compute_loss(model.train(), part).backward()
        return model

    def inputs(self, every: Sequence[Rollout]) -> dict[str, Any]:
        """The rollouts as TRL batches them, with ``env_mask`` under its own name for it."""
        rows = [row_of(one) for one in every]
        old = [old_log_probs(one, i) for i, one in enumerate(every)]
        return {
            "prompt_ids": padded([one.prompt for one in every], "left"),
            "prompt_mask": padded([[1] * len(one.prompt) for one in every], "left"),
            "completion_ids": padded([row.response_ids for row in rows]),
            "completion_mask": padded([[1] * len(row.response_ids) for row in rows]),
            "tool_mask": padded([row.response_mask for row in rows]),
            "old_per_token_logps": padded(old, dtype=torch.float32),
            "advantages": torch.tensor(advantages(every, self.epsilon), dtype=torch.float32),
            "num_items_in_batch": torch.tensor(sum(int(r.response_mask.sum()) for r in rows)),
        }


def sequence_of(rollout: Rollout) -> TandemSequence:
    """What the asynchronous trainer's loop makes of a rollout, as one row of its conversation."""
    calls = [call for turn in rollout.calls for call in turn]
    trajectory = Trajectory(rule(), lambda number: calls[number].seed)
    sent = list(rollout.prompt)
    for turn, sampled in zip(rollout.turns, rollout.calls, strict=True):
        for call in sampled:
            trajectory.call(sent).returned(call.tokens)
        sent = [*sent, *turn.tokens, *turn.feedback]
    response, generated = rollout.response[:LONGEST], rollout.generated[:LONGEST]
    ids, mask = [*rollout.prompt, *response], [0] * len(rollout.prompt) + list(generated)
    (row,) = narrowed(trajectory, [TrainingSequence(ids, mask, [-1.0] * len(ids), "a rollout")])
    return row


@pytest.mark.parametrize("rollout", rollouts(), ids=lambda one: one.name)
def test_asynchronous_rows_have_the_bits_of_algorithm_1(rollout: Rollout) -> None:
    row = sequence_of(rollout)
    prompt = len(rollout.prompt)
    assert row.completion_mask == [0] * prompt + rollout.mask(LONGEST)
    assert [p != 0 for p in row.old_log_probs] == [bit == 1 for bit in row.completion_mask]
