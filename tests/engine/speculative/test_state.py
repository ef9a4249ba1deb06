"""Where the junior's logits take the senior's place: row by row, whatever the chunks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tandem_plugin.engine.speculative import memory
from tandem_plugin.engine.speculative.samplers import CheckingSampler, UndraftedSampler
from tandem_plugin.engine.speculative.state import SpeculativeState

SLOTS, DRAFTS, HIDDEN, VOCABULARY = 5, 3, 4, 9


class State(SpeculativeState):
    """The part of the state that works on rows of logits, with a junior of one matrix."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.drafts = DRAFTS
        self.head = torch.randn(HIDDEN, VOCABULARY, generator=generator)
        hidden = torch.randn(SLOTS + 1, DRAFTS, HIDDEN, generator=generator)
        self._speculator = SimpleNamespace(hidden=hidden)
        self._foreseen = np.zeros(SLOTS, dtype=np.bool_)
        self.step = torch.randn(20, HIDDEN, generator=generator)
        self.ran: list[int] = []
        self._junior: Any = SimpleNamespace(logits=self._logits)
        self.undrafted: list[int] = []

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.ran.append(len(hidden))
        return hidden @ self.head

    def _undrafted(self, batch: Any) -> Any:
        return np.array(self.undrafted, dtype=np.int64)

    def read(self, batch: Any) -> torch.Tensor:
        self.reads += 1
        return self.step

    reads = 0


@pytest.fixture(params=[1, 2, 1000])
def rows_a_chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(memory, "CHUNK_BYTES", request.param * VOCABULARY * 4)
    return int(request.param)


def test_drafts_that_stand_have_the_juniors_logits(rows_a_chunk: int) -> None:
    state, slots = State(), torch.tensor([3, 3, 3, 3, 0, 1, 1])
    steps = torch.tensor([0, 1, 2, 3, 0, 0, 1])
    stands = torch.tensor([True, False, True, False, False, True, True])
    logits = torch.randn(7, VOCABULARY)
    batch = SimpleNamespace(expanded_idx_mapping=slots, expanded_local_pos=steps)
    expected = [
        state._speculator.hidden[slots[row], steps[row]] @ state.head
        if stands[row]
        else logits[row].clone()
        for row in range(7)
    ]
    found = state.with_drafted(logits, batch, stands)
    torch.testing.assert_close(found, torch.stack(expected))
    assert max(state.ran) <= rows_a_chunk
    assert sum(state.ran) == 7


def test_tokens_that_nobody_drafted_have_their_authors_logits(rows_a_chunk: int) -> None:
    """Rows 1, 2 and 4 of the batch write one; the junior is the author of 1 and 4."""
    state = State()
    state.undrafted = [1, 2, 4]
    authors = torch.tensor([False, False, True, True, False])
    first, indices = np.array([0, 2, 3, 4, 5, 6]), torch.tensor([10, 11, 12, 13, 14, 15])
    batch = SimpleNamespace(
        cu_num_logits_np=first, logits_indices=indices, idx_mapping_np=np.arange(5),
        is_prefilling_np=np.zeros(5, dtype=np.bool_),
    )  # fmt: skip
    logits = torch.randn(6, VOCABULARY)
    expected = logits.clone()
    for row in (1, 4):
        place = int(first[row])
        expected[place] = state.step[indices[place]] @ state.head
    torch.testing.assert_close(state.with_undrafted(logits, batch, authors), expected)
    assert max(state.ran) <= rows_a_chunk
    assert sum(state.ran) == 3


SCHEDULED: dict[str, tuple[bool, int | None, int, bool]] = {
    # Prefilling, drafts in this step, tokens still to compute before it, first author the senior's.
    "decodes without drafts": (False, 0, 1, True),
    "decodes with drafts": (False, 2, 3, False),
    "ends a prompt, the junior begins": (True, 0, 4, False),
    "ends a prompt, the senior begins": (True, 0, 4, True),
    "ends a padded prompt, the junior begins": (True, 2, 4, False),
    "ends a padded prompt, the senior begins": (True, 2, 4, True),
    "is within a prompt": (True, 0, 3, False),
    "decodes, not in tandem": (False, 0, 1, False),
}
UNDRAFTED = ["decodes without drafts", "ends a prompt, the junior begins",
             "ends a padded prompt, the junior begins"]  # fmt: skip


