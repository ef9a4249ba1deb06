"""Model Runner V2: a model state that keeps every request's author on the device.

vLLM gets the state class from the model, notifies the state of every request that enters or leaves
a slot, and calls it before each forward pass and after each sampling. Source: vLLM's
``vllm/v1/worker/gpu/model_states/interface.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.engine.admission import tandem_argument
from tandem_plugin.engine.measures import SampledRows
from tandem_plugin.engine.record import AuthoredRequest, Recorder
from tandem_plugin.engine.runners.v2.authors import DeviceAuthors, SlotRequest, to_device
from tandem_plugin.engine.tokenizer_check import engine_rules
from tandem_plugin.engine.wire import TOKEN_LOG_NAME

AuthorsT = TypeVar("AuthorsT", bound=DeviceAuthors)


class AuthorsState(Recorder):
    """Tandem's mixin for a ``ModelState``; precedes it in the class's bases."""

    model: Any
    model_config: Any
    max_num_reqs: int
    max_model_len: int
    device: torch.device

    def __init__(self, vllm_config: Any, model: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(vllm_config, model, *arguments, **options)  # type: ignore[call-arg]
        self._rules = engine_rules(vllm_config)
        drafts = self._rules.config.max_drafts
        # Rounds of several tokens write beyond a response's end: the round that reaches it and,
        # with asynchronous scheduling, the next. These tokens are dropped, but recorded.
        self._ahead = 2 * (drafts + 1) if drafts else 0
        self._slot_requests: dict[str, SlotRequest] = {}
        self._prompt_lengths: dict[str, int] = {}
        self._names: dict[int, str] = {}
        """By slot: the name under which its request's token scores are kept."""
        self._ends: dict[int, End] = {}
        """By slot: where its response ends."""
        self._req_states: Any = None
        self._batch: Any = None
        model.tandem_step_authors.bind()
        self._open_record(self._rules.config)

    @cached_property
    def _authors(self) -> DeviceAuthors:
        """Created at the first step: a level-2 sleep discards tensors allocated during loading."""
        return self._made(DeviceAuthors)

    def _made(self, kind: type[AuthorsT]) -> AuthorsT:
        return kind(
            self.max_num_reqs,
            self.model_config.get_vocab_size(),
            self.device,
            memory=shared_memory,
            record=self._record is not None,
        )

    def add_request(self, req_index: int, new_req_data: Any) -> None:
        super().add_request(req_index, new_req_data)  # type: ignore[misc]
        params = new_req_data.sampling_params
        argument = tandem_argument(params) if params else None
        # Admission has rejected requests that lack required parameters; vLLM's warm-up has none.
        resolved = None if argument is None else self._rules.for_request(argument)
        if resolved is None:
            return
        self._name(req_index, params)
        prompt = new_req_data.prompt_token_ids  # NewRequestData.prompt_len: from 0.29
        output = list(new_req_data.prefill_token_ids[len(prompt) :])
        positions = self.max_model_len - len(prompt)
        if params.max_tokens is not None:
            positions = min(positions, params.max_tokens)
        self._ends[req_index] = End.of(params, positions)
        self._slot_requests[new_req_data.req_id] = self._authors.add(
            req_index,
            resolved.rule,
            resolved.seed,
            output,
            positions + self._ahead,
            resolved.prefix(prompt),
        )
        self._prompt_lengths[new_req_data.req_id] = len(prompt)

    def remove_request(self, req_id: str) -> None:
        super().remove_request(req_id)  # type: ignore[misc]
        slot_request = self._slot_requests.pop(req_id, None)
        if slot_request is None:
            return
        prompt_length = self._prompt_lengths.pop(req_id)
        self._names.pop(slot_request.slot, None)
        self._ends.pop(slot_request.slot, None)
        if self._record is not None:
            self._write_record(slot_request, prompt_length)
        self._authors.remove(slot_request)

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()  # type: ignore[misc]
        self._authors.write_staged()

    def prepare_inputs(self, input_batch: Any, req_states: Any) -> Any:
        """Post the authors of the next step's rows for the model's ``compute_logits``."""
        self._req_states, self._batch = req_states, input_batch
        slots = input_batch.idx_mapping
        in_tandem = self._authors.any_in_tandem
        self.model.tandem_step_authors.post(self._authors.of(slots) if in_tandem else None)
        return super().prepare_inputs(input_batch, req_states)  # type: ignore[misc]

    def postprocess_state(
        self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, *arguments: Any, **options: Any
    ) -> None:
        self.model.tandem_step_authors.settle()
        super().postprocess_state(idx_mapping, num_sampled, *arguments, **options)  # type: ignore[misc]
        if (states := self.model.tandem_measures.take()) is not None:
            rows = self._sampled_rows(idx_mapping.long(), num_sampled)
            self.model.tandem_measures.add(states, rows)
        last_tokens = self._req_states.last_sampled_tokens[:, 0]
        self._authors.advance(idx_mapping, num_sampled, last_tokens)

    def _sampled_rows(self, slots: torch.Tensor, num_sampled: torch.Tensor) -> SampledRows:
        """The outcome of the rows with logits in a step, one per request."""
        return self._rows(
            slots,
            self._batch.idx_mapping_np,
            self._authors.of(slots),
            self._authors.lengths(slots),
            num_sampled > 0,
            self._req_states.total_len.gpu.index_select(0, slots).long() - 1,
        )

    def _rows(
        self,
        slots: torch.Tensor,
        slots_host: NDArray[Any],
        authors: torch.Tensor,
        positions: torch.Tensor,
        written: torch.Tensor,
        places: torch.Tensor,
    ) -> SampledRows:
        """Rows of logits by slot, on the device and on the host.

        places: int64 ``[rows]``, the position of each row's token in its request, prompt included.
        Tokens that asynchronous scheduling or a round wrote beyond the end of a response do not
        belong to it.
        """
        back = torch.arange(max(self._ahead, 2), device=slots.device)
        ids = self._req_states.all_token_ids.gpu
        at = (places[:, None] - back).clamp(0, ids.shape[1] - 1)
        tokens = ids[slots[:, None], at].long()
        hosts = slots_host.tolist()
        ends = ends_of([self._ends.get(slot, NO_END) for slot in hosts])
        in_response = within(to_device(ends, self.device), positions, tokens[:, 1:])
        return SampledRows(
            tokens=tokens[:, 0],
            authors=authors,
            written=written & in_response & self._authors.in_tandem(slots),
            positions=positions,
            names=[self._names.get(slot) for slot in hosts],
        )

    def _name(self, slot: int, params: Any) -> None:
        name = (params.extra_args or {}).get(TOKEN_LOG_NAME)
        log = self.model.tandem_measures.token_log
        if name is not None and log is not None:
            self._names[slot] = name
            log.begin(name)

    def _write_record(self, slot_request: SlotRequest, prompt_length: int) -> None:
        slot, states = slot_request.slot, self._req_states
        if states is None:  # the request left before any step
            return
        total = int(states.total_len.gpu[slot])
        output = states.all_token_ids.gpu[slot, prompt_length:total].tolist()
        if output:
            authors = self._authors.recorded(slot_request, len(output))
            prefix = list(slot_request.prefix)
            request = AuthoredRequest(
                slot_request.rule, slot_request.seed, output, authors, prefix=prefix
            )
            self._record.write(request, self._further(slot_request))  # type: ignore[union-attr]

    def _record_left(self) -> None:
        while self._slot_requests:
            req_id, slot_request = self._slot_requests.popitem()
            self._write_record(slot_request, self._prompt_lengths.pop(req_id))

    def _further(self, slot_request: SlotRequest) -> dict[str, Any]:
        """Further fields of a request's record."""
        return {}


