"""Faults that a test plants in every process of a trainer, to see that the run stops there.

A run with ``fault="late_mask"`` names it in the environment; the trainer's processes import this
module before tandem is active, which plants what is named.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from tandem_plugin.patching.after_import import after_import

VARIABLE = "TANDEM_TEST_FAULTS"


def broken_adapter() -> None:
    """A part of verl's adapter cannot be imported."""
    sys.modules["tandem_verl.rollouts"] = None  # type: ignore[assignment]


def complemented_authorship() -> None:
    """The adapter takes the junior's tokens for the senior's and the other way round."""
    from tandem_plugin.training import calls

    author_response = calls.author_response

    def complemented(*arguments: Any) -> Any:
        authored = author_response(*arguments)
        return dataclasses.replace(authored, senior=~authored.senior)

    calls.author_response = complemented


def cut_authorship() -> None:
    """The authorship loses its last entry on its way from the agent loop to the trainer."""
    from tandem_plugin.training.authorship_wire import ResponseAuthorship

    to_wire = ResponseAuthorship.to_wire

    def cut(self: ResponseAuthorship) -> dict[str, Any]:
        wire = to_wire(self)
        return {**wire, "length": wire["length"] - 1}

    ResponseAuthorship.to_wire = cut  # type: ignore[method-assign]


def foreign_fingerprint() -> None:
    """verl's requests were made for other rules than the engine's."""
    from tandem_plugin.training.calls import StartedCall

    request = StartedCall.request.fget  # type: ignore[attr-defined]

    def foreign(self: StartedCall) -> Any:
        made = request(self)
        return made if isinstance(made, str) else {**made, "fingerprint": "0" * 16}

    StartedCall.request = property(foreign)  # type: ignore[assignment, method-assign]


def foreign_rules() -> None:
    """OpenRLHF's requests were made for other rules than the engine's."""

    def change(module: Any) -> None:
        request = module.Rule.request

        def foreign(self: Any, *asked: Any) -> Any:
            return dataclasses.replace(request(self, *asked), fingerprint="0" * 16)

        module.Rule.request = foreign

    after_import("tandem_plugin.rules", change)


def cut_masks() -> None:
    """OpenRLHF's masks lose their last entry on their way from the engine to the trainer."""

    def change(module: Any) -> None:
        admit = module.OpenRLHFRun.admit

        def cut(self: Any, samples: Any) -> Any:
            samples[0].action_mask = samples[0].action_mask[:, :-1]
            return admit(self, samples)

        module.OpenRLHFRun.admit = cut

    after_import("tandem_openrlhf.batch", change)


def late_mask() -> None:
    """Something in verl's trainer's process opens the masks again before the update."""

    def change(module: Any) -> None:
        compute = module.PPOTrainer._compute_advantage

        def opened(trainer: Any, batch: Any, metrics: Any) -> Any:
            result = compute(trainer, batch, metrics)
            data = module.tq.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
            )
            data["response_mask"] = data["response_mask"] * 0 + 1
            module.tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data)
            return result

        module.PPOTrainer._compute_advantage = opened

    after_import("verl.trainer.ppo.v1.trainer_base", change)


for _name in os.environ.get(VARIABLE, "").split():
    globals()[_name]()