@pytest.mark.parametrize("is_drafting", [True, False])
def test_undrafted_rows_are_those_whose_token_may_be_the_juniors(is_drafting: bool) -> None:
    """vLLM pads rows that end their prompt with placeholders; a step may be without drafts."""
    rows = list(SCHEDULED)[:: 1 if is_drafting else -1]
    prefilling, drafted, scheduled, seniors = map(
        np.array, zip(*(SCHEDULED[name] for name in rows), strict=True)
    )
    slots = np.arange(len(rows))[::-1].copy()
    of_slot = np.empty_like(slots)
    of_slot[slots] = np.arange(len(rows))
    state: Any = SimpleNamespace(
        _begins_with_senior=seniors[of_slot],
        _in_tandem=np.array(["not in tandem" not in name for name in rows])[of_slot],
    )
    batch = SimpleNamespace(
        idx_mapping_np=slots,
        is_prefilling_np=prefilling,
        num_draft_tokens_per_req=drafted if is_drafting else None,
        num_computed_tokens_np=np.where(prefilling, 2, 20),
        num_scheduled_tokens=scheduled,
        prefill_len_np=np.full(len(rows), 6),
    )
    expected = UNDRAFTED if is_drafting else [*UNDRAFTED, "decodes with drafts"]
    found = SpeculativeState._undrafted(state, batch)
    assert [rows[row] for row in found] == [name for name in rows if name in expected]


@pytest.mark.parametrize("change", ["none", "entered", "drafted", "prompt"])
def test_what_the_junior_said_before_is_taken_unless_a_row_changed_since(change: str) -> None:
    """Rows 0 and 1 are slots 3 and 0, which a step without drafts was followed by."""
    state = State()
    state.undrafted = [0, 1]
    batch = SimpleNamespace(
        cu_num_logits_np=np.arange(3), logits_indices=torch.tensor([10, 11]),
        idx_mapping_np=np.array([3, 0]), is_prefilling_np=np.array([False, change == "prompt"]),
    )  # fmt: skip
    state.foresees(batch, True)
    if change == "entered":
        state._foreseen[0] = False
    if change == "drafted":
        state.foresees(batch, False)
    found = state.with_undrafted(torch.randn(2, VOCABULARY), batch, torch.zeros(2).bool())
    kept, read = state._speculator.hidden[[3, 0], 0], state.step[[10, 11]]
    torch.testing.assert_close(found, (kept if change == "none" else read) @ state.head)
    assert state.reads == (change != "none")


def test_what_a_round_needs_is_set_aside_once_at_vllms_first_call() -> None:
    """Which is its profiling, where it profiles."""
    called: list[str] = []
    state: Any = SimpleNamespace(
        set_memory_aside=lambda: called.append("set aside"), take=lambda batch: None
    )
    sampler = UndraftedSampler(state, lambda logits, batch: called.append("sampled"))
    sampler(None, None)  # type: ignore[arg-type]
    sampler(None, None)  # type: ignore[arg-type]
    assert called == ["set aside", "sampled", "sampled"]


def test_placeholders_of_a_prompts_last_step_are_no_drafts() -> None:
    """Slot 1 ends a prompt of 6 tokens and was padded; slot 0 decodes behind one of 4."""
    lengths = SimpleNamespace(gpu=torch.tensor([4, 6], dtype=torch.int32))
    sampler = SimpleNamespace(req_states=SimpleNamespace(prefill_len=lengths))
    found = CheckingSampler._placeholders(
        SimpleNamespace(sampler=sampler),  # type: ignore[arg-type]
        torch.tensor([4, 5, 6, 5, 6, 7]),
        torch.tensor([0, 0, 0, 1, 1, 1]),
        torch.tensor([0, 1, 2, 0, 1, 2]),
    )
    assert found.tolist() == [False, False, False, False, True, True]
