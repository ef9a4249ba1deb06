"""What an OpenRLHF run may not combine with tandem: refused by name before any model is loaded.

A tandem run trains through a mask with holes. What is listed as sound was read in OpenRLHF 0.11.2
(``trainer/ppo_utils/experience_maker.py`` and ``models/loss.py``); what is broken is listed with
the reason, and cannot be allowed; what is neither was not looked at, and is refused as unproven
unless the run allows it by name (:data:`UNPROVEN`).
"""

from __future__ import annotations

from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.versions import check_version, installed_version, judge_version
from tandem_plugin.schedules import takes_training_step
from tandem_plugin.training.settings import check_text_model
from tandem_plugin.training.unproven import Unproven

__all__ = [
    "BROKEN_ESTIMATORS",
    "GROUPLESS_ESTIMATORS",
    "SOUND_ESTIMATORS",
    "UNPROVEN",
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

UNPROVEN = {
    "estimator": "an advantage estimator that tandem was not tested with",
    "loss": "a policy loss that it was not tested with",
    "version": "another series of OpenRLHF",
}
"""What a run may be allowed by ``tandem.unproven``, and what each name stands for."""


def check_versions(tandem: TandemConfig) -> list[str]:
    """The warnings of ``tandem doctor`` about OpenRLHF's and vLLM's versions.

    Raises :class:`ConfigError` where OpenRLHF is not installed, or of a version with which nothing
    is started unless the run allows it.
    """
    openrlhf, vllm = installed_version("openrlhf"), installed_version("vllm")
    if openrlhf is None:
        raise ConfigError(
            'OpenRLHF is not installed in this Python. Install it: pip install "openrlhf==0.11.2" '
            "(docs/openrlhf.md)."
        )
    unproven = Unproven(tandem, UNPROVEN)
    verdict = judge_version("openrlhf", openrlhf, f"openrlhf {openrlhf}")
    if verdict.status == "problem":
        unproven.check("version", f"{verdict.message} Its insides may be others: {verdict.mend}.")
        warnings = unproven.warnings
    else:
        warnings = [check_version("openrlhf", openrlhf)]
    if vllm:
        warnings.append(check_version("vllm", vllm))
    return [warning for warning in warnings if warning]


def check_run(args: Any, tandem: TandemConfig) -> Unproven:
    """Raise :class:`ConfigError` for the first argument of a run that does not go with tandem.

    args: OpenRLHF's arguments, in the form in which its command hands them to the trainer. Returns
    what the run makes use of that nobody has shown to work. What the driver alone can see, settings
    and models, is not looked at here.
    """
    unproven = Unproven(tandem, UNPROVEN)
    _check_estimator(args.algo.advantage, unproven)
    _check_losses(args, unproven)
    _check_rollout(args)
    _check_schedule(args, tandem)
    return unproven


def check_models(args: Any, tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` unless senior and junior are text models, as far as they say."""
    if args.actor.model_name_or_path:
        check_text_model("--actor.model_name_or_path", args.actor.model_name_or_path)
    if tandem.junior:
        check_text_model("--tandem.junior", tandem.junior)


def _check_estimator(advantage: Any, unproven: Unproven) -> None:
    flag, name = "--algo.advantage.estimator", advantage.estimator
    if name in BROKEN_ESTIMATORS:
        raise ConfigError(
            f"{flag} {name} does not work with tandem: {BROKEN_ESTIMATORS[name]}. Use one of: "
            f"{', '.join(SOUND_ESTIMATORS)}."
        )
    if name not in SOUND_ESTIMATORS:
        unproven.check(
            "estimator",
            f"{flag} {name} was not tested with tandem, which trains through a mask with holes. "
            f"Use one of: {', '.join(SOUND_ESTIMATORS)}.",
        )
    if name == "reinforce" and advantage.gamma != 1:
        raise ConfigError(
            f"{flag} reinforce with --algo.advantage.gamma {advantage.gamma} does not work with "
            "tandem: the discount would count the junior's tokens as well. Set "
            "--algo.advantage.gamma 1."
        )


def _check_losses(args: Any, unproven: Unproven) -> None:
    if args.actor.policy_loss_type not in _SOUND_LOSSES:
        unproven.check(
            "loss",
            f"--actor.policy_loss_type {args.actor.policy_loss_type} was not tested with tandem. "
            f"Use one of: {', '.join(_SOUND_LOSSES)}.",
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
