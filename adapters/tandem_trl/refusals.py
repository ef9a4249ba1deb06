"""Settings of TRL's ``GRPOTrainer`` that are rejected in tandem, before any update.

The values listed as sound were checked by reading TRL 1.16.0, in ``trainer/grpo_trainer.py``: its
loss, its importance ratios and its metrics use ``env_mask`` wherever they use the completion's own
mask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.training.refusals import (
    Refusal,
    Settings,
    Unproven,
    check_refusals,
    is_on,
    untested,
)

if TYPE_CHECKING:
    from trl import GRPOTrainer

SOUND_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")

SOUND_TRAINERS = (
    "trl.trainer.grpo_trainer.GRPOTrainer",
    "trl.experimental.gmpo.gmpo_trainer.GMPOTrainer",
)
"""The classes whose loss reads the mask wherever it computes over tokens."""

_LOSS_METHODS = ("compute_loss", "_compute_loss")

UNPROVEN = {
    "loss": "a loss not tested with tandem",
    "version": "another series of TRL",
}
"""The names that ``unproven`` may contain, and their meanings."""


def _share_an_engine(tools: Any, settings: Settings) -> bool:
    """Whether processes with tools send one engine their rows.

    In the turns after a tool each has another number of rows, or none, but TRL gives the process of
    number i the answers from i times its own number of rows on (``VLLMGeneration.generate``).
    """
    if not tools:
        return False
    if settings("vllm_mode") == "server":
        return bool(settings("world_size") > 1)
    return bool(settings("vllm_tensor_parallel_size") > 1)


_OF_EVERY_TRAINER = (Refusal("lambda_jun", is_on, "trl-imitation-unsupported"),)

_OF_TWO = (
    Refusal("use_vllm", lambda value, _: not value, "trl-engine-not-vllm"),
    *_OF_EVERY_TRAINER,
    Refusal("validation", lambda value, _: value == "both", "trl-validation-unsupported"),
)

_OF_RLOO = (
    *_OF_TWO,
    untested("compute_loss", ("tandem_trl.rloo.TandemRLOOTrainer",), "loss"),
    untested("_compute_loss", ("trl.trainer.rloo_trainer.RLOOTrainer",), "loss"),
)

_REFUSALS = (
    *_OF_TWO,
    Refusal("tools", _share_an_engine, "trl-tools-of-several-processes"),
    untested("loss_type", SOUND_LOSSES, "loss"),
    *(untested(method, SOUND_TRAINERS, "loss") for method in _LOSS_METHODS),
)


def check_trainer(trainer: GRPOTrainer, tandem: TandemConfig) -> Unproven:
    """Raise :class:`ConfigError` for the first setting that is incompatible with tandem.

    trainer: a ``GRPOTrainer``. Returns the unverified settings that the run uses.
    """
    return _checked(_REFUSALS, trainer, tandem)


def check_rloo(trainer: Any, tandem: TandemConfig) -> Unproven:
    """As :func:`check_trainer`, of a ``TandemRLOOTrainer``."""
    return _checked(_OF_RLOO, trainer, tandem)


def _checked(refusals: Iterable[Refusal], trainer: Any, tandem: TandemConfig) -> Unproven:
    unproven = Unproven(tandem, UNPROVEN)
    places = (tandem, trainer, trainer.args)

    def setting(key: str) -> Any:
        if key in _LOSS_METHODS:
            return _class_of(getattr(trainer, key))
        return next((getattr(one, key) for one in places if hasattr(one, key)), None)

    check_refusals(refusals, setting, unproven)
    return unproven


def check_worker(tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` for tandem's settings that no trainer of TRL's can have."""
    unproven = Unproven(tandem, UNPROVEN)
    check_refusals(_OF_EVERY_TRAINER, lambda key: getattr(tandem, key), unproven)


def _class_of(method: Any) -> str:
    """The class that defines a method, with its module; of another callable, its own class."""
    function = getattr(method, "__func__", method)
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{function.__module__}.{name.rpartition('.')[0] or name}"
