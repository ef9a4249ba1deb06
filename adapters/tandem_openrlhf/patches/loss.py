"""The junior-imitation term in OpenRLHF's loss: loaded only if ``lambda_jun`` is above 0.

These patches can be removed once OpenRLHF lets plugins add fields to experiences and define their
own loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, make_dataclass
from itertools import tee
from typing import TYPE_CHECKING, Any

from tandem_openrlhf.batch import JUNIOR_MASK
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.patching.wrapping import replaced, wrap_once
from tandem_plugin.training.command import running_config
from tandem_plugin.training.imitation import imitation_loss

if TYPE_CHECKING:
    from openrlhf.trainer.ppo_utils.experience import Experience
    from openrlhf.utils.deepspeed import DeepspeedStrategy
    from torch import Tensor

_POLICY = "openrlhf.trainer.ray.ppo_actor"

TOKENS = "tandem_junior_tokens"
"""The attribute of a micro-batch for the number of tokens to imitate in its optimizer step."""


def give_experiences_a_junior_mask(module: Any) -> None:
    """Let experiences carry the tokens to imitate.

    Touches: ``Experience``, before other modules import it from here: a subclass with one more
    field, which OpenRLHF splits, pads and batches like its own masks.
    """
    if not hasattr(module.Experience, JUNIOR_MASK):
        junior_mask = (JUNIOR_MASK, Any, module.tensor_field("step", default=None))
        module.Experience = make_dataclass(
            "Experience",
            [junior_mask],
            bases=(module.Experience,),
            namespace={"__module__": module.__name__, "__doc__": module.Experience.__doc__},
        )


def counted_windows(
    windows: Callable[..., Iterable[Any]],
    micro_batches: Iterable[Any],
    strategy: DeepspeedStrategy,
    size: int,
    mask_of: Callable[[Any], Any],
) -> Iterator[Any]:
    """OpenRLHF's micro-batches with their normalizers and their step's tokens to imitate.

    Touches: ``iter_grad_accum_global_norm`` (windows), called once with its own mask and once with
    the junior's.
    """
    seen, ours = tee(micro_batches)
    counts = windows(ours, strategy, size, lambda item: getattr(item, JUNIOR_MASK))
    for (item, info), (_, count) in zip(
        windows(seen, strategy, size, mask_of), counts, strict=True
    ):
        setattr(item, TOKENS, count["batch_num_tokens"])
        yield item, info


@dataclass(slots=True)
class Imitation:
    """The term of one micro-batch, between OpenRLHF's forward and backward pass.

    mask: 0 or 1 ``[rows, actions]``. tokens: to imitate in the whole optimizer step, over all
    ranks.
    """

    weight: float
    mask: Tensor
    tokens: Tensor
    ranks: int
    log_probs: Tensor | None = None
    metrics: dict[str, Tensor] = field(default_factory=dict)
    """The term without its weight, by its name in the log, once the backward pass took it."""

    def forward(
        self,
        original: Callable[..., Any],
        sequences: Tensor,
        mask: Tensor,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        """The actor's forward pass; also keeps the log-probabilities of what the junior wrote."""
        log_probs, output = original(
            sequences, mask.bool() | self.mask.bool(), *arguments, **options
        )
        self.log_probs = log_probs
        return log_probs * mask.float(), output

    def backward(
        self, original: Callable[..., Any], loss: Tensor, *arguments: Any, **options: Any
    ) -> Any:
        """The backward pass of the loss with the weighted term.

        Raises :class:`EngineError` without a forward pass.
        """
        if self.log_probs is None:
            raise EngineError("openrlhf-junior-logprobs-missing", lambda_jun=self.weight)
        term, self.metrics = imitation_loss(self.log_probs, self.mask, self.tokens, self.ranks)
        return original(loss + self.weight * term, *arguments, **options)


class ImitatingTrainer(Mixin):
    """Adds the term to the loss and the metrics of every micro-batch.

    Touches: ``ActorPPOTrainer.training_step``, and while it runs the methods of its objects by
    which it computes log-probabilities, zero outside the mask, and spends the loss.
    """

    def training_step(
        self, experience: Experience, kl_ctl: float, step: int, *arguments: Any
    ) -> Any:
        imitation = self._tandem_imitation(experience)
        with (
            replaced(self.actor, "forward", imitation.forward),
            replaced(self.strategy, "backward", imitation.backward),
        ):
            status = super().training_step(experience, kl_ctl, step, *arguments)
        if not imitation.metrics:
            raise EngineError("openrlhf-imitation-term-missing", lambda_jun=imitation.weight)
        status["metrics"] |= imitation.metrics
        status["weights"] |= dict.fromkeys(imitation.metrics, "sample")
        return status

    def _tandem_imitation(self, experience: Experience) -> Imitation:
        from openrlhf.utils.loss_utils import get_loss_batch_info

        mask, tokens = getattr(experience, JUNIOR_MASK), getattr(experience, TOKENS)
        info = get_loss_batch_info(
            self.strategy, mask, batch_num_tokens=tokens, global_batch_size=1
        )
        return Imitation(running_config().lambda_jun, mask, tokens, info["dp_size"])


PATCHES: tuple[tuple[str, Callable[[Any], None]], ...] = (
    ("openrlhf.trainer.ppo_utils.experience", give_experiences_a_junior_mask),
    (_POLICY, lambda its: wrap_once(its, "iter_grad_accum_global_norm", counted_windows)),
    (_POLICY, ImitatingTrainer.tandem_in_place_of("ActorPPOTrainer")),
)
