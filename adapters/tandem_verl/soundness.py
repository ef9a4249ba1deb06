"""What a mask with holes leaves right in verl, and what it breaks.

What is listed as sound was read in verl 0.9.1's ``core_algos.py`` and is held by
``tests/verl_adapter/test_masks_with_holes.py``; what is broken is listed with the reason; what is
neither was not looked at, and is refused as unproven.
"""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.training.unproven import Unproven

__all__ = [
    "BROKEN_ESTIMATORS",
    "SOUND_ENGINES",
    "SOUND_ESTIMATORS",
    "SOUND_LOSSES",
    "UNPROVEN",
    "check_learning",
]

_LOSES_REWARD = (
    "it carries the reward back from the response's last token, and drops it where the junior "
    "wrote that token"
)
BROKEN_ESTIMATORS = {
    "gae": _LOSES_REWARD,
    "reinforce_plus_plus": _LOSES_REWARD,
    "remax": _LOSES_REWARD,
    "optimal_token_baseline": _LOSES_REWARD,
    "tir_optimal_token_baseline": _LOSES_REWARD,
}
"""Advantage estimators that a mask with holes breaks, and how."""

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


def check_learning(config: Any, imitates: bool, unproven: Unproven) -> None:
    """Raise :class:`ConfigError` for an estimator, engine or loss that does not go with tandem.

    config: verl's whole configuration. imitates: whether ``lambda_jun`` is above 0.
    """
    _check_estimator(config.algorithm.adv_estimator, unproven)
    actor = config.actor_rollout_ref.actor
    _check_engine(actor, imitates, unproven)
    _check_loss(actor.policy_loss.get("loss_mode", "vanilla"), unproven)
    distillation = config.get("distillation")
    if distillation is not None and distillation.get("enabled"):
        unproven.check(
            "distillation",
            "distillation.enabled=True was not tested with tandem, which trains through a mask "
            "with holes. Set it to False.",
        )
    correction = config.algorithm.get("rollout_correction")
    if correction is not None and correction.get("bypass_mode"):
        raise ConfigError(
            "algorithm.rollout_correction.bypass_mode=True does not work with tandem: its loss "
            "fails on a micro-batch without a token of the senior's. Set it to False."
        )


def _check_estimator(estimator: Any, unproven: Unproven) -> None:
    name = str(getattr(estimator, "value", estimator))
    use = f"Use one of: {', '.join(SOUND_ESTIMATORS)}."
    if name in BROKEN_ESTIMATORS:
        raise ConfigError(
            f"algorithm.adv_estimator={name} does not work with tandem: "
            f"{BROKEN_ESTIMATORS[name]}. {use}"
        )
    if name not in SOUND_ESTIMATORS:
        unproven.check(
            "custom_estimator",
            f"algorithm.adv_estimator={name} was not tested with tandem, which trains through a "
            f"mask with holes. {use}",
        )


def _check_engine(actor: Any, imitates: bool, unproven: Unproven) -> None:
    engine = actor.strategy
    if engine in SOUND_ENGINES:
        return
    sentence = (
        f"actor_rollout_ref.actor.strategy={engine} was not tested with tandem. Use one of: "
        f"{', '.join(SOUND_ENGINES)}."
    )
    if engine not in _UNPROVEN_ENGINES:
        raise ConfigError(sentence)
    unproven.check(engine, sentence)
    if imitates:
        raise ConfigError(
            f"tandem.lambda_jun goes with the engines {', '.join(SOUND_ENGINES)} alone: others "
            "count and scale a mini-batch's tokens in ways of their own, and the term would be of "
            "another size. Leave it out."
        )
    replays = [actor.get("router_replay"), (actor.get(engine) or {}).get("router_replay")]
    if any(replay is not None and replay.get("mode") == "R3" for replay in replays):
        raise ConfigError(
            f"router_replay.mode=R3 does not work with {engine} in tandem: it takes the mask of "
            "trained tokens for the length of the response. Set it to R2 or disabled."
        )


def _check_loss(loss: str, unproven: Unproven) -> None:
    if loss not in SOUND_LOSSES:
        unproven.check(
            "custom_loss",
            f"actor_rollout_ref.actor.policy_loss.loss_mode={loss} was not tested with tandem, "
            f"which trains through a mask with holes. Use one of: {', '.join(SOUND_LOSSES)}.",
        )
