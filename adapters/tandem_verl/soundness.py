"""What a mask with holes leaves right in verl, and what it breaks.

What is listed as sound was read in verl 0.9.1's ``core_algos.py`` and is held by
``tests/verl_adapter/test_masks_with_holes.py``.
"""

from __future__ import annotations

from tandem_plugin.config import TandemConfig
from tandem_plugin.training.unproven import Unproven

__all__ = [
    "BROKEN_ESTIMATORS",
    "PER_TOKEN_LOSSES",
    "SOUND_ENGINES",
    "SOUND_ESTIMATORS",
    "SOUND_LOSSES",
    "UNPROVEN",
    "allowed_unproven",
]

BROKEN_ESTIMATORS = (
    "gae",
    "reinforce_plus_plus",
    "remax",
    "optimal_token_baseline",
    "tir_optimal_token_baseline",
)
"""Advantage estimators that lose a reward where the junior wrote the last token."""

SOUND_ESTIMATORS = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "gdpo",
    "rloo",
    "rloo_vectorized",
    "reinforce_plus_plus_baseline",
    "opo",
    "gpg",
)
"""Advantage estimators that use the whole response's reward and only the trained tokens else."""

SOUND_LOSSES = (
    "vanilla",
    "gspo",
    "geo_mean",
    "gpg",
    "dro",
    "cispo",
    "sapo",
    "clip_cov",
    "kl_cov",
    "dppo_tv",
    "dppo_kl",
)
"""Policy losses that neither see nor move a token outside the mask."""

PER_TOKEN_LOSSES = tuple(
    loss for loss in SOUND_LOSSES if loss not in ("clip_cov", "geo_mean", "sapo")
)
"""Those whose gradient, before a step, is each token's advantage times that of its log p."""

SOUND_ENGINES = ("fsdp", "fsdp2")
"""Training engines (``actor.strategy``) with which real runs were held against a reference."""

_UNPROVEN_ENGINES = ("megatron", "fsdp_turbo", "veomni", "torchtitan", "automodel")

UNPROVEN = {
    **{engine: f"actor_rollout_ref.actor.strategy={engine}" for engine in _UNPROVEN_ENGINES},
    "custom_estimator": "an advantage estimator of your own",
    "custom_loss": "a policy loss of your own",
    "distillation": "distillation.enabled=True",
    "development_version": "a development version of verl",
}
"""What is refused only because nobody has shown that it works, by the name that allows it."""


def allowed_unproven(tandem: TandemConfig) -> Unproven:
    """What a run allows of :data:`UNPROVEN`; raises :class:`ConfigError` for other names."""
    return Unproven(tandem, UNPROVEN)
