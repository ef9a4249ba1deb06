"""SkyRL as the start of a run must know it: settings rejected before any process starts.

The values listed as sound were tested with skyrl 0.4.0: each combination has the gradient of
a loop over the senior's tokens (``tests/conformance/test_losses_of_skyrl.py``).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tandem_plugin.training.start import TrainerRun
from tandem_plugin.unsupported import Unsupported

if TYPE_CHECKING:
    from skyrl.train.config import SkyRLTrainConfig

SOUND_ESTIMATORS = ("grpo", "rloo", "maxrl", "reinforce++")

SOUND_LOSSES = (
    *("regular", "dual_clip", "gspo", "cispo", "sapo", "rollout_is", "dppo"),
    *("importance_sampling", "clip_cov", "kl_cov"),
)

UNPROVEN = {
    "asynchronous": "a part of the fully asynchronous trainer not tested with tandem",
    "dynamic_sampling": "dynamic sampling of a kind other than filter",
    "engine": "an engine that SkyRL starts or syncs in a way not tested with tandem",
    "estimator": "an advantage estimator not tested with tandem",
    "loss": "a policy loss not tested with tandem",
    "strategy": "a training backend not tested with tandem",
    "version": "a different series of SkyRL",
}
"""The names that ``tandem.unproven`` may contain, and their meanings."""

_ENGINE = "generator.inference_engine."

_UNSUPPORTED = (
    Unsupported.on("tandem.lambda_jun", "skyrl-imitation-unsupported"),
    Unsupported.on("generator.merge_stepwise_output", "skyrl-merge-unsupported"),
    Unsupported.on("generator.vision_language_generator", "skyrl-images-unsupported"),
    Unsupported.on("tandem.images", "skyrl-images-unsupported"),
    Unsupported.on("trainer.policy.model.lora.rank", "skyrl-adapter-unsupported"),
    *(
        Unsupported.on(key, "skyrl-setting-untested", unproven=unproven)
        for key, unproven in (
            (f"{_ENGINE}enable_pd", "engine"),
            (f"{_ENGINE}speculative_config", "engine"),
            (f"{_ENGINE}enable_return_routed_experts", "engine"),
            (f"{_ENGINE}enable_return_sample_support_set", "engine"),
            (f"{_ENGINE}offload_kv_for_weight_sync", "engine"),
            ("trainer.mtp.enabled", "engine"),
            ("trainer.fully_async.sample_full_batch", "asynchronous"),
        )
    ),
    Unsupported.untested(
        "trainer.algorithm.dynamic_sampling.type", (None, "filter"), "dynamic_sampling"
    ),
    Unsupported.untested("trainer.strategy", ("fsdp", "fsdp2"), "strategy"),
    Unsupported.untested("trainer.algorithm.advantage_estimator", SOUND_ESTIMATORS, "estimator"),
    Unsupported.untested("trainer.algorithm.policy_loss_type", SOUND_LOSSES, "loss"),
)


class SkyRLSettings(TrainerRun):
    """A run of SkyRL. All settings are known when its command has read them."""

    package = "skyrl"
    unsupported = _UNSUPPORTED
    unproven = UNPROVEN

    @classmethod
    def of(cls, cfg: SkyRLTrainConfig) -> SkyRLSettings:
        """cfg: SkyRL's settings, by whose dotted names the table has them."""
        prefix, passed_on = "generator.sampling_params", cfg.generator.sampling_params
        sampled = {f"{prefix}.{name}": value for name, value in vars(passed_on).items()}
        del sampled[f"{prefix}.temperature"]  # the trainer's
        additional = passed_on.additional_kwargs or {}
        return cls(
            cls.attributes(cfg),
            cfg.generator.inference_engine.engine_init_kwargs.get,
            cfg.trainer.policy.model.path,
            resumes=False,  # SkyRL finds its checkpoint after it has loaded the model
            sampling=sampled | {f"additional_kwargs.{n}": value for n, value in additional.items()},
            check_adapter=None,  # the table rejects every one
        )


def warn_of_colocation(cfg: SkyRLTrainConfig) -> None:
    """Write to the log that engines on the trainer's own GPUs were never run, where a run has them.

    cfg: SkyRL's settings.
    """
    if cfg.trainer.placement.colocate_all:
        print(
            "WARNING: trainer.placement.colocate_all=true, SkyRL's default: engines that share the "
            "trainer's GPUs, sleep, and receive weights by CUDA IPC were never run with tandem. "
            "Batches are checked as usual; compare policy/rollout_train_logprobs_abs_diff_mean "
            "with a run of colocate_all=false before a long one.",
            file=sys.stderr,
            flush=True,
        )
