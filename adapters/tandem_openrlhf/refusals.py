"""What an OpenRLHF run may not combine with tandem: refused by name before any model is loaded.

A tandem run trains through a mask with holes. What is listed as sound was read in OpenRLHF 0.11.2
(``trainer/ppo_utils/experience_maker.py`` and ``models/loss.py``); what is broken is listed with
the reason; what is neither was not looked at, and is refused as unproven.
"""

from __future__ import annotations

from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.versions import check_version, installed_version
from tandem_plugin.schedules import takes_training_step
from tandem_plugin.training.settings import check_settings, check_text_model

__all__ = [
    "BROKEN_ESTIMATORS",
    "GROUPLESS_ESTIMATORS",
    "SOUND_ESTIMATORS",
    "check_models",
    "check_run",
    "check_versions",
]

BROKEN_ESTIMATORS = {
    "gae": "its values and deltas run along the response and break where the junior wrote",
}
"""Advantage estimators that a mask with holes breaks, and how."""

SOUND_ESTIMATORS = (
    "group_norm",
    "rloo",
    "reinforce_baseline",
    "dr_grpo",
    "flash_reinforce",
    "reinforce",
)
"""Advantage estimators that give every trained token the whole response's reward."""

GROUPLESS_ESTIMATORS = ("reinforce", "flash_reinforce")
"""Those among them that do not compare the responses to one prompt."""

_SOUND_LOSSES = ("ppo", "gspo")


def check_versions() -> list[str]:
    """The warnings of ``tandem doctor`` about OpenRLHF's and vLLM's versions.

    Raises :class:`ConfigError` where OpenRLHF is not installed, or of a version with which nothing
    is started.
    """
    installed = {name: installed_version(name) for name in ("openrlhf", "vllm")}
    if installed["openrlhf"] is None:
        raise ConfigError(
            'OpenRLHF is not installed in this Python. Install it: pip install "openrlhf==0.11.2" '
            "(docs/openrlhf.md)."
        )
    warnings = [check_version(name, found) for name, found in installed.items() if found]
    return [warning for warning in warnings if warning]


def check_run(args: Any, tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` for the first argument of a run that does not go with tandem.

    args: OpenRLHF's arguments, as its command hands them to the trainer.
    """
    _check_estimator(args.algo.advantage)
    _check_losses(args)
    _check_rollout(args)
    _check_schedule(args, tandem)
    check_settings(tandem)


def check_models(args: Any, tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` unless senior and junior are text models, as far as they say."""
    check_text_model("--actor.model_name_or_path", args.actor.model_name_or_path)
    if tandem.junior:
        check_text_model("--tandem.junior", tandem.junior)


def _check_estimator(advantage: Any) -> None:
    flag, name = "--algo.advantage.estimator", advantage.estimator
    if name in BROKEN_ESTIMATORS:
        raise ConfigError(
            f"{flag} {name} does not work with tandem: {BROKEN_ESTIMATORS[name]}. Use one of: "
            f"{', '.join(SOUND_ESTIMATORS)}."
        )
    if name not in SOUND_ESTIMATORS:
        raise ConfigError(
            f"{flag} {name} was not tested with tandem, which trains through a mask with holes. "
            f"Use one of: {', '.join(SOUND_ESTIMATORS)}."
        )
    if name == "reinforce" and advantage.gamma != 1:
        raise ConfigError(
            f"{flag} reinforce with --algo.advantage.gamma {advantage.gamma} does not work with "
            "tandem: the discount would count the junior's tokens as well. Set "
            "--algo.advantage.gamma 1."
        )


def _check_losses(args: Any) -> None:
    if args.actor.policy_loss_type not in _SOUND_LOSSES:
        raise ConfigError(
            f"--actor.policy_loss_type {args.actor.policy_loss_type} was not tested with tandem. "
            f"Use one of: {', '.join(_SOUND_LOSSES)}."
        )
    if args.algo.kl.target:
        raise ConfigError(
            f"--algo.kl.target {args.algo.kl.target} does not go with tandem: OpenRLHF's adaptive "
            "controller would follow a mean that counts responses without a token of the senior's. "
            "Leave it out for a fixed coefficient."
        )


def _check_rollout(args: Any) -> None:
    if not args.vllm.num_engines:
        raise ConfigError(
            "--vllm.num_engines is not set: tandem runs inside vLLM. Give at least 1."
        )
    if getattr(args.data, "max_images_per_prompt", 0):
        raise ConfigError(
            f"--data.max_images_per_prompt {args.data.max_images_per_prompt}: tandem runs text "
            "models only. Leave it out."
        )
    if args.ds.lora.rank:
        raise ConfigError(
            f"--ds.lora.rank {args.ds.lora.rank} does not go with tandem: OpenRLHF sends the "
            "engine the adapter's weights, not the senior's. Merge the adapter into the checkpoint "
            "(python -m openrlhf.cli.lora_combiner) and train that without --ds.lora.rank."
        )


def _check_schedule(args: Any, tandem: TandemConfig) -> None:
    if args.train.async_enable and takes_training_step(tandem.make_schedule()):
        raise ConfigError(
            f"The schedule {tandem.schedule!r} depends on the training step, which a generator of "
            "an asynchronous run does not know. Leave --train.async_enable out."
        )
