"""The junior-imitation term on its way through OpenRLHF's optimizer step.

OpenRLHF's actor gives log-probabilities of masked-in tokens only, and computes and spends its loss
in one method. So one object stands at both ends of that method: the forward pass leaves the
log-probabilities of the junior's tokens with it, and the backward pass takes the term from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import tee
from typing import Any

from tandem_plugin.errors import EngineError
from tandem_plugin.training.fields import JUNIOR_MASK
from tandem_plugin.training.imitation import imitation_loss

__all__ = ["TOKENS", "Imitation", "counted_windows", "dynamic_counts"]

TOKENS = "tandem_junior_tokens"
"""The attribute of a micro-batch for the number of tokens to imitate in its optimizer step."""


class Imitation:
    """One micro-batch: what is to be imitated, and its log-probabilities once they are computed.

    mask: 0 or 1 ``[rows, actions]``. tokens: how many there are in the whole optimizer step.
    """

    def __init__(self, weight: float, mask: Any, tokens: Any, ranks: int) -> None:
        self.weight = weight
        self.mask = mask
        self._tokens = tokens
        self._ranks = ranks
        self._log_probs: Any = None
        self.loss: Any = None
        """The term without its weight, once the backward pass took it."""

    def widened(self, forward: Callable[[Any], tuple[Any, Any]], action_mask: Any) -> Any:
        """What ``forward(mask)`` gives for ``action_mask``, having kept what the junior wrote."""
        log_probs, output = forward(action_mask.bool() | self.mask.bool())
        self._log_probs = log_probs
        return log_probs * action_mask.float(), output

    def added_to(self, loss: Any) -> Any:
        """The loss with the weighted term. Raises :class:`EngineError` without a forward pass."""
        if self._log_probs is None:
            raise EngineError(
                "lambda_jun is above 0, but the actor's forward pass left no log-probabilities of "
                "the junior's tokens: OpenRLHF's trainer is not what the adapter was tested with."
            )
        self.loss = imitation_loss(self._log_probs, self.mask, self._tokens, self._ranks)
        return loss + self.weight * self.loss


def counted_windows(
    windows: Callable[..., Iterable[Any]],
    micro_batches: Iterable[Any],
    strategy: Any,
    size: int,
    mask_of: Callable[[Any], Any],
) -> Iterator[Any]:
    """OpenRLHF's micro-batches with their normalizers, each told the tokens of its step to imitate.

    windows: OpenRLHF's ``iter_grad_accum_global_norm``, which is asked once for its own mask and
    once for the junior's, so that both are counted over the same steps and ranks.
    """
    theirs, ours = tee(micro_batches)
    counts = windows(ours, strategy, size, lambda item: getattr(item, JUNIOR_MASK))
    for (item, info), (_, count) in zip(
        windows(theirs, strategy, size, mask_of), counts, strict=True
    ):
        setattr(item, TOKENS, count["batch_num_tokens"])
        yield item, info


def dynamic_counts(buffer: Any, all_reduce: Callable[[Any], Any]) -> list[float]:
    """The tokens to imitate of each dynamic micro-batch's optimizer step, over all ranks.

    buffer: OpenRLHF's ``NaiveReplayBuffer`` after ``setup_dynamic_batch``. all_reduce: the sum of a
    list of numbers over the ranks.
    """
    totals: list[float] = []
    total = 0.0
    steps: list[int] = []
    for indices, is_last in zip(buffer.dynamic_indices, buffer.dynamic_optimizer_step, strict=True):
        steps.append(len(totals))
        total += sum(float(getattr(buffer.items[i], JUNIOR_MASK).sum()) for i in indices)
        if is_last:
            totals.append(total)
            total = 0.0
    summed = all_reduce(totals)
    return [float(summed[step]) for step in steps]
