"""Settings of SkyRL that are rejected in tandem, before any process starts.

The values listed as sound were tested with skyrl 0.4.0: the gradient of each combination is that of
a loop over the senior's tokens (``tests/conformance/test_losses_of_skyrl.py``).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.local_models import check_before_start
from tandem_plugin.training.checkpoint_note import check_start
from tandem_plugin.training.refusals import (
    Refusal,
    Settings,
    Unproven,
    check_refusals,
    check_settings,
    check_versions,
    is_on,
    untested,
)
from tandem_plugin.training.sampling import NEUTRAL, warn_of_changed_sampling
from tandem_skyrl.settings import value_of

if TYPE_CHECKING:
    from skyrl.train.config import SkyRLTrainConfig

SOUND_ESTIMATORS = ("grpo", "rloo", "maxrl", "reinforce++")

SOUND_LOSSES = (
    *("regular", "dual_clip", "gspo", "cispo", "sapo", "rollout_is", "dppo"),
    "importance_sampling",
)

UNPROVEN = {
    "asynchronous": "a part of the fully asynchronous trainer not tested with tandem",
    "dynamic_sampling": "dynamic sampling of another kind than filter",
    "engine": "an engine that SkyRL starts or syncs in a way not tested with tandem",
    "estimator": "an advantage estimator not tested with tandem",
    "loss": "a policy loss not tested with tandem",
    "strategy": "a training backend not tested with tandem",
    "version": "another series of SkyRL",
}
"""The names that ``tandem.unproven`` may contain, and their meanings."""

_ENGINE = "generator.inference_engine."
_MULTI_TURN = "generator.use_conversation_multi_turn"


def _adds_an_end(value: Any, run: Settings) -> bool:
    """Whether SkyRL trains an end of sequence that no model wrote: after a stop string, if all
    turns are one message."""
    phases = ("generator.sampling_params.stop", "generator.eval_sampling_params.stop")
    return not value and any(map(run, phases))


_REFUSALS = (
    Refusal("lambda_jun", is_on, "skyrl-imitation-unsupported"),
    Refusal("generator.batched", is_on, "skyrl-batched-unsupported"),
    Refusal("generator.merge_stepwise_output", is_on, "skyrl-merge-unsupported"),
    Refusal(_MULTI_TURN, _adds_an_end, "skyrl-stop-adds-token"),
    Refusal("generator.vision_language_generator", is_on, "skyrl-images-unsupported"),
    Refusal("trainer.policy.model.lora.rank", is_on, "skyrl-adapter-unsupported"),
    *(
        Refusal(key, is_on, "skyrl-setting-untested", unproven)
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
    untested("trainer.algorithm.dynamic_sampling.type", (None, "filter"), "dynamic_sampling"),
    untested("trainer.strategy", ("fsdp", "fsdp2"), "strategy"),
    untested("trainer.algorithm.advantage_estimator", SOUND_ESTIMATORS, "estimator"),
    untested("trainer.algorithm.policy_loss_type", SOUND_LOSSES, "loss"),
)


def check_run(cfg: SkyRLTrainConfig, tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` for the first setting that is incompatible with tandem.

    Writes warnings about what was not tested to the log.
    """
    unproven = Unproven(tandem, UNPROVEN)
    check_versions("skyrl", unproven)
    check_settings(tandem)

    def setting(key: str) -> Any:
        return tandem.lambda_jun if key == "lambda_jun" else value_of(cfg, key)

    check_refusals(_REFUSALS, setting, unproven)
    model = cfg.trainer.policy.model.path
    check_start(model or "", tandem)
    check_before_start(tandem, model, cfg.generator.inference_engine.engine_init_kwargs.get)
    unproven.log_warnings()
    _warn_of_colocation(cfg)
    sampling = cfg.generator.sampling_params
    names = [name for name in NEUTRAL if name != "temperature"]
    warn_of_changed_sampling(
        {f"generator.sampling_params.{name}": getattr(sampling, name, None) for name in names}
        | {f"additional_kwargs.{k}": v for k, v in (sampling.additional_kwargs or {}).items()}
    )


def _warn_of_colocation(cfg: SkyRLTrainConfig) -> None:
    if cfg.trainer.placement.colocate_all:
        print(
            "WARNING: trainer.placement.colocate_all=true, SkyRL's default: engines that share the "
            "trainer's GPUs, sleep, and receive weights by CUDA IPC were never run with tandem. "
            "Batches are checked as usual; compare policy/rollout_train_logprobs_abs_diff_mean "
            "with a run of colocate_all=false before a long one.",
            file=sys.stderr,
            flush=True,
        )
