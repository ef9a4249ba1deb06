"""TRL's adapter and loss, held to the shared rollouts."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("trl", reason="TRL is not installed")

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
from trl_trainer import grpo_trainer  # noqa: E402

from tandem_plugin.training.rows import Row  # noqa: E402
from tandem_plugin.training.trajectory import Trajectory  # noqa: E402
from tandem_trl.batch import Batch  # noqa: E402
from tandem_trl.engine import LLMInTandem  # noqa: E402

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
    sent = list(rollout.prompt)
    for turn, sampled in zip(rollout.turns, rollout.calls, strict=True):
        for _ in sampled:
            engine.trajectories = [trajectory]
            engine.generate([{"prompt_token_ids": sent}], Params(extra_args=None))
        sent = [*sent, *turn.tokens, *turn.feedback]
    batch = Batch("training", 1, True, 8, 0, [trajectory], 0)
    response, generated = rollout.response[:LONGEST], rollout.generated[:LONGEST]
    (row,) = batch.rows([rollout.prompt], [response], [generated])
    return row


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
