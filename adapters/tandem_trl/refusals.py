"""Settings of TRL's ``GRPOTrainer`` that are rejected in tandem, before any update.

The values listed as sound were checked by reading TRL 1.16.0, in ``trainer/grpo_trainer.py``: its
loss, its importance ratios and its metrics use ``env_mask`` wherever they use the completion's own
mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.training.refusals import (
    Refusal,
    Unproven,
    check_refusals,
    is_on,
    untested,
)

if TYPE_CHECKING:
    from trl import GRPOTrainer

SOUND_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")

UNPROVEN = {
    "loss": "a loss not tested with tandem",
    "version": "another series of TRL",
}
"""The names that ``unproven`` may contain, and their meanings."""

_REFUSALS = (
    Refusal("use_vllm", lambda value, _: not value, "trl-engine-not-vllm"),
    Refusal("vllm_mode", lambda value, _: value != "colocate", "trl-server-mode-unsupported"),
    # Each creates its own mask, and TRL then ignores the mask of the rollouts.
    Refusal("tools", is_on, "trl-own-mask"),
    Refusal("environment_factories", is_on, "trl-own-mask"),
    Refusal("lambda_jun", is_on, "trl-imitation-unsupported"),
    Refusal("validation", lambda value, _: value == "both", "trl-validation-unsupported"),
    untested("loss_type", SOUND_LOSSES, "loss"),
)


def check_trainer(trainer: GRPOTrainer, tandem: TandemConfig) -> Unproven:
    """Raise :class:`ConfigError` for the first setting that is incompatible with tandem.

    trainer: a ``GRPOTrainer``. Returns the unverified settings that the run uses.
    """
    unproven = Unproven(tandem, UNPROVEN)
    places = (tandem, trainer, trainer.args)

    def setting(key: str) -> Any:
        return next((getattr(one, key) for one in places if hasattr(one, key)), None)

    check_refusals(_REFUSALS, setting, unproven)
    return unproven
