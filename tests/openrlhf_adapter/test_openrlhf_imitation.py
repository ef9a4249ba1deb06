"""How many tokens an optimizer step is told to imitate, where OpenRLHF batches by length."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem_openrlhf.imitation import TOKENS, dynamic_counts
from tandem_openrlhf.patches.imitation import imitate_the_junior
from tandem_plugin.training.command import VARIABLE
from tandem_plugin.training.fields import JUNIOR_MASK
from tandem_plugin.training.imitation import IMITATION_METRIC


def test_each_dynamic_micro_batch_is_told_the_tokens_of_its_whole_step_over_all_ranks() -> None:
    counts = [3, 0, 5, 2, 7]
    buffer = SimpleNamespace(
        items=[SimpleNamespace(junior_mask=np.ones(count)) for count in counts],
        dynamic_indices=[[0, 2], [1], [4, 3]],
        dynamic_optimizer_step=[0, 1, 1],  # the first step is of two micro-batches
    )
    seen: list[list[float]] = []

    def of_two_ranks(totals: list[float]) -> list[float]:
        seen.append(totals)
        return [2 * total for total in totals]

    assert dynamic_counts(buffer, of_two_ranks) == [16, 16, 18]
    assert seen == [[8, 9]]


def test_a_step_with_nothing_to_imitate_is_told_so() -> None:
    buffer = SimpleNamespace(dynamic_indices=[], dynamic_optimizer_step=[], items=[])
    assert dynamic_counts(buffer, lambda totals: totals) == []


def test_micro_batch_spends_the_term_beside_its_loss_and_logs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Actor(torch.nn.Module):  # type: ignore[misc,name-defined]
        """As OpenRLHF's: log-probabilities, zero outside the mask."""

        def forward(self, sequences: Any, mask: Any, return_output: bool) -> Any:
            assert return_output
            return sequences * mask, "the output"

    class Trainer:
        """As OpenRLHF's: a loss of the senior's tokens, spent in the same method."""

        def __init__(self, actor: Any, strategy: Any, args: Any) -> None:
            self.actor, self.strategy, self.args = actor, strategy, args

        def training_step(self, experience: Any, kl_ctl: float, step: int, info: Any) -> Any:
            log_probs, output = self.actor(
                experience.sequences, experience.action_mask, return_output=True
            )
            assert output == "the output"
            self.strategy.backward(log_probs.sum(), self.actor)
            return {"metrics": {}, "weights": {}}

    spent = []
    strategy = SimpleNamespace(backward=lambda loss, actor: spent.append(loss.item()))
    backward = strategy.backward
    loss_utils = SimpleNamespace(get_loss_batch_info=lambda *_, **__: {"dp_size": 2})
    monkeypatch.setitem(sys.modules, "openrlhf.utils.loss_utils", loss_utils)
    monkeypatch.setenv(VARIABLE, json.dumps({"lambda_jun": 0.5}))
    module: Any = SimpleNamespace(ActorPPOTrainer=Trainer)
    imitate_the_junior(module)
    args = SimpleNamespace(train=SimpleNamespace(dynamic_batch_enable=False))
    trainer = module.ActorPPOTrainer(Actor(), strategy, args)
    experience = SimpleNamespace(
        sequences=torch.tensor([[-1.0, -2.0, -4.0, -8.0]]),
        action_mask=torch.tensor([[1, 0, 1, 0]]),
        **{JUNIOR_MASK: torch.tensor([[0, 1, 0, 0]]), TOKENS: torch.tensor(4.0)},
    )
    status = trainer.training_step(experience, 0.0, 0, None)
    term = 2.0 / 4.0 * 2  # -log p of the junior's token over the step's four, on two ranks
    assert spent == [-5.0 + 0.5 * term]
    assert status["metrics"][IMITATION_METRIC] == term
    assert status["weights"] == {IMITATION_METRIC: "sample"}
    assert "forward" not in vars(trainer.actor)  # they are their own again
    assert strategy.backward is backward
