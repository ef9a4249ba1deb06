"""What came of the rows of logits of a step, of which the state on the device tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tandem_plugin.engine.runners.v2.state import End

pytest.importorskip("vllm.v1.worker.gpu.attn_utils", reason="this vLLM has no Model Runner V2")

from tandem_plugin.engine.runners.v2.state import AuthorsState
from tandem_plugin.engine.speculative.state import SpeculativeState

PROMPT, LONGEST, SIZE = 3, 40, 6


class Authors:
    """Slots 1 and 4 are in tandem; the senior writes even tokens, by their place in a response."""

    def __init__(self, lengths: dict[int, int]) -> None:
        self._lengths = torch.tensor([lengths.get(slot, 0) for slot in range(SIZE)])

    def lengths(self, slots: torch.Tensor) -> torch.Tensor:
        return self._lengths[slots]

    def of(self, slots: torch.Tensor) -> torch.Tensor:
        return self.lengths(slots) % 2 == 0

    def at(self, slots: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        return (self.lengths(slots) + steps) % 2 == 0

    def in_tandem(self, slots: torch.Tensor) -> torch.Tensor:
        return (slots == 1) | (slots == 4)


def state_of(kind: Any, before: dict[int, int], sampled: dict[int, int], batch: Any) -> Any:
    """A state after a step. before, sampled: tokens of each slot's response, and of this step.

    The token at place i of slot s is 100 s + i.
    """
    state = object.__new__(kind)
    total = [PROMPT + before.get(s, 0) + sampled.get(s, 0) for s in range(SIZE)]
    ids = 100 * torch.arange(SIZE, dtype=torch.int32)[:, None] + torch.arange(LONGEST)
    state.max_num_reqs, state.device, state._ahead = SIZE, torch.device("cpu"), 8
    state.__dict__["_authors"] = Authors(before)
    state._req_states = SimpleNamespace(
        total_len=SimpleNamespace(gpu=torch.tensor(total, dtype=torch.int32)),
        all_token_ids=SimpleNamespace(gpu=ids.int()),
    )
    state._batch, state._names = batch, {1: "one", 4: "four"}
    state._ends = {1: End(10), 4: End(10)}
    return state


def listed(rows: Any) -> list[tuple[int, bool, bool, int, str | None]]:
    columns = rows.tokens, rows.authors, rows.written, rows.positions
    return [
        (*row, name)
        for *row, name in zip(*(column.tolist() for column in columns), rows.names, strict=True)
    ]


def test_a_step_of_lockstep_has_a_token_a_row_that_ended_its_prompt() -> None:
    slots = torch.tensor([4, 0, 1])
    batch = SimpleNamespace(idx_mapping_np=slots.numpy())
    before, sampled = {4: 5, 0: 2, 1: 0}, {4: 1, 0: 1, 1: 0}
    state = state_of(AuthorsState, before, sampled, batch)
    found = listed(state._sampled_rows(slots, torch.tensor([1, 1, 0], dtype=torch.int32)))
    assert found[0] == (400 + PROMPT + 5, False, True, 5, "four")
    assert [row[2] for row in found] == [True, False, False]


def test_a_round_has_what_it_wrote_of_each_chain() -> None:
    """Slot 1 wrote three of four rows, slot 4 one of two, slot 2 is not in tandem."""
    slots = torch.tensor([1, 4, 2])
    batch = SimpleNamespace(
        idx_mapping_np=slots.numpy(),
        cu_num_logits_np=np.array([0, 4, 6, 7]),
        expanded_idx_mapping=torch.tensor([1, 1, 1, 1, 4, 4, 2], dtype=torch.int32),
        expanded_local_pos=torch.tensor([0, 1, 2, 3, 0, 1, 0], dtype=torch.int32),
    )
    state = state_of(SpeculativeState, {1: 4, 4: 0, 2: 7}, {1: 3, 4: 1, 2: 1}, batch)
    found = listed(state._sampled_rows(slots, torch.tensor([3, 1, 1], dtype=torch.int32)))
    first = 100 + PROMPT + 4
    assert found[:3] == [
        (first, True, True, 4, "one"),
        (first + 1, False, True, 5, "one"),
        (first + 2, True, True, 6, "one"),
    ]
    assert found[4] == (400 + PROMPT, True, True, 0, "four")
    assert [row[2] for row in found] == [True] * 3 + [False, True, False, False]


def test_tokens_behind_the_last_one_or_a_stop_are_none_of_a_response() -> None:
    slots = torch.tensor([1, 4])
    batch = SimpleNamespace(
        idx_mapping_np=slots.numpy(),
        cu_num_logits_np=np.array([0, 3, 6]),
        expanded_idx_mapping=torch.tensor([1, 1, 1, 4, 4, 4], dtype=torch.int32),
        expanded_local_pos=torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.int32),
    )
    state = state_of(SpeculativeState, {1: 4, 4: 4}, {1: 3, 4: 3}, batch)
    state._ends = {1: End(6), 4: End(10, (7, 400 + PROMPT + 5))}
    found = listed(state._sampled_rows(slots, torch.tensor([3, 3], dtype=torch.int32)))
    assert [row[2] for row in found] == [True, True, False, True, True, False]
    state._ends[4] = End(10, (400 + PROMPT - 1,))  # the prompt's last token stops nothing
    found = listed(state._sampled_rows(slots, torch.tensor([3, 3], dtype=torch.int32)))
    assert [row[2] for row in found] == [True, True, False, True, True, True]
