"""What an OpenRLHF run may not combine with tandem: rejected before any model is loaded.

The values listed as sound were checked by reading OpenRLHF 0.11.2, in
``trainer/ppo_utils/experience_maker.py`` and ``models/loss.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.versions import installed_version
from tandem_plugin.schedules import takes_training_step
from tandem_plugin.training import settings
from tandem_plugin.training.refusals import (
    Refusal,
    Settings,
    Unproven,
    broken,
    check_refusals,
    each,
    is_on,
    too_many_juniors,
    untested,
)

__all__ = [
    "ARGUMENTS",
    "SOUND_ESTIMATORS",
    "UNPROVEN",
    "check_models",
    "check_run",
    "check_versions",
]

SOUND_ESTIMATORS = (
    "group_norm",
    "rloo",
    "reinforce_baseline",
    "dr_grpo",
    "flash_reinforce",
    "reinforce",
)
"""Advantage estimators that give every trained token the whole response's reward."""

UNPROVEN = {
    "estimator": "an advantage estimator not tested with tandem",
    "loss": "a policy loss not tested with tandem",
    "version": "another series of OpenRLHF",
}
"""What a run may be allowed by ``tandem.unproven``, and what each name stands for."""

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "--actor.model_name_or_path": {"type": str, "default": None},
    "--actor.policy_loss_type": {"type": str, "default": "ppo"},
    "--algo.advantage.estimator": {"type": str, "default": "gae"},
    "--algo.advantage.gamma": {"type": float, "default": 1},
    "--algo.kl.target": {"type": float, "default": None},
    "--data.max_images_per_prompt": {"type": int, "default": 0},
    "--ds.attn_implementation": {"type": str, "default": "flash_attention_2"},
    "--ds.lora.rank": {"type": int, "default": 0},
    "--ds.packing_samples": {"action": "store_true", "default": False},
    "--ds.ring_attn_size": {"type": int, "default": 1},
    "--rollout.temperature": {"type": float, "default": 1.0},
    "--rollout.top_p": {"type": float, "default": 1.0},
    "--train.async_enable": {"action": "store_true", "default": False},
    "--train.dynamic_batch_enable": {"action": "store_true", "default": False},
    "--vllm.num_engines": {"type": int, "default": None},
}
"""The arguments that are checked, each with OpenRLHF's type and default; a test compares them."""


def _lacks(*names: str) -> bool:
    return not any(installed_version(name) for name in names)


_REFUSALS = (
    broken(
        "--algo.advantage.estimator",
        ("gae",),
        "its values and deltas are computed along the response and break where the junior wrote",
        SOUND_ESTIMATORS,
    ),
    untested("--algo.advantage.estimator", SOUND_ESTIMATORS, "estimator"),
    Refusal(
        "--algo.advantage.gamma",
        lambda gamma, run: gamma != 1 and run("--algo.advantage.estimator") == "reinforce",
        "TP604",
    ),
    untested("--actor.policy_loss_type", ("ppo", "gspo"), "loss", reach=""),
    Refusal("--algo.kl.target", is_on, "TP605"),
    Refusal("--vllm.num_engines", lambda number, _: not number, "TP606"),
    too_many_juniors("--tandem", lambda run: int(run("--vllm.num_engines"))),
    Refusal("--data.max_images_per_prompt", is_on, "TP607"),
    Refusal("--ds.lora.rank", is_on, "TP608"),
    Refusal(
        "--tandem",
        lambda tandem, run: (
            run("--train.async_enable") and takes_training_step(tandem.make_schedule())
        ),
        "TP609",
    ),
    # Where OpenRLHF starts by the stand-in for flash-attn alone (`tandem path`).
    Refusal(
        "--ds.attn_implementation",
        # transformers takes a kernel of the package of that name in its place.
        lambda name, _: name == "flash_attention_2" and _lacks("flash-attn", "kernels"),
        "TP610",
    ),
    *each(  # the latter two turn packing on, and packing turns flash_attention_2 on
        ("--ds.packing_samples", "--ds.ring_attn_size", "--train.dynamic_batch_enable"),
        lambda value, _: (value is True or value > 1) and _lacks("flash-attn"),
        "TP611",
    ),
)


def check_run(arguments: Settings, tandem: TandemConfig) -> Unproven:
    """Raise :class:`ConfigError` for the first argument of a run that is incompatible with tandem.

    Returns the unverified settings that the run uses. Settings and models, which only the driver
    can see, are not checked here.
    """
    unproven = Unproven(tandem, UNPROVEN)
    check_refusals(
        _REFUSALS, lambda flag: tandem if flag == "--tandem" else arguments(flag), unproven
    )
    return unproven


def check_models(arguments: Settings, tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` unless senior and junior are text models by their configs."""
    senior = "--actor.model_name_or_path"
    settings.check_text_models({senior: arguments(senior), "--tandem.junior": tandem.juniors})


def check_versions(tandem: TandemConfig) -> list[str]:
    """The warnings about OpenRLHF's and vLLM's versions.

    Raises :class:`ConfigError` if OpenRLHF is missing, or if its version is rejected and the run
    does not allow it.
    """
    found = {name: installed_version(name) for name in ("openrlhf", "vllm")}
    if found["openrlhf"] is None:
        raise ConfigError("TP603")
    unproven = Unproven(tandem, UNPROVEN)
    warnings = settings.check_versions(found, unproven, "version")
    return [*unproven.warnings, *warnings]
