"""How well each model predicts what the other one writes, measured during generation.

The runners report which rows of a step sampled, and the authors; the rest is common to both runners
and both modes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import torch

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.token_scores import TokenLog
from tandem_plugin.engine.tokenizer_check import engine_rules
from tandem_plugin.engine.wire import MeasureSums
from tandem_plugin.errors import EngineError


def token_scores(senior: torch.Tensor, junior: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Both models' log p of each token, and there their overlap, the senior's entropy and its KL to
    the junior: float32 ``[rows, 5]``.

    senior, junior: each model's own logits ``[rows, V]``, of any floating type; each is normalised
    over its own vocabulary, and a token that only one of them has adds nothing to overlap and KL.
    tokens: int64 ``[rows]``, ids that both have. The overlap is alpha = sum over v of
    min(p_sen(v), p_jun(v)), at temperature 1. Source: section 4.5 of the paper; Leviathan et al.
    (2023).
    """
    senior, junior = senior.float(), junior.float()
    senior_norm, junior_norm = _log_of_sum(senior), _log_of_sum(junior)
    shared = min(senior.shape[-1], junior.shape[-1])
    of_senior = senior - senior_norm.float()
    of_junior = junior[:, :shared] - junior_norm.float()
    probabilities = of_senior.exp()
    entropy = torch.special.entr(probabilities)
    probabilities, of_senior = probabilities[:, :shared], of_senior[:, :shared]
    # 0 where the senior never writes a token, whatever its logarithm.
    divergence = torch.where(probabilities > 0, probabilities * (of_senior - of_junior), 0.0)
    smaller = torch.minimum(probabilities, of_junior.exp_())
    column = tokens.long().clamp(0, shared - 1)[:, None]  # arbitrary for rows without a token
    scores = [
        senior.gather(1, column) - senior_norm,
        junior.gather(1, column) - junior_norm,
        *(
            terms.sum(dim=-1, keepdim=True, dtype=torch.float64)
            for terms in (smaller, entropy, divergence)
        ),
    ]
    return torch.cat(scores, dim=1).float()


def _log_of_sum(logits: torch.Tensor) -> torch.Tensor:
    """The difference between a row's logits and its log p: float64 ``[rows, 1]``.

    Exponentials are taken in float32 and summed in float64: torch's own float32 log_softmax is off
    by about 1e-5 over today's vocabularies.
    """
    largest = logits.amax(dim=-1, keepdim=True)
    total = (logits - largest).exp_().sum(dim=-1, keepdim=True, dtype=torch.float64)
    return largest + total.log_()


