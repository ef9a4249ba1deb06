"""What a mask with holes leaves right in verl, and what it breaks.

What is listed as sound was read in verl 0.9.1's ``core_algos.py`` and is verified by
``tests/verl_adapter/test_masks_with_holes.py``.
"""

from __future__ import annotations

from tandem_plugin.config import TandemConfig
from tandem_plugin.training.refusals import Unproven

__all__ = [
    "BROKEN_ESTIMATORS",
    "MISSING_ESTIMATORS",
    "REWARD_TO_GO_ESTIMATORS",
    "SOUND_ENGINES",
    "SOUND_ESTIMATORS",
    "SOUND_LOSSES",
    "UNPROVEN",
    "WHOLE_RESPONSE_ESTIMATORS",
    "allowed_unproven",
]

WHOLE_RESPONSE_ESTIMATORS = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "rloo",
    "rloo_vectorized",
    "reinforce_plus_plus_baseline",
    "opo",
    "gpg",
)
"""Advantage estimators that sum a response's reward wherever it stands, and use only the trained
tokens else."""

REWARD_TO_GO_ESTIMATORS = ("reinforce_plus_plus", "gae")
"""Advantage estimators that sum, at each trained token, the rewards from there on. They drop a
reward that stands on a token that is not trained, and are exact once each stands on one
(:mod:`tandem_verl.advantages`)."""

SOUND_ESTIMATORS = (*WHOLE_RESPONSE_ESTIMATORS, *REWARD_TO_GO_ESTIMATORS)
"""Advantage estimators that give a trained token what it has without the others in between."""

MISSING_ESTIMATORS = {
    "remax": "remax's greedy baselines",
    "tir_optimal_token_baseline": "sum_pi_squared",
    "gdpo": "gdpo's components of the reward",
}
"""Estimators that verl 0.9's trainer V1 cannot run, in tandem or not, and what it does not give
them. The first two would be exact by the same move, the last by the reward of whole responses."""

BROKEN_ESTIMATORS = ("optimal_token_baseline",)
"""Advantage estimators that compare responses position by position, the other author's included."""

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
