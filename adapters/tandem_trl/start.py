"""TRL's trainers as the start of a run must know them: settings rejected before models are loaded.

The values listed as sound were checked by reading TRL 1.16.0, in ``trainer/grpo_trainer.py``: its
loss, its importance ratios and its metrics use ``env_mask`` wherever they use the completion's own
mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from tandem_plugin.training.start import TrainerRun
from tandem_plugin.unsupported import Option, Unsupported
from tandem_trl import lora

if TYPE_CHECKING:
    from typing_extensions import Self

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


def _share_an_engine(tools: Any, settings: Option) -> bool:
    """Whether processes with tools send one engine their rows.

    In the turns after a tool each has a different number of rows, or none, but TRL gives the
    process of number i the answers from i times its own number of rows on
    (``VLLMGeneration.generate``).
    """
    if not tools:
        return False
    if settings("vllm_mode") == "server":
        return bool(settings("world_size") > 1)
    return bool(settings("vllm_tensor_parallel_size") > 1)


_OF_EVERY_TRAINER = (Unsupported.on("tandem.lambda_jun", "trl-imitation-unsupported"),)

_WITHOUT_IMAGES = Unsupported.on("tandem.images", "trl-images-untested")
"""Of trainers that were not run on images."""

_OF_TWO = (
    Unsupported("use_vllm", lambda value, _: not value, "trl-engine-not-vllm"),
    *_OF_EVERY_TRAINER,
)

_OF_RLOO = (
    *_OF_TWO,
    _WITHOUT_IMAGES,
    Unsupported.untested("compute_loss", ("tandem_trl.rloo.TandemRLOOTrainer",), "loss"),
    Unsupported.untested("_compute_loss", ("trl.trainer.rloo_trainer.RLOOTrainer",), "loss"),
)

_OF_GRPO = (
    *_OF_TWO,
    Unsupported("tools", _share_an_engine, "trl-tools-of-several-processes"),
    Unsupported(
        "tandem.images",
        lambda on, run: bool(on) and run("vllm_mode") == "server",
        "trl-images-untested",
    ),
    Unsupported.untested("loss_type", SOUND_LOSSES, "loss"),
    *(Unsupported.untested(method, SOUND_TRAINERS, "loss") for method in _LOSS_METHODS),
)


@dataclass(frozen=True)
class TRLSettings(TrainerRun):
    """What is known of a run of TRL's: first the engine's arguments, then the trainer's settings.

    Then the model with its adapter, and at the first rollout the trainer itself.
    """

    package = "trl"
    unproven = UNPROVEN
    unsupported: ClassVar[Sequence[Unsupported]] = ()

    args: Any
    """The trainer's, such as a ``GRPOConfig``."""
    trainer: Any
    """The trainer, or its class before it exists, which has the methods of the loss."""

    @classmethod
    def of(
        cls,
        args: Any,
        engine: Mapping[str, Any],
        name: str | None,
        trainer: Any = None,
        tools: Sequence[Any] | None = None,
        resumes: bool | None = None,
        sampled: Mapping[str, Any] | None = None,
    ) -> Self:
        """engine: arguments of ``vllm.LLM`` that override TRL's own, among them the model's name.

        name: the trainer's model. sampled: sampling options by vLLM's names, once they are known.
        """
        methods = () if trainer is None else _LOSS_METHODS
        losses = {method: _class_of(getattr(trainer, method)) for method in methods}
        return cls(
            cls.attributes(args, tools=tools, **losses),
            engine.get,
            engine.get("model") or name,
            resumes,
            sampled or {},
            None,
            args,
            trainer,
        )

    def with_model(self, model: Any, **fields: Any) -> Self:
        """The same once the model is loaded, with or without an adapter. fields: further ones."""
        return replace(self, check_adapter=self.adapter_check(model), **fields)

    def adapter_check(self, model: Any) -> Callable[[], None] | None:
        """What checks the adapter of a model; None for no model."""
        return None if model is None else partial(lora.check_adapter, model)


class GRPOSettings(TRLSettings):
    """Of a ``GRPOTrainer``."""

    unsupported = _OF_GRPO


class RLOOSettings(TRLSettings):
    """Of a ``TandemRLOOTrainer``."""

    unsupported = _OF_RLOO


class AsyncSettings(TRLSettings):
    """Of an ``AsyncGRPOTrainer``, which sends an adapter alone if the worker has a name for it."""

    unsupported = (*_OF_EVERY_TRAINER, _WITHOUT_IMAGES)

    def adapter_check(self, model: Any) -> Callable[[], None] | None:
        """Also raises like :func:`~tandem_trl.lora.check_sent_alone`."""
        if model is None or not self.engine_option("lora_name"):
            return super().adapter_check(model)

        def check() -> None:
            lora.check_adapter(model)
            lora.check_sent_alone(model, str(self.model))

        return check


def _class_of(method: Any) -> str:
    """The class that defines a method, with its module; of any other callable, its own class."""
    function = getattr(method, "__func__", method)
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{function.__module__}.{name.rpartition('.')[0] or name}"