def shared_memory(places: int) -> tuple[Any, torch.Tensor]:
    """Memory that the host writes and the device reads, as vLLM itself keeps token ids.

    Returns float64 ``[places]`` as a NumPy array and as a device tensor. It is written once per
    request, and one element is read per row and step, so it takes no device memory.
    """
    from vllm.v1.worker.gpu.buffer_utils import UvaBuffer

    buffer = UvaBuffer(places, torch.float64)
    # A method since 0.32, an attribute before.
    view = buffer.uva() if callable(buffer.uva) else buffer.uva
    return buffer.np, view


@dataclass(frozen=True, slots=True)
class End:
    """The end of a response."""

    limit: int
    """Its maximum number of tokens."""
    stops: tuple[int, ...] = ()
    """Token ids that end it."""

    @classmethod
    def of(cls, params: Any, limit: int) -> End:
        """Derived from a request's sampling parameters.

        Stop strings are found when tokens are decoded to text, which the device cannot do.
        """
        eos = getattr(params, "eos_token_id", None)
        return cls(limit, (*(() if eos is None else (eos,)), *(params.stop_token_ids or ())))


NO_END = End(0)
"""For a slot without a tandem request."""


def ends_of(ends: Sequence[End]) -> NDArray[np.int64]:
    """Each row's limit and stop tokens, padded with -1: int64 ``[rows, 1 + stops]``."""
    most = max((len(end.stops) for end in ends), default=0)
    table = np.full((len(ends), 1 + most), -1, dtype=np.int64)
    for row, end in enumerate(ends):
        table[row, 0] = end.limit
        table[row, 1 : 1 + len(end.stops)] = end.stops
    return table


def within(ends: torch.Tensor, positions: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Which rows' tokens belong to their responses: bool ``[rows]``.

    ends: from :func:`ends_of`. positions: int64 ``[rows]``, the tokens' positions in their
    responses. before: int64 ``[rows, some]``, the tokens before each, the nearest first.
    """
    nearest = torch.arange(before.shape[1], device=before.device)
    is_stop = (before[:, :, None] == ends[:, None, 1:]).any(-1)
    ended = (is_stop & (nearest < positions[:, None])).any(1)
    return (positions < ends[:, 0]) & ~ended