def totals(scores: torch.Tensor, authors: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    """The rows' contribution to the sums, in the order of :class:`MeasureSums`' fields: float64
    ``[7]``.

    scores: ``[rows, 5]``, as :func:`token_scores` has them. authors: bool ``[rows]``, true =
    senior. written: bool ``[rows]``; other rows are ignored, whatever their scores.
    """
    senior_log_prob, junior_log_prob, *of_senior = scores.double().unbind(1)
    senior, junior = written & authors, written & ~authors

    def total(of: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.where(of, values, 0.0).sum()

    return torch.stack(
        [
            senior.sum().double(),
            total(senior, -junior_log_prob),
            *(total(senior, values) for values in of_senior),
            junior.sum().double(),
            total(junior, -senior_log_prob),
        ]
    )


def measured_steps(every: int) -> Iterator[bool]:
    """Whether each step is measured: one of ``every`` consecutive ones, at random; 0 for none.

    At random, because the responses of a batch begin together: every sixty-fourth step would always
    measure the same positions of a response. The selection is the same in every process of an
    engine, and independent of its other random numbers.
    """
    generator = random.Random(0)
    while every:
        chosen = generator.randrange(every)
        yield from (step == chosen for step in range(every))
    while True:
        yield False


Head: TypeAlias = Callable[[torch.Tensor], "torch.Tensor | None"]
"""A model's own logits ``[rows, V]`` from its hidden states ``[rows, width]``; None on
tensor-parallel ranks that have no logits."""

_CHUNK_BYTES = 2**26
"""The maximum size of one model's logits of a chunk of rows, in float32 bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptStates:
    """Both models' hidden states ``[rows, width]`` that a step samples from."""

    senior: torch.Tensor
    junior: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class SampledRows:
    """The outcome of each row of a step."""

    tokens: torch.Tensor
    """int64 ``[rows]``; arbitrary if no token was written."""
    authors: torch.Tensor
    """bool ``[rows]``, true = senior."""
    written: torch.Tensor
    """bool ``[rows]``, whether the row's token is one of a request in tandem."""
    positions: torch.Tensor
    """int64 ``[rows]``, the token's position in its response."""
    names: Sequence[str | None] = ()
    """The name of each row's request, if its tokens' scores are to be kept."""


class Measures:
    """Measures the selected steps, on the device.

    The model keeps the hidden states of such a step when it computes logits (:meth:`is_due`,
    :meth:`keep`). The sampled tokens are known later, and then both models' heads run over the
    states once more (:meth:`add`). So it does not matter which logits sampling needed, or how it
    changed them.
    """

    def __init__(self, config: TandemConfig, vocabulary: int) -> None:
        self._rows = max(1, _CHUNK_BYTES // (4 * vocabulary))
        self._steps = measured_steps(1 if config.partner_logprobs else config.measure_every)
        self.token_log = TokenLog() if config.partner_logprobs else None
        """The scores kept of each token; None unless requested."""
        self.is_on = bool(config.partner_logprobs or config.measure_every)
        """Whether any step is measured."""
        self._heads: tuple[Head, Head] | None = None
        self._kept: KeptStates | None = None
        # Created at the first measured step: a level-2 sleep discards tensors allocated during
        # loading.
        self._sums: torch.Tensor | None = None
        self.finish: Callable[[], None] = _nothing
        """Adds a step whose tokens the runner has not reported yet."""

    def read_by(self, senior: Head, junior: Head) -> None:
        """Set both models' heads."""
        self._heads = senior, junior

    def is_due(self) -> bool:
        """Whether the current step is measured. Call once per step in tandem."""
        return next(self._steps)

    def keep(self, senior: torch.Tensor, junior: torch.Tensor) -> None:
        """Keep a step's hidden states until it has sampled: ``[rows, width]`` of each model."""
        if len(senior) != len(junior):
            raise EngineError(
                "measured-rows-differ", senior_rows=len(senior), junior_rows=len(junior)
            )
        self._kept = KeptStates(senior, junior)

    def take(self) -> KeptStates | None:
        """Take the hidden states kept for this step; None if it is not measured."""
        states, self._kept = self._kept, None
        return states

    @torch.inference_mode()
    def add(self, states: KeptStates, rows: SampledRows) -> None:
        """Measure a step's rows, without waiting for the device."""
        scores = self._scores(states, rows.tokens)
        if scores is None:
            return
        if self._sums is None:
            fields = len(MeasureSums.__dataclass_fields__)
            self._sums = torch.zeros(fields, dtype=torch.float64, device=scores.device)
        self._sums += totals(scores, rows.authors, rows.written)
        if self.token_log is not None:
            self.token_log.add(rows.names, scores[:, :3], rows.positions, rows.written)

    def sums(self) -> MeasureSums:
        """The sums since startup; waits for the device."""
        self.finish()
        return MeasureSums() if self._sums is None else MeasureSums(*self._sums.tolist())

    def take_tokens(self, names: Sequence[str]) -> dict[str, list[list[float]]]:
        """The scores of each token of these requests: see :meth:`TokenLog.take`."""
        self.finish()
        return {} if self.token_log is None else self.token_log.take(names)

    def _scores(self, states: KeptStates, tokens: torch.Tensor) -> torch.Tensor | None:
        """float32 ``[rows, 5]``, in chunks of rows: vLLM's profiling does not see this memory."""
        assert self._heads is not None
        senior_head, junior_head = self._heads
        chunks = []
        for start in range(0, len(tokens), self._rows):
            part = slice(start, start + self._rows)
            senior = senior_head(states.senior[part].contiguous())
            junior = junior_head(states.junior[part].contiguous())
            if senior is None or junior is None:
                return None
            chunks.append(token_scores(senior, junior, tokens[part]))
        return torch.cat(chunks) if chunks else None


def _nothing() -> None:
    """Nothing is held back."""


_measures: WeakValueDictionary[str, Measures] = WeakValueDictionary()
"""Weak values: each lives as long as the model and the runner's binding that share it."""


def measures_of(vllm_config: Any) -> Measures:
    """The measures of one engine in this process, shared by model, runner and RPC."""
    measures = _measures.get(vllm_config.instance_id)
    if measures is None:
        vocabulary = int(vllm_config.model_config.get_vocab_size())
        measures = Measures(engine_rules(vllm_config).config, vocabulary)
        _measures[vllm_config.instance_id] = measures
    return measures
