"""Training: every batch is checked, masks have holes, and some responses no trained token."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tandem_openrlhf.presence import check_parts, confirm_at_start
from tandem_openrlhf.refusals import check_run
from tandem_openrlhf.trainer import TandemTrainer
from tandem_plugin.patching.subclasses import Patch, in_place_of
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import running_config

__all__ = ["PATCHES", "train_on_masks_with_holes"]

_NO_TOKENS = 1e-30
"""Stands for no trained token where OpenRLHF divides by their number: it changes no other sum."""


@in_place_of("RemoteExperienceMaker")
def admit_batches(original: Any) -> type:
    """Check every batch before anything is computed from it, and log its metrics with the step's.

    Touches: ``RemoteExperienceMaker``: ``__init__`` and ``make_experience_batch``, through which
    both trainers take their samples. OpenRLHF logs the mean over responses of every number in an
    experience's ``info``. Goes when: OpenRLHF offers plugins a hook on batches and metrics.
    """

    class Maker(original):  # type: ignore[misc]
        def __init__(self, *rest: Any, **more: Any) -> None:
            super().__init__(*rest, **more)
            config = running_config()
            check_run(self.args, config)
            self.tandem = TandemTrainer.start(config, self.tokenizer, self.args)

        def make_experience_batch(self, rollout_samples: Any) -> Any:
            import torch

            self.tandem.ask_for_drafts()
            self.tandem.admit(rollout_samples)
            experiences = super().make_experience_batch(rollout_samples)
            for experience in experiences:
                for name, value in self.tandem.metrics.items():
                    # The same for every response, so that their mean is the batch's value.
                    experience.info[name] = torch.full((len(experience.sequences),), value)
            return experiences

    return Maker


@in_place_of("PPOTrainer", confirm_at_start)
def watch_synchronous_trainer(original: Any) -> type:
    """Go on numbering where a checkpoint or a step ended; let the batches' check know the engines.

    Touches: ``PPOTrainer``: ``__init__``, ``init_checkpoint_states`` and ``train_step``. Goes when:
    OpenRLHF offers plugins hooks on steps.
    """

    class Trainer(original):  # type: ignore[misc]
        def __init__(self, *rest: Any, **more: Any) -> None:
            super().__init__(*rest, **more)
            check_parts(self.samples_generator, self.experience_maker)
            self.experience_maker.tandem.engines = self.vllm_engines

        def init_checkpoint_states(self) -> Any:
            states = super().init_checkpoint_states()
            numbering = self.samples_generator.numbering
            numbering.next_prompt = int(states["total_consumed_prompts"])
            numbering.step = int(states["global_step"])
            return states

        def train_step(self, *rest: Any, **more: Any) -> Any:
            status, step = super().train_step(*rest, **more)
            self.samples_generator.numbering.step = int(step)
            return status, step

    return Trainer


@in_place_of("TrainingActor", confirm_at_start)
def watch_asynchronous_trainer(original: Any) -> type:
    """Let the batches' check of an asynchronous run know the engines.

    Touches: ``TrainingActor.__init__``. Goes when: :func:`watch_synchronous_trainer` does.
    """

    class TrainingActor(original):  # type: ignore[misc]
        def __init__(self, *rest: Any, **more: Any) -> None:
            super().__init__(*rest, **more)
            check_parts(self.experience_maker)
            self.experience_maker.tandem.engines = self.vllm_engines

    return TrainingActor


@in_place_of("ActorPPOTrainer")
def train_on_masks_with_holes(original: Any) -> type:
    """Let optimizer steps and micro-batches without a trained token weigh nothing.

    Touches: ``ActorPPOTrainer.training_step``: OpenRLHF divides losses by the optimizer step's
    number of trained tokens or responses, which comes with the call or is looked up in it, and
    metrics by the micro-batch's; and ``__init__``, which opens the group for weights before it
    looks at the engines, and would wait five minutes for one that could not start. Goes when:
    OpenRLHF takes empty masks, and waits for its engines before it opens that group.
    """

    class Trainer(original):  # type: ignore[misc]
        def __init__(self, *rest: Any, vllm_engines: Any = None, **more: Any) -> None:
            import ray

            ray.get([one.get_num_unfinished_requests.remote() for one in vllm_engines or ()])
            super().__init__(*rest, vllm_engines=vllm_engines, **more)

        def training_step(
            self, experience: Any, kl_ctl: float, step: int, loss_batch_info: Any = None
        ) -> Any:
            if loss_batch_info is None:
                from openrlhf.utils.loss_utils import get_loss_batch_info

                loss_batch_info = get_loss_batch_info(
                    self.strategy,
                    experience.action_mask,
                    replay_buffer=self.replay_buffer,
                    step=step,
                    dynamic_batch=self.args.train.dynamic_batch_enable,
                )
            counts = {name: count + (count == 0) for name, count in loss_batch_info.items()}
            status = super().training_step(experience, kl_ctl, step, counts)
            status["num_action_tokens"] = status["num_action_tokens"] or _NO_TOKENS
            return status

    return Trainer


def confirm(*names: str) -> Patch:
    """Let actors that tandem leaves as they are begin only in workers that were made ready.

    Touches: ``__init__`` of the classes behind these names. Goes when:
    :func:`~tandem_openrlhf.presence.confirm_at_start` does.
    """

    def patch(module: ModuleType) -> None:
        for name in names:
            confirm_at_start(getattr(module, name).__ray_metadata__.modified_class)

    return patch


def average_over_no_tokens(module: ModuleType) -> None:
    """Let the mean over no token be 0, not "not a number".

    Touches: ``masked_mean``, before other modules take it from here. Why: a response that the
    junior wrote alone has an empty mask, which OpenRLHF never has. Means over any token are as they
    were. Goes when: OpenRLHF takes empty masks.
    """

    def masked_mean(original: Callable[..., Any], tensor: Any, mask: Any, dim: Any = None) -> Any:
        if mask is None:
            return original(tensor, mask, dim)
        return (tensor * mask).sum(dim=dim) / mask.sum(dim=dim).clamp(min=1)

    wrap_once(module, "masked_mean", masked_mean)


PATCHES: tuple[tuple[str, Patch], ...] = (
    ("openrlhf.trainer.ppo_utils.experience_maker", admit_batches),
    ("openrlhf.trainer.ppo_trainer", watch_synchronous_trainer),
    ("openrlhf.trainer.ppo_trainer_async", watch_asynchronous_trainer),
    ("openrlhf.trainer.ppo_trainer_async", confirm("PPOTrainerAsync", "VLLMLock")),
    ("openrlhf.trainer.ray.ppo_actor", confirm("PolicyModelActor")),
    ("openrlhf.trainer.ray.ppo_actor", train_on_masks_with_holes),
    ("openrlhf.models.utils", average_over_no_tokens),
)
