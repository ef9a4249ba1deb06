"""A training worker that imitates the junior, on a stand-in for verl's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch
from verl.utils import tensordict_utils

from tandem_plugin.patching.subclasses import in_tandem
from tandem_verl import imitation


class Worker:
    """verl's ActorRolloutRefWorker, whose actor gets its loss while the model is built."""

    role = "actor_rollout"

    def init_model(self) -> None:
        self.ran: list[Any] = []
        self.actor = SimpleNamespace(
            loss_fn=lambda model_output, data, dp_group: (1.0, {"loss": dp_group}),
            engine=SimpleNamespace(forward_backward_batch=self.run),
        )
        self.actor.set_loss_fn = lambda loss: setattr(self.actor, "loss_fn", loss)

    def run(self, data: Any, loss_function: Any, forward_only: bool = False) -> str:
        self.ran.append((data, loss_function, forward_only))
        return "ran"


def started(role: str) -> Any:
    worker: Any = in_tandem(Worker, imitation.ImitatingWorker)()
    worker.role = role
    worker.init_model()
    return worker


def test_verl_still_dispatches_the_method_to_every_worker() -> None:
    attributes = getattr(in_tandem(Worker, imitation.ImitatingWorker).init_model, MAGIC_ATTR)
    assert attributes["dispatch_mode"] == Dispatch.ONE_TO_ALL


def test_tokens_to_imitate_are_counted_over_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(count: Any, group: str) -> None:
        assert group == "ranks"
        count += 10  # those of another rank

    monkeypatch.setattr(imitation.torch.distributed, "all_reduce", all_reduce)
    monkeypatch.setattr("verl.utils.device.get_device_id", lambda: "cpu")
    masks = [torch.tensor([0, 1, 1]), torch.tensor([1])]
    data = TensorDict(
        {"junior_mask": torch.nested.as_nested_tensor(masks, layout=torch.jagged)}, batch_size=2
    )
    tensordict_utils.assign_non_tensor(data, **{imitation.LAMBDA_JUN: 0.2})
    worker = started("actor")
    worker.actor.engine.get_data_parallel_group = lambda: "ranks"
    worker.actor.engine.forward_backward_batch(data, "loss")
    assert worker.ran[0][0][imitation.JUNIOR_TOKENS] == 13
