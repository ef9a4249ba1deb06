"""OpenRLHF as the start of a run must know it: settings rejected before any model is loaded.

The values listed as sound were checked by reading OpenRLHF 0.11.2, in
``trainer/ppo_utils/experience_maker.py`` and ``models/loss.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.schedules import takes_training_step
from tandem_plugin.training.start import TrainerRun
from tandem_plugin.unsupported import Option, Unsupported, is_on

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
    Unsupported("--ds.lora.rank", is_on, "openrlhf-adapter-sync"),
    Unsupported(
        "tandem",
        lambda tandem, run: (
            run("--train.async_enable") and takes_training_step(tandem.make_schedule())
        ),
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
    resumes = False  # OpenRLHF finds its checkpoint after it has loaded the models

    def __init__(self, argument: Option) -> None:
        """argument: the value of each of :data:`ARGUMENTS`."""
        self._argument = argument

    def setting(self, name: str) -> Any:
        """The value of an argument."""
        return self._argument(name)

    def engine_option(self, name: str) -> Any:
        """OpenRLHF has few of vLLM's arguments, under the same names."""
        flag = f"--vllm.{name}"
        return self._argument(flag) if flag in ARGUMENTS else None

    @property
    def model(self) -> str | None:
        """``--actor.model_name_or_path``."""
        name: str | None = self._argument("--actor.model_name_or_path")
        return name

    def check_adapter(self) -> None:
        """The table rejects every adapter."""

    def sampling(self) -> Mapping[str, Any]:
        """OpenRLHF has one option in addition to the temperature."""
        return {"--rollout.top_p": self._argument("--rollout.top_p")}
