"""TRL's ``RLOOTrainer`` in tandem: ``TandemRLOOTrainer(rollout_func=tandem_rollouts(...), ...)``.

This trainer takes no rollout function and has no mask of the tokens to train: its completion mask
is the attention mask as well, so that without the junior's tokens the model would not see them. It
only ever sums a response's log-probabilities, in the loss, the ratio and the KL term: zeros at the
junior's tokens leave the senior's alone. Its metrics ``entropy`` and ``kl`` become means over all
tokens, the junior's as zeros.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trl import RLOOTrainer

from tandem_plugin.training.calls import Response
from tandem_trl.rollouts import TandemRollouts
from tandem_trl.start import RLOOSettings

_ARGUMENTS = inspect.signature(RLOOTrainer.__init__)

SENIOR = "tool_mask"
"""The tokens to train, as ``GRPOTrainer`` names them in what it shuffles and splits for its losses:
int64 ``[rows, length]``. ``RLOOTrainer`` has no such name, and keeps it."""


class TandemRLOOTrainer(RLOOTrainer):  # type: ignore[misc]
    """An ``RLOOTrainer`` that learns from the senior's tokens alone (TRL 1.16)."""

    def __init__(self, *args: Any, rollout_func: TandemRollouts, **options: Any) -> None:
        """rollout_func: made for this trainer. Others: of ``RLOOTrainer``.

        Raises :class:`EngineError` if the engine that TRL starts is not in tandem.
        """
        self._rollouts, self._senior = rollout_func, torch.zeros(0, 0, dtype=torch.long)
        bound = _ARGUMENTS.bind_partial(self, *args, **options).arguments
        rollout_func.check(RLOOSettings, bound.get("args"), bound.get("model"), type(self))
        super().__init__(*args, **options)

    def _generate_single_turn(self, prompt_ids: Any, *arguments: Any) -> Any:
        if not self._rollouts.has_begun:
            self._rollouts.begin(RLOOSettings, self)
        prompts = self._rollouts.begin_batch(prompt_ids)
        completions = super()._generate_single_turn(prompts, *arguments)
        finished = self._rollouts.finish_batch(
            [Response(*pair, [1] * len(pair[1])) for pair in zip(prompts, completions, strict=True)]
        )
        masks = [torch.tensor(response.mask).long() for response in finished]
        self._senior = pad_sequence(masks, batch_first=True)
        return completions

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        return {**output, SENIOR: self._seniors(output["completion_mask"])}

    def _get_per_token_logps_and_entropies(self, *args: Any, **options: Any) -> Any:
        log_probs, entropies, *arguments = super()._get_per_token_logps_and_entropies(
            *args, **options
        )
        mask = self._seniors(log_probs)
        return (log_probs * mask, None if entropies is None else entropies * mask, *arguments)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        self._senior = inputs[SENIOR]
        return super().compute_loss(model, inputs, *args, **options)

    def _seniors(self, like: torch.Tensor) -> torch.Tensor:
        """The mask, as wide as a tensor and of its type: TRL may pad further."""
        mask = torch.zeros_like(like)
        mask[:, : self._senior.shape[1]] = self._senior.to(mask)
        return mask
