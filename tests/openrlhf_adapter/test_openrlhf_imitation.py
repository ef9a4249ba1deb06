"""How many tokens an optimizer step is told to imitate, where OpenRLHF batches by length."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_openrlhf.patches.imitation import TOKENS, ImitatingTrainer
from tandem_plugin.patching.subclasses import in_place_of
from tandem_plugin.training.authorship_wire import JUNIOR_MASK
from tandem_plugin.training.command import VARIABLE
from tandem_plugin.training.imitation import IMITATION_METRIC

torch = pytest.importorskip("torch", reason="torch is not installed")


class Actor(torch.nn.Module):  # type: ignore[misc,name-defined]
    """As OpenRLHF's: log-probabilities, zero outside the mask."""

    def forward(self, sequences: Any, mask: Any, return_output: bool) -> Any:
        assert return_output
        return sequences * mask, "the output"


class TheirTrainer:
    """As OpenRLHF's: a loss of the senior's tokens, spent in the same method."""

    def __init__(self, args: Any, buffer: Any = None) -> None:
        self.args, self.replay_buffer = args, buffer
        self.actor, self.spent = Actor(), []
        self.strategy = SimpleNamespace(backward=lambda loss, actor: self.spent.append(loss.item()))

    def training_step(self, experience: Any, kl_ctl: float, step: int, info: Any) -> Any:
        log_probs, output = self.actor(
            experience.sequences, experience.action_mask, return_output=True
        )
        assert output == "the output"
        self.strategy.backward(log_probs.sum(), self.actor)
        return {"metrics": {}, "weights": {}}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """A run of two ranks with as many tokens each; the masks whose tokens they counted."""
    masks: list[list[int]] = []

    def get_loss_batch_info(
        strategy: Any, mask: Any, *, batch_num_tokens: Any = None, global_batch_size: int
    ) -> dict[str, Any]:
        if batch_num_tokens is None:
            masks.append(mask.tolist()[0])
            batch_num_tokens = 2 * mask.sum()
        return {"dp_size": 2, "batch_num_tokens": batch_num_tokens}

    loss_utils = SimpleNamespace(get_loss_batch_info=get_loss_batch_info)
    monkeypatch.setitem(sys.modules, "openrlhf.utils.loss_utils", loss_utils)
    monkeypatch.setenv(VARIABLE, json.dumps({"lambda_jun": 0.5}))
    return masks


def trainer(dynamic: bool, buffer: Any = None) -> Any:
    module: Any = SimpleNamespace(ActorPPOTrainer=TheirTrainer)
    in_place_of("ActorPPOTrainer", ImitatingTrainer)(module)
    args = SimpleNamespace(train=SimpleNamespace(dynamic_batch_enable=dynamic))
    return module.ActorPPOTrainer(args, buffer)


def micro_batch(junior: list[int], **told: Any) -> Any:
    return SimpleNamespace(
        sequences=torch.tensor([[-1.0, -2.0, -4.0, -8.0]]),
        action_mask=torch.tensor([[1, 0, 1, 0]]),
        **{JUNIOR_MASK: torch.tensor([junior]), **told},
    )


def test_micro_batch_spends_the_term_beside_its_loss_and_logs_it(counted: Any) -> None:
    made = trainer(dynamic=False)
    backward = made.strategy.backward
    experience = micro_batch([0, 1, 0, 0], **{TOKENS: torch.tensor(4.0)})
    status = made.training_step(experience, 0.0, 0, None)
    term = 2.0 / 4.0 * 2  # -log p of the junior's token over the step's four, on two ranks
    assert made.spent == [-5.0 + 0.5 * term]
    assert status["metrics"][IMITATION_METRIC] == term
    assert status["weights"] == {IMITATION_METRIC: "sample"}
    assert "forward" not in vars(made.actor)  # they are their own again
    assert made.strategy.backward is backward
    assert counted == []


def test_each_dynamic_micro_batch_has_the_tokens_of_its_whole_step_over_all_ranks(
    counted: list[list[int]],
) -> None:
    items = [
        SimpleNamespace(**{JUNIOR_MASK: torch.tensor(mask)})
        for mask in ([1, 1, 1], [0], [1, 0, 1, 0], [1], [0, 1])
    ]
    made = trainer(
        dynamic=True,
        buffer=SimpleNamespace(
            items=items,
            dynamic_indices=[[0, 2], [1], [4, 3]],
            dynamic_optimizer_step=[1, 0, 1],  # the second step is of two micro-batches
        ),
    )
    terms = []
    for step in range(3):
        status = made.training_step(micro_batch([0, 1, 0, 0]), 0.0, step, None)
        terms.append(float(status["metrics"][IMITATION_METRIC]))
    assert terms == pytest.approx([2.0 / (2 * 5) * 2, 2.0 / (2 * 2) * 2, 2.0 / (2 * 2) * 2])
    assert counted == [[1, 1, 1, 1, 0, 1, 0], [0, 0, 1, 1]]  # once a step


def test_a_step_with_nothing_to_imitate_adds_nothing(counted: Any) -> None:
    nothing = SimpleNamespace(**{JUNIOR_MASK: torch.tensor([0, 0])})
    buffer = SimpleNamespace(items=[nothing], dynamic_indices=[[0]], dynamic_optimizer_step=[1])
    made = trainer(dynamic=True, buffer=buffer)
    status = made.training_step(micro_batch([0, 0, 0, 0]), 0.0, 0, None)
    assert made.spent == [-5.0]
    assert status["metrics"][IMITATION_METRIC] == 0


def test_step_that_does_not_spend_the_term_stops(
    counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    experience = micro_batch([0, 1, 0, 0], **{TOKENS: torch.tensor(4.0)})
    spend = "training_step"
    monkeypatch.setattr(TheirTrainer, spend, lambda *_: {"metrics": {}, "weights": {}})
    with refused("TP602"):
        trainer(dynamic=False).training_step(experience, 0.0, 0, None)
    monkeypatch.setattr(
        TheirTrainer, spend, lambda self, *_: self.strategy.backward(torch.zeros(()), self.actor)
    )
    with refused("TP601"):
        trainer(dynamic=False).training_step(experience, 0.0, 0, None)
