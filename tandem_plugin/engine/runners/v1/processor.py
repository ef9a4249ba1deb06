"""Model Runner V1: a logits processor that follows the batch and posts each step's authors.

vLLM notifies logits processors of every request that enters, leaves or moves within the batch,
before each forward pass. This one changes no logits: the composite model reads the posted authors
when it computes them. Source: vLLM's ``vllm/v1/sample/logits_processor/interface.py``.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.logits_processor.interface import LogitsProcessor, MoveDirectionality

from tandem_plugin.engine.admission import tandem_argument
from tandem_plugin.engine.measures import KeptStates, SampledRows, measures_of
from tandem_plugin.engine.record import AuthoredRequest, Recorder
from tandem_plugin.engine.runners.v1.authors import BatchAuthors
from tandem_plugin.engine.step_authors import step_authors_of
from tandem_plugin.engine.tokenizer_check import engine_rules
from tandem_plugin.engine.wire import TOKEN_LOG_NAME


class AuthorsLogitsProcessor(Recorder, LogitsProcessor):  # type: ignore[misc]  # vllm is untyped here
    """Keeps the schedule state of every request in the batch."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rules = engine_rules(vllm_config)
        self._max_model_len = vllm_config.model_config.max_model_len
        size = vllm_config.scheduler_config.max_num_seqs
        self._authors = BatchAuthors(size, self._max_model_len + 1)
        self._rows = 0
        self._step_authors = step_authors_of(vllm_config)
        self._step_authors.bind()
        self._device = device
        self._measures = measures_of(vllm_config)
        self._measures.finish = self._measure
        self._open_record(self._rules.config)

    def is_argmax_invariant(self) -> bool:
        return True  # apply() changes nothing

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits

    def update_state(self, batch_update: Any) -> None:
        """Follow the batch, then post the authors of the next step. Called once per step."""
        if self._rows:
            self._step_authors.settle()  # the previous step
            self._measure()
        if batch_update is not None:
            self._rows = batch_update.batch_size
            for row in batch_update.removed:
                self._end(row)
            for row, params, prompt, output in batch_update.added:
                self._begin(row, params, prompt, output)
            for source, target, direction in batch_update.moved:
                if direction == MoveDirectionality.SWAP:
                    self._authors.swap(source, target)
                else:
                    self._end(target)
                    self._authors.move(source, target)
        self._step_authors.post(self._authors.next_authors(self._rows) if self._rows else None)

    def _begin(self, row: int, params: Any, prompt: list[int] | None, output: list[int]) -> None:
        self._end(row)
        resolved = self._rules.for_request(tandem_argument(params))
        if resolved is None:
            return
        positions = self._max_model_len - len(prompt or [])
        if params.max_tokens is not None:
            positions = min(positions, params.max_tokens)
        request = AuthoredRequest(
            resolved.rule,
            resolved.seed,
            output,
            name=(params.extra_args or {}).get(TOKEN_LOG_NAME),
            prefix=resolved.prefix(prompt or []),
        )
        if request.name is not None and self._measures.token_log is not None:
            self._measures.token_log.begin(request.name)
        self._authors.add(row, request, positions)

    def _end(self, row: int) -> None:
        request = self._authors.remove(row)
        if request is not None and self._record is not None and request.output:
            self._record.write(request)

    def _record_left(self) -> None:
        for row in range(self._rows):
            self._end(row)

    def _measure(self) -> None:
        """Measure the last step, if its hidden states were kept; its tokens are now known.

        Called before any row moves, or when the sums are requested.
        """
        states = self._measures.take()
        if states is None:
            return
        written = self._authors.written()
        rows = self._to_device([token.row for token in written])
        states = KeptStates(
            states.senior.index_select(0, rows), states.junior.index_select(0, rows)
        )
        sampled = SampledRows(
            tokens=self._to_device([token.request.output[token.position] for token in written]),
            authors=self._to_device([token.author for token in written]).bool(),
            written=torch.ones(len(written), dtype=torch.bool, device=self._device),
            positions=self._to_device([token.position for token in written]),
            names=[token.request.name for token in written],
        )
        self._measures.add(states, sampled)

    def _to_device(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64).to(self._device, non_blocking=True)
