"""OpenRLHF as the start of a run must know it: settings rejected before any model is loaded.

The values listed as sound were checked by reading OpenRLHF 0.11.2, in
``trainer/ppo_utils/experience_maker.py`` and ``models/loss.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.training.start import TrainerRun
from tandem_plugin.unsupported import Unsupported

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
    "version": "a different series of OpenRLHF",
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
    "--vllm.enable_prefix_caching": {"action": "store_true", "default": False},
    "--vllm.enforce_eager": {"action": "store_true", "default": False},
    "--vllm.num_engines": {"type": int, "default": None},
    "--vllm.tensor_parallel_size": {"type": int, "default": 1},
}
"""The arguments that are checked, each with OpenRLHF's type and default; a test compares them."""


_UNSUPPORTED = (
    Unsupported.untested("--algo.advantage.estimator", SOUND_ESTIMATORS, "estimator"),
    Unsupported(
        "--algo.advantage.gamma",
        lambda gamma, run: gamma != 1 and run("--algo.advantage.estimator") == "reinforce",
        "openrlhf-discount-counts-junior",
    ),
    Unsupported.untested("--actor.policy_loss_type", ("ppo", "gspo"), "loss"),
    Unsupported("--vllm.num_engines", lambda number, _: not number, "openrlhf-engine-not-vllm"),
    Unsupported(
        "--data.max_images_per_prompt",
        lambda most, run: bool(most) != bool(run("tandem.images")),
        "openrlhf-images-differ",
    ),
    Unsupported.on("--ds.lora.rank", "openrlhf-adapter-sync"),
    Unsupported(
        "tandem",
        lambda tandem, run: run("--train.async_enable") and tandem.takes_training_step,
        "openrlhf-async-training-step",
    ),
    Unsupported(
        "tandem",
        lambda tandem, run: bool(tandem.lambda_jun and run("--train.dynamic_batch_enable")),
        "openrlhf-imitation-dynamic-batch",
    ),
)


class OpenRLHFCommand(TrainerRun):
    """A run of OpenRLHF. Its command has all settings."""

    package = "openrlhf"
    unsupported = _UNSUPPORTED
    unproven = UNPROVEN

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> OpenRLHFCommand:
        """arguments: the value of each of :data:`ARGUMENTS`."""
        prefix = "--vllm."  # few of vLLM's arguments, under the same names
        of_engine = {
            flag.removeprefix(prefix): arguments[flag] for flag in ARGUMENTS if prefix in flag
        }
        return cls(
            arguments.get,
            of_engine.get,
            arguments["--actor.model_name_or_path"],
            resumes=False,  # OpenRLHF finds its checkpoint after it has loaded the models
            sampling={"--rollout.top_p": arguments["--rollout.top_p"]},
            check_adapter=None,  # the table rejects every one
        )
