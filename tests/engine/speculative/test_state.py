"""Where the junior's logits take the senior's place: row by row, whatever the chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from device_slots import PIECES, VOCABULARY
from host_memory import host_memory
from refused import refused

from tandem_plugin import TandemConfig, TandemRules
from tandem_plugin.engine.measures import Measures
from tandem_plugin.engine.runners.v2 import state as authors_state
from tandem_plugin.engine.speculative import draft_model, memory
from tandem_plugin.engine.speculative import state as module
from tandem_plugin.engine.speculative.samplers import AuthorRejectionSampler, UndraftedSampler
from tandem_plugin.engine.speculative.slot_flags import SlotFlags
from tandem_plugin.engine.speculative.state import SpeculativeState
from tandem_plugin.engine.step_authors import StepAuthors

SLOTS, DRAFTS, HIDDEN, IDS = 5, 3, 4, len(PIECES)


class ModelState:
    """vLLM's, as far as tandem's goes by it."""

    def __init__(self, vllm_config: Any, model: Any) -> None:
        self.vllm_config, self.model = vllm_config, model
        self.model_config = SimpleNamespace(get_vocab_size=lambda: IDS)
        self.max_num_reqs, self.max_model_len = SLOTS, 64
        self.device = torch.device("cpu")

    def add_request(self, req_index: int, new_req_data: Any) -> None:
        pass

    def remove_request(self, req_id: str) -> None:
        pass

    def apply_staged_writes(self) -> None:
        pass

    def prepare_attn(self, *arguments: Any) -> dict[str, Any]:
        return {}


class State(SpeculativeState, ModelState):
    pass


@dataclass
class Junior:
    """A junior of one matrix, which counts what it computes."""

    head: torch.Tensor
    step: torch.Tensor
    """``[tokens, hidden]``, its hidden states over a step's tokens."""
    rows: list[int] = field(default_factory=list)
    steps_read: int = 0

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(hidden))
        return hidden @ self.head

    def read_step(self, *arguments: Any) -> torch.Tensor:
        self.steps_read += 1
        return self.step

    def freeze(self) -> None:
        pass

    @property
    def junior(self) -> Any:
        return SimpleNamespace(compute_logits=self.logits)


@dataclass
class Drafts:
    """What the state asks of the speculator."""

    hidden: torch.Tensor
    banned: torch.Tensor


@dataclass
class Setup:
    state: State
    junior: Junior
    drafts: Drafts

    def enter(self, slot: int, **tandem: Any) -> None:
        """A request in tandem enters a slot, after the former one has left, as in vLLM's runner."""
        params = SimpleNamespace(
            extra_args={"tandem": {"seed": slot, **tandem}}, max_tokens=20, stop_token_ids=[],
            top_k=0,
        )  # fmt: skip
        request = SimpleNamespace(
            req_id=f"request {slot}", sampling_params=params, prompt_token_ids=[1, 2],
            prefill_token_ids=[1, 2],
        )  # fmt: skip
        self.state.remove_request(request.req_id)
        self.state.add_request(slot, request)
        self.state.apply_staged_writes()


