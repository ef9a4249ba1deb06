"""Training: every batch is checked, masks have holes, and some responses train no token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_openrlhf.batch import OpenRLHFRun
from tandem_openrlhf.patches.generation import Generator
from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.command import running_config

if TYPE_CHECKING:
    from openrlhf.trainer.ppo_utils.experience import Experience
    from torch import Tensor

_NO_TOKENS = 1e-30
"""Replaces 0 when OpenRLHF divides by the number of trained tokens; changes no other sum."""


class Maker(Mixin):
    """Checks every batch before anything is computed from it; adds its metrics to the step's log.

    Touches: ``RemoteExperienceMaker``: ``__init__``, ``make_experience_batch`` and
    ``get_advantages_and_returns``, which counts masked tokens as steps with the value 0. Goes when:
    OpenRLHF offers plugins a hook on batches and metrics, and its gae skips masked tokens.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        rules = TandemRules.from_tokenizer(running_config(), self.tokenizer)
        self.tandem = OpenRLHFRun.start(rules, self.args)

    def make_experience_batch(self, rollout_samples: Sequence[Experience]) -> Any:
        import torch

        metrics = {**self.tandem.admit(rollout_samples), **self.tandem_engine_metrics()}
        experiences = super().make_experience_batch(rollout_samples)
        self.tandem.check_experiences(experiences)
        for experience in experiences:
            for name, value in metrics.items():
                # The same for every response, so that their mean is the batch's value.
                experience.info[name] = torch.full((len(experience.sequences),), value)
        return experiences

    def tandem_engine_metrics(self) -> dict[str, float]:
        """The metrics of what the engines counted since the last call."""
        return self.tandem.metrics_of_actors(self.tandem.engines)

    def get_advantages_and_returns(
        self, values: Any, rewards: Any, action_mask: Any, *arguments: Any, **options: Any
    ) -> Any:
        """gae of the trained tokens alone: all else is the environment.

        values, rewards, action_mask: ``[responses, tokens]``. Elsewhere both results are 0.
        """
        order = action_mask.long().argsort(dim=1, descending=True, stable=True)
        packed = (tensor.gather(1, order) for tensor in (values, rewards, action_mask))
        advantages, returns = super().get_advantages_and_returns(*packed, *arguments, **options)
        place = order.argsort(dim=1)
        return advantages.gather(1, place), returns.gather(1, place)


class Trainer(Mixin):
    """Tells the batch check about the engines, dumps each step's responses, and notes settings.

    Touches: ``__init__``, ``fit``, ``train_step``, ``save_logs_and_checkpoints`` and
    ``save_best_checkpoint`` of ``PPOTrainer`` and of ``TrainingActor``, an asynchronous run's. Goes
    when: OpenRLHF offers plugins hooks on steps and checkpoints, and dumps responses.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        Maker.tandem_check(self.experience_maker)
        self.experience_maker.tandem.engines = self.vllm_engines

    def train_step(
        self, rollout_samples: Sequence[Experience], *arguments: Any, **options: Any
    ) -> Any:
        status, step = super().train_step(rollout_samples, *arguments, **options)
        tandem, decode = self.experience_maker.tandem, self.tokenizer.decode
        tandem.dump(rollout_samples, int(step), partial(decode, skip_special_tokens=True))
        return status, step

    def fit(self, global_step: int = 0) -> None:
        self._tandem_note()  # while both models are what the engines have
        if global_step:
            self._tandem_check_resumed()
        super().fit(global_step)
        self._tandem_note().write(self.args.ckpt.output_dir)  # where the last senior is exported to

    def save_logs_and_checkpoints(self, global_step: int, *arguments: Any, **options: Any) -> None:
        super().save_logs_and_checkpoints(global_step, *arguments, **options)
        self._tandem_note_checkpoint(f"global_step{global_step}")

    def save_best_checkpoint(self, metrics: Any, global_step: int, *arguments: Any) -> None:
        super().save_best_checkpoint(metrics, global_step, *arguments)
        self._tandem_note_checkpoint(f"best_global_step{global_step}")

    def _tandem_note(self) -> Any:
        """What the run's checkpoints say of it: :meth:`TandemRun.note`."""
        return self.experience_maker.tandem.note(str(self.args.actor.model_name_or_path))

    def _tandem_note_checkpoint(self, tag: str) -> None:
        """Put the run's settings into a checkpoint and its export, if they were saved."""
        place = Path(self.args.ckpt.path)
        folders = (place / "_actor" / tag, place / f"{tag}_hf")
        self._tandem_note().write(*(folder for folder in folders if folder.is_dir()))

    def _tandem_check_resumed(self) -> None:
        """Compare the run's settings with those of the checkpoint that it resumes."""
        actor = Path(self.args.ckpt.path) / "_actor"
        latest = actor / "latest"  # DeepSpeed's
        tag = latest.read_text().strip() if latest.exists() else ""
        self._tandem_note().check_resumed(actor / tag)


