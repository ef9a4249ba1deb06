"""All patches of OpenRLHF 0.11, by area, applied only in the processes of a tandem run.

Those for ``lambda_jun`` are loaded only if it is above 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_openrlhf.patches import generation, training
from tandem_openrlhf.start import OpenRLHFCommand
from tandem_plugin.config import TandemConfig
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import running_config
from tandem_plugin.training.ray_workers import RayJob

__all__ = ["JOB", "PATCHES", "apply", "patches_of", "put"]

_ENGINE = "openrlhf.trainer.ray.vllm_engine"
_SAMPLES = "openrlhf.trainer.ppo_utils.samples_generator"
_MAKER = "openrlhf.trainer.ppo_utils.experience_maker"
_TRAINER = "openrlhf.trainer.ppo_trainer"
_ASYNC = "openrlhf.trainer.ppo_trainer_async"
_POLICY = "openrlhf.trainer.ray.ppo_actor"
_CRITIC = "openrlhf.trainer.ray.ppo_critic"
_MODELS = "openrlhf.models.utils"

JOB = RayJob(
    "OpenRLHF", 'Install OpenRLHF 0.11.2: pip install --no-deps "openrlhf==0.11.2".', __name__
)
"""A run's."""

_actor = JOB.actor

PATCHES: tuple[tuple[str, Callable[[Any], None]], ...] = (
    (_ENGINE, _actor("RolloutRayActor", generation.Engine)),
    (_SAMPLES, generation.Generator.tandem_in_place_of("SamplesGenerator")),
    (_MAKER, training.Maker.tandem_in_place_of("RemoteExperienceMaker")),
    (_TRAINER, _actor("PPOTrainer", training.SynchronousTrainer)),
    (_TRAINER, lambda its: wrap_once(its, "compute_eval_metrics", generation.named_metrics)),
    (_ASYNC, _actor("GenerateSamplesActor", generation.ResumedGenerator)),
    (_ASYNC, _actor("TrainingActor", training.Trainer)),
    (_ASYNC, _actor("PPOTrainerAsync")),
    (_ASYNC, _actor("VLLMLock")),
    (_POLICY, training.MaskedTrainer.tandem_in_place_of("ActorPPOTrainer")),
    (_POLICY, _actor("PolicyModelActor", training.Policy)),
    (_CRITIC, training.MaskedCritic.tandem_in_place_of("CriticPPOTrainer")),
    (_CRITIC, _actor("CriticModelActor", training.Critic)),
    (_MODELS, lambda its: wrap_once(its, "masked_mean", training.masked_mean)),
)
"""(module of OpenRLHF, patch to apply once it is imported), for every run: fourteen symbols."""


def apply() -> None:
    """Apply every patch in a worker process of a run; its node may have other versions.

    Repeatable. Raises :class:`ConfigError` for an OpenRLHF version that the adapter was not tested
    with, and like :func:`put`.
    """
    config = running_config()
    OpenRLHFCommand.begin(config)
    put(config)


def put(config: TandemConfig) -> None:
    """Apply every patch of a run, now or when its module is imported; repeatable.

    Raises :class:`EngineError` if a patched module is missing.
    """
    JOB.put(patches_of(config))


def patches_of(config: TandemConfig) -> tuple[tuple[str, Callable[[Any], None]], ...]:
    """The patches of a run with these settings, in the order of application."""
    if not config.lambda_jun:
        return PATCHES
    from tandem_openrlhf.patches import loss

    return PATCHES + loss.PATCHES