@pytest.fixture
def setup(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """A state as vLLM's runner makes it, with a request in tandem in every slot.

    Its parameter, if it has one, is the engine's settings.
    """
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    settings = getattr(request, "param", {"schedule": "word"})
    junior = Junior(random(HIDDEN, IDS), random(20, HIDDEN))
    drafts = Drafts(random(SLOTS + 1, DRAFTS, HIDDEN), torch.zeros(IDS).bool())
    rules = TandemRules(TandemConfig.from_mapping(settings), VOCABULARY)
    monkeypatch.setattr(authors_state, "engine_rules", lambda config: rules)
    monkeypatch.setattr(authors_state, "shared_memory", host_memory)
    monkeypatch.setattr(module, "junior_of", lambda config: junior)
    monkeypatch.setattr(draft_model, "read_step", junior.read_step)
    speculative = SimpleNamespace(num_speculative_tokens=DRAFTS)
    model = SimpleNamespace(
        tandem_step_authors=StepAuthors(),
        tandem_measures=Measures(rules.config, IDS),
        _senior=SimpleNamespace(compute_logits=lambda model, hidden: hidden),
    )
    state = State(SimpleNamespace(speculative_config=speculative), model)  # type: ignore[arg-type]
    state.set_speculator(drafts)
    nothing: Any = None
    caches: Any = SimpleNamespace(kv_cache_groups=[])
    state.prepare_attn(nothing, nothing, nothing, torch.zeros(0, 1), nothing, caches)
    made = Setup(state, junior, drafts)
    for slot in range(SLOTS):
        made.enter(slot)
    return made


def decoding(slots: list[int], num_drafts: list[int], **changes: Any) -> Any:
    """A batch of requests that decode, with so many drafts each; its rows of logits are tokens 10
    and on of the step."""
    first = np.concatenate([[0], np.cumsum(np.array(num_drafts) + 1)])
    rows, none = len(slots), np.zeros(len(slots), dtype=np.int64)
    batch = SimpleNamespace(
        idx_mapping_np=np.array(slots), cu_num_logits_np=first,
        logits_indices=torch.arange(10, 10 + int(first[-1])),
        num_draft_tokens_per_req=np.array(num_drafts), is_prefilling_np=none.astype(bool),
        num_computed_tokens_np=none + 9, num_scheduled_tokens=none + 1, prefill_len_np=none + 6,
        num_reqs=rows,
    )  # fmt: skip
    vars(batch).update(changes)
    return batch


@pytest.fixture(params=[1, 2, 1000])
def rows_a_chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(memory, "CHUNK_BYTES", request.param * IDS * 4)
    return int(request.param)


def test_kept_drafts_have_the_juniors_logits(setup: Setup, rows_a_chunk: int) -> None:
    slots, steps = torch.tensor([3, 3, 3, 3, 0, 1, 1]), torch.tensor([0, 1, 2, 3, 0, 0, 1])
    is_kept = torch.tensor([True, False, True, False, False, True, True])
    logits = torch.randn(7, IDS)
    batch: Any = SimpleNamespace(expanded_idx_mapping=slots, expanded_local_pos=steps)
    expected = [
        setup.drafts.hidden[slots[row], steps[row]] @ setup.junior.head
        if is_kept[row]
        else logits[row].clone()
        for row in range(7)
    ]
    found = setup.state.fill_kept_drafts(logits, batch, is_kept)
    torch.testing.assert_close(found, torch.stack(expected))
    assert max(setup.junior.rows) <= rows_a_chunk
    assert sum(setup.junior.rows) == 7


def test_undrafted_tokens_have_their_authors_logits(setup: Setup, rows_a_chunk: int) -> None:
    """Rows 1, 2 and 4 of the batch write one; the junior is the author of 1 and 4."""
    batch = decoding([0, 1, 2, 3, 4], [2, 0, 0, 1, 0])
    authors = torch.tensor([False, False, True, False, False])
    logits = torch.randn(8, IDS)
    expected = logits.clone()
    for row in (1, 4):
        place = int(batch.cu_num_logits_np[row])
        expected[place] = setup.junior.step[10 + place] @ setup.junior.head
    found = setup.state.fill_undrafted_rows(logits, batch, authors)
    torch.testing.assert_close(found, expected)
    assert max(setup.junior.rows) <= rows_a_chunk
    assert sum(setup.junior.rows) == 3


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


@pytest.mark.parametrize(
    ("setup", "beyond"),
    [
        ({"mode": "lockstep"}, 0),
        ({"mode": "speculative", "drafts": 1}, 4),
        ({"mode": "speculative", "drafts": DRAFTS}, 2 * (DRAFTS + 1)),
        ({"mode": "speculative", "drafts": {1: DRAFTS, 8: 0}}, 2 * (DRAFTS + 1)),
    ],
    indirect=["setup"],
)
def test_draws_reach_as_far_as_two_rounds_may_write_beyond_the_end(
    setup: Setup, beyond: int
) -> None:
    """The round that reaches the end, and the next one of asynchronous scheduling."""
    for slot in range(SLOTS):
        slot_request = setup.state._slot_requests[f"request {slot}"]
        assert slot_request.limit == 20 + beyond + 1


@pytest.mark.parametrize("is_drafting", [True, False])
def test_undrafted_rows_are_those_whose_token_may_be_the_juniors(is_drafting: bool) -> None:
    """vLLM pads rows that end their prompt with placeholders; a step may be without drafts."""
    rows = list(SCHEDULED)[:: 1 if is_drafting else -1]
    prefilling, drafted, scheduled, seniors = map(
        np.array, zip(*(SCHEDULED[name] for name in rows), strict=True)
    )
    slots = np.arange(len(rows))[::-1].copy()
    flags = SlotFlags(len(rows))
    for slot, name, begins_with_senior in zip(slots, rows, seniors, strict=True):
        flags.enter(slot, in_tandem="not in tandem" not in name, has_masks=False)
        flags.begins_with_senior[slot] = begins_with_senior
    batch = decoding(
        slots.tolist(), [0] * len(rows), is_prefilling_np=prefilling,
        num_draft_tokens_per_req=drafted if is_drafting else None,
        num_computed_tokens_np=np.where(prefilling, 2, 20), num_scheduled_tokens=scheduled,
    )  # fmt: skip
    expected = UNDRAFTED if is_drafting else [*UNDRAFTED, "decodes with drafts"]
    found = flags.undrafted_rows(batch)
    assert [rows[row] for row in found] == [name for name in rows if name in expected]


@pytest.mark.parametrize("schedule", ["solo", "junior"])
def test_a_prompts_last_step_runs_the_junior_only_if_it_begins(setup: Setup, schedule: str) -> None:
    """The host knows the first author of a request that entered, from its schedule and seed."""
    setup.enter(3, schedule=schedule)
    batch = decoding([3], [0], is_prefilling_np=np.array([True]))
    is_seniors = torch.tensor([schedule == "solo"])
    setup.state.fill_undrafted_rows(torch.randn(1, IDS), batch, is_seniors)
    assert setup.junior.steps_read == int(schedule == "junior")


@pytest.mark.parametrize("change", ["none", "entered", "drafted", "prompt"])
def test_hidden_states_kept_before_are_taken_unless_a_row_changed_since(
    setup: Setup, change: str
) -> None:
    """Rows 0 and 1 are slots 3 and 0, which a step without drafts was followed by."""
    state = setup.state
    batch = decoding([3, 0], [0, 0])
    state.keep_next_hidden(batch, is_kept=True)
    if change == "entered":
        setup.enter(0)
    if change == "drafted":
        state.keep_next_hidden(batch, is_kept=False)
    if change == "prompt":
        setup.enter(0, schedule="junior")
        state.keep_next_hidden(batch, is_kept=True)
        batch.is_prefilling_np = np.array([False, True])
    found = state.fill_undrafted_rows(torch.randn(2, IDS), batch, torch.zeros(2).bool())
    kept, read = setup.drafts.hidden[[3, 0], 0], setup.junior.step[[10, 11]]
    torch.testing.assert_close(found, (kept if change == "none" else read) @ setup.junior.head)
    assert setup.junior.steps_read == (change != "none")


def test_the_junior_reads_a_step_once_and_the_next_one_anew(setup: Setup) -> None:
    first, second = decoding([0], [0]), decoding([0], [0])
    for batch in (first, first, second, second):
        assert setup.state.read(batch) is setup.junior.step
    assert setup.junior.steps_read == 2


def test_a_rounds_memory_is_set_aside_once_at_vllms_first_call() -> None:
    """Which is its profiling, where it profiles."""
    called: list[str] = []
    state: Any = SimpleNamespace(
        set_memory_aside=lambda: called.append("set aside"), take_authors=lambda batch: None
    )
    sample: Callable[..., Any] = lambda logits, batch: called.append("sampled")  # noqa: E731
    sampler = UndraftedSampler(state, sample)
    sampler(None, None)  # type: ignore[arg-type]
    sampler(None, None)  # type: ignore[arg-type]
    assert called == ["set aside", "sampled", "sampled"]


def test_placeholders_of_a_prompts_last_step_are_no_drafts(setup: Setup) -> None:
    """Slot 1 ends a prompt of 6 tokens and was padded; slot 0 decodes behind one of 4."""
    found = rejection_sampler(setup)._placeholders(
        torch.tensor([4, 5, 6, 5, 6, 7]),
        torch.tensor([0, 0, 0, 1, 1, 1]),
        torch.tensor([0, 1, 2, 0, 1, 2]),
    )
    assert found.tolist() == [False, False, False, False, True, True]


def test_a_model_with_a_sampler_of_its_own_is_refused(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelState, "custom_sampler", lambda *_: ("its", "own"), raising=False)
    sampler: Any = None
    with refused("speculative-own-sampler", kind="SimpleNamespace"):
        setup.state.custom_sampler(sampler)


def test_drafts_without_logits_are_refused(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    authors = torch.ones(1, dtype=torch.bool)
    monkeypatch.setattr(setup.state, "take_authors", lambda batch: authors)
    with refused("draft-logits-missing"):
        rejection_sampler(setup)(torch.zeros(1, 2), SimpleNamespace())  # type: ignore[arg-type]


def rejection_sampler(setup: Setup) -> AuthorRejectionSampler:
    """By vLLM's own constructor, over prompts of 4 and 6 tokens."""
    lengths = SimpleNamespace(gpu=torch.tensor([4, 6], dtype=torch.int32))
    sampler: Any = SimpleNamespace(req_states=SimpleNamespace(prefill_len=lengths))
    config: Any = SimpleNamespace(
        num_speculative_tokens=DRAFTS, enable_adaptive_verification=False,
        rejection_sample_method="standard",
    )  # fmt: skip
    return AuthorRejectionSampler(setup.state, sampler, config, torch.device("cpu"))