class SynchronousTrainer(Trainer):
    """Resumes numbering at a checkpoint or after a step.

    Touches: ``PPOTrainer``: ``init_checkpoint_states``, ``evaluate``, and its steps. Goes when:
    :class:`Trainer` does.
    """

    def init_checkpoint_states(self) -> Any:
        Generator.tandem_check(self.samples_generator)
        states = super().init_checkpoint_states()
        if states["global_step"]:
            self._tandem_check_resumed()
        numbering = self.samples_generator.numbering
        numbering.next_prompt = int(states["total_consumed_prompts"])
        numbering.step = int(states["global_step"]) + 1
        return states

    def evaluate(self, *arguments: Any, **options: Any) -> Any:
        """Leave out of a step's metrics what the engines counted in an evaluation."""
        logs = super().evaluate(*arguments, **options)
        self.experience_maker.tandem_engine_metrics()
        return logs

    def train_step(self, *arguments: Any, **options: Any) -> Any:
        status, step = super().train_step(*arguments, **options)
        self.samples_generator.numbering.step = int(step) + 1
        return status, step


def counts_above_0(trainer: Any, experience: Any, step: int, counts: Any = None) -> dict[str, Any]:
    """What a trainer of OpenRLHF's divides the losses of an optimizer step by; 1 in place of 0.

    counts: OpenRLHF's; None lets its own function count, as its trainer would.
    """
    if counts is None:
        from openrlhf.utils.loss_utils import get_loss_batch_info

        counts = get_loss_batch_info(
            trainer.strategy,
            experience.action_mask,
            replay_buffer=trainer.replay_buffer,
            step=step,
            dynamic_batch=trainer.args.train.dynamic_batch_enable,
        )
    return {name: count + (count == 0) for name, count in counts.items()}


class MaskedTrainer(Mixin):
    """Gives optimizer steps and micro-batches without a trained token zero weight.

    Touches: ``ActorPPOTrainer.training_step``, which divides losses by the optimizer step's number
    of trained tokens or responses, and metrics by the micro-batch's; and ``__init__``, which would
    wait five minutes for an engine that could not start. Goes when: OpenRLHF accepts empty masks,
    and waits for its engines first.
    """

    def __init__(self, *arguments: Any, vllm_engines: Any = None, **options: Any) -> None:
        import ray

        ray.get([engine.get_num_unfinished_requests.remote() for engine in vllm_engines or ()])
        super().__init__(*arguments, vllm_engines=vllm_engines, **options)

    def training_step(
        self, experience: Experience, kl_ctl: float, step: int, loss_batch_info: Any = None
    ) -> Any:
        counts = counts_above_0(self, experience, step, loss_batch_info)
        status = super().training_step(experience, kl_ctl, step, counts)
        status["num_action_tokens"] = status["num_action_tokens"] or _NO_TOKENS
        return status


class Policy(Mixin):
    """Trains the senior only with tandem's trainer.

    Touches: ``PolicyModelActor.init_model_from_pretrained``, which creates its trainer. Goes when:
    :class:`MaskedTrainer` does.
    """

    def init_model_from_pretrained(self, *arguments: Any, **options: Any) -> None:
        super().init_model_from_pretrained(*arguments, **options)
        MaskedTrainer.tandem_check(self.trainer)


class MaskedCritic(Mixin):
    """Gives optimizer steps without a trained token zero weight.

    Touches: ``CriticPPOTrainer.training_step``. Goes when: OpenRLHF accepts empty masks.
    """

    def training_step(self, experience: Any, step: int, loss_batch_info: Any = None) -> Any:
        counts = counts_above_0(self, experience, step, loss_batch_info)
        return super().training_step(experience, step, counts)


class Critic(Mixin):
    """Trains the critic only with tandem's trainer.

    Touches: ``CriticModelActor.init_model_from_pretrained``, which creates its trainer. Goes when:
    :class:`MaskedCritic` does.
    """

    def init_model_from_pretrained(self, *arguments: Any, **options: Any) -> None:
        super().init_model_from_pretrained(*arguments, **options)
        MaskedCritic.tandem_check(self.trainer)


def masked_mean(
    original: Callable[..., Any], tensor: Tensor, mask: Tensor | None, dim: int | None = None
) -> Any:
    """The mean over no tokens is 0 instead of NaN.

    Touches: ``masked_mean``, before other modules import it. Why: a response that the junior wrote
    alone has an empty mask. Goes when: OpenRLHF accepts empty masks.
    """
    if mask is None:
        return original(tensor, mask, dim)
    return (tensor * mask).sum(dim=dim) / mask.sum(dim=dim).clamp(min=1)
