"""Settings of OpenRLHF that are rejected in tandem, before any model is loaded.

The values listed as sound were checked by reading OpenRLHF 0.11.2, in
``trainer/ppo_utils/experience_maker.py`` and ``models/loss.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.schedules import takes_training_step
from tandem_plugin.training.checkpoint_note import check_start
from tandem_plugin.training.refusals import (
    Refusal,
    Settings,
    Unproven,
    check_refusals,
    is_on,
    untested,
)

SOUND_ESTIMATORS = (
    "group_norm",
    "rloo",
    "reinforce_baseline",
    "dr_grpo",
    "flash_reinforce",
    "reinforce",
    "gae",
)
"""Advantage estimators that give every trained token the whole response's reward; ``gae``, with
its critic, sees the trained tokens alone (:meth:`~tandem_openrlhf.patches.training.Maker`)."""

UNPROVEN = {
    "estimator": "an advantage estimator not tested with tandem",
    "loss": "a policy loss not tested with tandem",
    "version": "another series of OpenRLHF",
}
"""The names that ``tandem.unproven`` may contain, and their meanings."""

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "--actor.model_name_or_path": {"type": str, "default": None},
    "--actor.policy_loss_type": {"type": str, "default": "ppo"},
    "--algo.advantage.estimator": {"type": str, "default": "gae"},
    "--algo.advantage.gamma": {"type": float, "default": 1},
    "--data.max_images_per_prompt": {"type": int, "default": 0},
    "--ds.lora.rank": {"type": int, "default": 0},
    "--rollout.top_p": {"type": float, "default": 1.0},
    "--train.async_enable": {"action": "store_true", "default": False},
    "--train.dynamic_batch_enable": {"action": "store_true", "default": False},
    "--vllm.num_engines": {"type": int, "default": None},
}
"""The arguments that are checked, each with OpenRLHF's type and default; a test compares them."""


_REFUSALS = (
    untested("--algo.advantage.estimator", SOUND_ESTIMATORS, "estimator"),
    Refusal(
        "--algo.advantage.gamma",
        lambda gamma, run: gamma != 1 and run("--algo.advantage.estimator") == "reinforce",
        "openrlhf-discount-counts-junior",
    ),
    untested("--actor.policy_loss_type", ("ppo", "gspo"), "loss"),
    Refusal("--vllm.num_engines", lambda number, _: not number, "openrlhf-engine-not-vllm"),
    Refusal("--data.max_images_per_prompt", is_on, "openrlhf-images-unsupported"),
    Refusal("--ds.lora.rank", is_on, "openrlhf-adapter-sync"),
    Refusal(
        "--tandem",
        lambda tandem, run: (
            run("--train.async_enable") and takes_training_step(tandem.make_schedule())
        ),
        "openrlhf-async-training-step",
    ),
    Refusal(
        "--tandem",
        lambda tandem, run: bool(tandem.lambda_jun and run("--train.dynamic_batch_enable")),
        "openrlhf-imitation-dynamic-batch",
    ),
)


def check_run(arguments: Settings, tandem: TandemConfig) -> Unproven:
    """Raise :class:`ConfigError` for the first argument of a run that is incompatible with tandem.

    Returns the unverified settings that the run uses.
    """
    unproven = Unproven(tandem, UNPROVEN)
    check_start(arguments("--actor.model_name_or_path") or "", tandem)
    check_refusals(
        _REFUSALS, lambda flag: tandem if flag == "--tandem" else arguments(flag), unproven
    )
    return unproven
