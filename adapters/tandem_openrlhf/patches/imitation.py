"""The junior-imitation term, in OpenRLHF's loss: loaded only where ``lambda_jun`` is above 0.

None of these goes before OpenRLHF lets plugins add fields to experiences and a loss of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import make_dataclass
from types import ModuleType
from typing import Any

from tandem_openrlhf.imitation import TOKENS, Imitation, counted_windows, dynamic_counts
from tandem_openrlhf.trajectory import FACTS
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.subclasses import Patch, in_place_of
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import running_config
from tandem_plugin.training.fields import JUNIOR_MASK
from tandem_plugin.training.imitation import IMITATION_METRIC

__all__ = ["PATCHES"]


@in_place_of("Experience")
def give_experiences_a_junior_mask(original: Any) -> type:
    """Let experiences carry the tokens to imitate.

    Touches: ``Experience``, before other modules take it from here: a subclass with one field more,
    which OpenRLHF splits, pads and batches like its own masks.
    """
    import torch
    from openrlhf.trainer.ppo_utils.experience import tensor_field

    field = tensor_field("step", default=None)
    return make_dataclass("Experience", [(JUNIOR_MASK, torch.Tensor, field)], bases=(original,))


@in_place_of("SamplesGenerator")
def keep_the_juniors_tokens(original: Any) -> type:
    """Say of every experience which tokens the senior is to imitate.

    Touches: ``SamplesGenerator._process_response_into_experience``.
    """

    class Generator(original):  # type: ignore[misc]
        def _process_response_into_experience(self, response: Any, **more: Any) -> Any:
            import torch

            experience = super()._process_response_into_experience(response, **more)
            facts = getattr(experience, FACTS, None)
            if facts is not None:
                junior = facts.junior_mask(experience.action_mask[0].bool().numpy())
                setattr(experience, JUNIOR_MASK, torch.from_numpy(junior).long().unsqueeze(0))
            return experience

    return Generator


def count_the_juniors_tokens(module: ModuleType) -> None:
    """Count the tokens to imitate of every optimizer step.

    Touches: ``iter_grad_accum_global_norm`` as this module has it.
    """
    wrap_once(module, "iter_grad_accum_global_norm", counted_windows)


@in_place_of("ActorPPOTrainer")
def imitate_the_junior(original: Any) -> type:
    """Let every micro-batch have the term in its loss and in its metrics.

    Touches: ``ActorPPOTrainer.training_step``, and while it runs the methods of its own objects by
    which it computes log-probabilities, zero outside the mask, and spends the loss.
    """

    class Trainer(original):  # type: ignore[misc]
        def training_step(self, experience: Any, kl_ctl: float, step: int, *rest: Any) -> Any:
            imitation = _imitation_of(self, experience, step)

            def forward(original: Any, sequences: Any, mask: Any, *rest: Any, **more: Any) -> Any:
                return imitation.widened(
                    lambda widened: original(sequences, widened, *rest, **more), mask
                )

            def backward(original: Any, loss: Any, *rest: Any, **more: Any) -> Any:
                return original(imitation.added_to(loss), *rest, **more)

            with (
                _replaced(self.actor, "forward", forward),
                _replaced(self.strategy, "backward", backward),
            ):
                status = super().training_step(experience, kl_ctl, step, *rest)
            if imitation.loss is None:
                raise EngineError(
                    "lambda_jun is above 0, but this optimizer step left the junior-imitation term "
                    "out: OpenRLHF's trainer is not what the adapter was tested with."
                )
            status["metrics"][IMITATION_METRIC] = imitation.loss.detach()
            status["weights"][IMITATION_METRIC] = "sample"
            return status

    return Trainer


def _imitation_of(trainer: Any, experience: Any, step: int) -> Imitation:
    from openrlhf.utils.loss_utils import get_loss_batch_info

    mask = getattr(experience, JUNIOR_MASK)
    if trainer.args.train.dynamic_batch_enable:
        if step == 0:  # of all of the replay buffer's micro-batches, which every rank begins now
            trainer.tandem_tokens = dynamic_counts(trainer.replay_buffer, _summed(trainer.strategy))
        tokens = trainer.tandem_tokens[step]
    else:
        tokens = getattr(experience, TOKENS)
    info = get_loss_batch_info(trainer.strategy, mask, batch_num_tokens=1, global_batch_size=1)
    return Imitation(running_config().lambda_jun, mask, tokens, info["dp_size"])


def _summed(strategy: Any) -> Callable[[list[float]], list[float]]:
    import torch

    def summed(numbers: list[float]) -> list[float]:
        counts = torch.tensor(numbers, device=torch.cuda.current_device())
        torch.distributed.all_reduce(counts, group=strategy.ds_device_mesh["dp"].get_group())
        return [float(count) for count in counts]

    return summed


@contextmanager
def _replaced(owner: Any, name: str, wrapper: Callable[..., Any]) -> Iterator[None]:
    """Let an object's own method be ``wrapper(method, ...)`` within."""
    is_own = name in vars(owner)  # not its class's
    method = getattr(owner, name)
    setattr(owner, name, functools.partial(wrapper, method))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, method)
        else:
            delattr(owner, name)


PATCHES: tuple[tuple[str, Patch], ...] = (
    ("openrlhf.trainer.ppo_utils.experience", give_experiences_a_junior_mask),
    ("openrlhf.trainer.ppo_utils.samples_generator", keep_the_juniors_tokens),
    ("openrlhf.trainer.ray.ppo_actor", count_the_juniors_tokens),
    ("openrlhf.trainer.ray.ppo_actor", imitate_the_junior),
)
