"""The junior-imitation term in OpenRLHF's training step, which computes and spends its loss.

How many tokens a step is told to imitate is of the conformance suite, beside OpenRLHF itself.
"""

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

torch = pytest.importorskip("torch", reason="torch is not installed")


class Actor(torch.nn.Module):  # type: ignore[misc,name-defined]
    """As OpenRLHF's: log-probabilities, zero outside the mask."""

    def forward(self, sequences: Any, mask: Any, return_output: bool) -> Any:
        assert return_output
        return sequences * mask, "the output"


class TheirTrainer:
    """As OpenRLHF's: a loss of the senior's tokens, spent in the same method."""

    def __init__(self) -> None:
        self.args = SimpleNamespace(train=SimpleNamespace(dynamic_batch_enable=False))
        self.actor, self.spent = Actor(), []
        self.strategy = SimpleNamespace(backward=lambda loss, actor: self.spent.append(loss.item()))

    def training_step(self, experience: Any, kl_ctl: float, step: int, info: Any) -> Any:
        log_probs, output = self.actor(
            experience.sequences, experience.action_mask, return_output=True
        )
        assert output == "the output"
        self.strategy.backward(log_probs.sum(), self.actor)
        return {"metrics": {}, "weights": {}}


@pytest.fixture(autouse=True)
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of two ranks, which counted an optimizer step's tokens before its micro-batches."""
    loss_utils = SimpleNamespace(
        get_loss_batch_info=lambda strategy, mask, **given: {"dp_size": 2, **given}
    )
    monkeypatch.setitem(sys.modules, "openrlhf.utils.loss_utils", loss_utils)
    monkeypatch.setenv(VARIABLE, json.dumps({"lambda_jun": 0.5}))


def trainer() -> Any:
    module: Any = SimpleNamespace(ActorPPOTrainer=TheirTrainer)
    in_place_of("ActorPPOTrainer", ImitatingTrainer)(module)
    return module.ActorPPOTrainer()


def micro_batch(junior: list[int], tokens: float) -> Any:
    return SimpleNamespace(
        sequences=torch.tensor([[-1.0, -2.0, -4.0, -8.0]]),
        action_mask=torch.tensor([[1, 0, 1, 0]]),
        **{JUNIOR_MASK: torch.tensor([junior]), TOKENS: torch.tensor(tokens)},
    )


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (lambda *_: {"metrics": {}, "weights": {}}, "TP602"),
        (lambda self, *_: self.strategy.backward(torch.zeros(()), self.actor), "TP601"),
    ],
)
def test_step_that_does_not_spend_the_term_stops(
    step: Any, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TheirTrainer, "training_step", step)
    with refused(code, lambda_jun=0.5):
        trainer().training_step(micro_batch([0, 1, 0, 0], 4.0), 0.0, 0, None)
