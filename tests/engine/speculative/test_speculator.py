"""A round of drafting: what the junior reads, what is sampled from it, and what is kept."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("vllm")

from vllm.config.compilation import CUDAGraphMode
from vllm.v1.attention.backend import AttentionCGSupport

from tandem_plugin.engine.speculative import speculator as module
from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

SIZE, DRAFTS, VOCABULARY, LONGEST = 4, 3, 50, 12


class Pass:
    """Passes of a junior whose hidden state after a token is the token: it drafts the next id."""

    support = SimpleNamespace(min_cg_support=AttentionCGSupport.ALWAYS)
    fits_graphs = True

    def __init__(self, config: Any, width: int, size: int, device: torch.device) -> None:
        self.width = width
        self.input_ids = torch.zeros(size * width, dtype=torch.int32)
        self.positions = torch.zeros(size * width, dtype=torch.int64)
        self.requests = -1
        self.read: list[tuple[list[int], list[int], Any]] = []

    def lay_out(self, requests: int) -> None:
        self.requests = requests

    def metadata(
        self, rows: int, seq_lens: torch.Tensor, longest: torch.Tensor, capturing: bool = False
    ) -> Any:
        assert (longest >= seq_lens).all()
        return self.width, seq_lens

    def refresh(self, metadata: Any) -> None:
        assert metadata[0] == self.width

    def run(self, junior: Any, rows: int, slots: torch.Tensor, metadata: Any) -> torch.Tensor:
        tokens = rows * self.width
        width, lengths = metadata
        assert width == self.width, "metadata of another kind of pass"
        ids = self.input_ids[:tokens]
        self.read.append((ids.tolist(), self.positions[:tokens].tolist(), lengths.tolist()))
        return ids.view(rows, -1)[:, -1:].float()


class Graphs:
    """vLLM's manager of graphs: what was captured is what a replay runs, in the same memory."""

    def __init__(self, rows: int) -> None:
        """rows: of the captured rounds, of every length; 0 for none."""
        self._rows = rows
        self.rounds: dict[tuple[int, int], Any] = {}
        self.ran: list[tuple[int, int]] = []

    def needs_capture(self) -> bool:
        return self._rows > 0

    def capture(self, make_round: Any, name: str) -> None:
        for drafts in range(DRAFTS + 1):
            desc = SimpleNamespace(num_reqs=self._rows, drafts=drafts)
            self.rounds[self._rows, drafts] = make_round(desc, False)

    def of(self, requests: int, drafts: int) -> Any:
        found = (self._rows, drafts) in self.rounds and requests <= self._rows
        return SimpleNamespace(num_reqs=self._rows, drafts=drafts) if found else None

    def run_fullgraph(self, graph: Any) -> None:
        self.ran.append((graph.num_reqs, graph.drafts))
        self.rounds[graph.num_reqs, graph.drafts](CUDAGraphMode.FULL)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], list[int], int]]:
    """The slots, positions and step of each sampling, which takes the largest logit."""
    calls: list[tuple[list[int], list[int], int]] = []

    def sample(
        logits: torch.Tensor, slots: torch.Tensor, temperature: Any, seeds: Any, pos: torch.Tensor,
        *, logits_cache: torch.Tensor, logits_cache_col: torch.Tensor, **options: Any,
    ) -> torch.Tensor:  # fmt: skip
        assert options["apply_temperature"]
        assert options["is_drafting"]
        calls.append((slots.tolist(), pos.tolist(), int(logits_cache_col)))
        return logits.argmax(-1)

    monkeypatch.setattr(module, "gumbel_sample", sample)
    return calls


def config(table: Any) -> Any:
    """An engine's configuration, as far as vLLM's speculator and tandem's go by it."""
    draft = SimpleNamespace(
        dtype=torch.float32, get_hidden_size=lambda: 1, get_vocab_size=lambda: VOCABULARY
    )
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            method="draft_model", num_speculative_tokens=DRAFTS, draft_model_config=draft,
            num_speculative_tokens_per_batch_size=table, draft_sample_method="probabilistic",
            use_local_argmax_reduction=False,
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=SIZE, max_num_batched_tokens=64),
        model_config=SimpleNamespace(
            max_model_len=LONGEST, dtype=torch.float32, head_dtype=torch.float32,
            use_fp64_gumbel=False,
        ),
        parallel_config=SimpleNamespace(data_parallel_size=1, data_parallel_rank=0),
        additional_config={"tandem": {}},
    )  # fmt: skip


@dataclass
class Setup:
    speculator: Any
    two: Pass
    """Passes over the last two tokens, with which most rounds begin."""
    one: Pass
    """Passes over the newest token or the draft before."""
    graphs: Graphs


WITH_NONE = [(1, 1, DRAFTS), (2, SIZE, 0)]
"""A table in which larger batches have no drafts."""


def make(monkeypatch: pytest.MonkeyPatch, *, rows: int = 0, table: Any = WITH_NONE) -> Setup:
    """rows: of the graphs that are captured; 0 for none."""
    passes: dict[int, Pass] = {}

    def make_pass(config: Any, width: int, size: int, device: torch.device) -> Pass:
        passes[width] = Pass(config, width, size, device)
        return passes[width]

    graphs = Graphs(rows)
    monkeypatch.setattr(module, "JuniorPass", make_pass)
    monkeypatch.setattr(module, "RoundGraphs", lambda *arguments: graphs)
    vllms = sys.modules[module.DraftModelSpeculator.__module__]
    monkeypatch.setattr(vllms, "_target_feeds_hc_residual", lambda config: False, raising=False)
    made = JuniorSpeculator(config(table), torch.device("cpu"))
    made.model = SimpleNamespace(
        logits=lambda hidden: torch.eye(VOCABULARY).roll(1, 1)[hidden[:, 0].long()]
    )
    made.init_cudagraph_manager(CUDAGraphMode.FULL)
    made.capture()
    made.hidden.fill_(-1.0)
    return Setup(made, passes[2], passes[1], graphs)


class State:
    """What the speculator asks of the state, after a step."""

    def __init__(self, computed: torch.Tensor, masks: Any) -> None:
        gpu = SimpleNamespace
        self.request_states = gpu(
            num_computed_tokens=gpu(gpu=computed), all_token_ids=gpu(gpu=TOKENS)
        )
        self.was_read: list[Any] = []
        self.is_kept: list[bool] = []
        self._masks = masks

    def read(self, batch: Any) -> None:
        self.was_read.append(batch)

    def draft_masks(self, batch: Any) -> Any:
        return self._masks

    def keep_next_hidden(self, batch: Any, *, is_kept: bool) -> None:
        self.is_kept.append(is_kept)


TOKENS = torch.arange(SIZE * LONGEST, dtype=torch.int32).view(SIZE, LONGEST)
"""Slot s holds s * LONGEST at position 0, and counts on."""


def propose(
    made: Any, slots: list[int], computed: list[int], *, prompts: bool | list[bool] = False,
    drafted: int = 0,
    masks: Any = None, **requested: Any,
) -> tuple[torch.Tensor, State]:  # fmt: skip
    """A round after a step that leaves so many tokens of each slot computed.

    prompts: whether the requests, or which of them, were prompts in the step. drafted: the drafts
    that it verified.
    """
    lengths = torch.zeros(SIZE, dtype=torch.int32)
    lengths[slots] = torch.tensor(computed, dtype=torch.int32)
    made.model_state = State(lengths, masks)
    batch = SimpleNamespace(
        num_reqs=len(slots),
        idx_mapping=torch.tensor(slots, dtype=torch.int32),
        is_prefilling_np=np.array([prompts] * len(slots) if isinstance(prompts, bool) else prompts),
        seq_lens_cpu_upper_bound=torch.tensor([*computed, 0, 0], dtype=torch.int32),
        num_draft_tokens=drafted,
    )
    drafts = made.propose(batch, *[None] * 8, *SAMPLING, **requested)
    assert made.model_state.was_read == [batch] * bool(np.any(prompts))
    return drafts, made.model_state


SAMPLING = torch.ones(SIZE), torch.ones(SIZE, dtype=torch.int64)
"""Temperature and seed of every slot."""


def test_the_first_pass_reads_the_last_two_tokens_and_each_other_one_the_draft_before(
    sampled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(monkeypatch)
    drafts, _ = propose(made.speculator, [2, 0], [5, 3])
    # The newest token lies at the position that is not computed yet.
    assert made.two.read == [([28, 29, 2, 3], [4, 5, 2, 3], [6, 4])]
    assert made.one.read == [([30, 4], [6, 4], [7, 5]), ([31, 5], [7, 5], [8, 6])]
    assert drafts.tolist() == [[30, 31, 32], [4, 5, 6]]
    assert sampled == [([2, 0], [5, 3], 0), ([2, 0], [6, 4], 1), ([2, 0], [7, 5], 2)]
    assert made.speculator.hidden[[2, 0], :, 0].tolist() == [[29, 30, 31], [3, 4, 5]]
    assert made.speculator.hidden[1].tolist() == [[-1.0]] * DRAFTS


@pytest.mark.usefixtures("sampled")
def test_in_a_step_with_prompts_the_junior_reads_them_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make(monkeypatch)
    drafts, _ = propose(made.speculator, [1], [1], prompts=True)
    assert made.two.read == [([12, 13], [0, 1], [2])]
    assert drafts.tolist() == [[14, 15, 16]]


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("prompts", [[True, False], [False, True], [True, True]])
@pytest.mark.parametrize("drafts", [0, DRAFTS])
def test_prompts_that_come_in_while_others_decode_are_read(
    monkeypatch: pytest.MonkeyPatch, prompts: list[bool], drafts: int
) -> None:
    """Otherwise the junior's cache would lack them."""
    made = make(monkeypatch)
    _, state = propose(
        made.speculator, [2, 0], [5, 3], prompts=prompts, num_speculative_tokens=drafts
    )
    assert len(state.was_read) == 1


@pytest.mark.usefixtures("sampled")
def test_a_round_has_as_many_drafts_as_were_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    speculator = make(monkeypatch).speculator
    drafts, _ = propose(speculator, [1], [2], num_speculative_tokens=2)
    assert drafts.tolist() == [[15, 16, -1]]
    speculator.requested_drafts = 1  # as set for a runner that does not pass it
    drafts, state = propose(speculator, [1], [2])
    assert drafts.tolist() == [[15, -1, -1]]
    assert state.is_kept == [False]
    drafts, _ = propose(speculator, [1], [2], num_speculative_tokens=9)
    assert drafts.tolist() == [[15, 16, 17]]


@pytest.mark.usefixtures("sampled")
def test_an_engine_that_always_drafts_drafts_in_vllms_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which requests none until 0.31."""
    speculator = make(monkeypatch, table=None).speculator
    speculator.requested_drafts = 0
    drafts, _ = propose(speculator, [1], [2])
    assert drafts.tolist() == [[15, 16, 17]]


NEWEST, LAST_TWO = [([29, 3], [5, 3], [6, 4])], [([28, 29, 2, 3], [4, 5, 2, 3], [6, 4])]


@pytest.mark.parametrize(
    ("step", "two", "one"),
    [
        ({}, [], NEWEST),
        ({"drafted": 4}, LAST_TWO, []),  # the last draft was never read
        ({"drafted": 4, "prompts": True}, [], NEWEST),  # the step before was read just now
    ],
)
def test_without_drafts_the_junior_reads_the_newest_token_and_its_hidden_state_is_kept(
    step: dict[str, Any], two: list[Any], one: list[Any], sampled: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made = make(monkeypatch)
    drafts, state = propose(made.speculator, [2, 0], [5, 3], num_speculative_tokens=0, **step)
    assert made.two.read == two
    assert made.one.read == one
    assert made.speculator.hidden[[2, 0], 0, 0].tolist() == [29, 3]
    assert (made.speculator.hidden[[1, 3]] == -1).all()
    assert sampled == []
    assert state.is_kept == [True]
    assert drafts.tolist() == [[0] * DRAFTS] * 2, "placeholders are ids"


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.usefixtures("sampled")
def test_a_round_of_any_length_is_the_graph_of_its_length(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And writes what a round without graphs would."""
    made, plain = make(monkeypatch, rows=3), make(monkeypatch)
    requested = {"num_speculative_tokens": length}
    drafts, _ = propose(made.speculator, [2, 0], [5, 3], **requested)
    expected, _ = propose(plain.speculator, [2, 0], [5, 3], **requested)
    assert made.graphs.ran == [(3, length)]
    assert drafts.tolist() == expected.tolist()
    slots = slice(SIZE)
    assert torch.equal(made.speculator.hidden[slots], plain.speculator.hidden[slots])


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        ({"masks": object(), "num_speculative_tokens": 0}, [(2, 0)]),
        ({"drafted": 4, "num_speculative_tokens": 0}, []),
    ],
)
def test_without_drafts_masks_wait_for_the_next_step_and_unread_drafts_for_no_graph(
    options: dict[str, Any], ran: list[Any], sampled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(monkeypatch, rows=2)
    propose(made.speculator, [1], [2], **options)
    assert made.graphs.ran == ran
    assert sampled == []


@pytest.mark.usefixtures("sampled")
def test_padding_is_neither_read_nor_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a graph runs it, over more rows than there are requests."""
    made = make(monkeypatch, rows=3)
    propose(made.speculator, [2], [5])
    assert made.graphs.ran == [(3, DRAFTS)]
    assert made.speculator.idx_mapping.tolist() == [2, -1, -1, -1]
    assert [lengths for *_, lengths in made.one.read] == [[7, 0, 0], [8, 0, 0]]
    assert made.speculator.draft_tokens[:3].tolist() == [[30, 31, 32], [0] * 3, [0] * 3]
    assert (made.speculator.hidden[[0, 1, 3]] == -1).all()


@pytest.mark.usefixtures("sampled")
def test_a_dummy_round_touches_nothing_of_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(monkeypatch)
    batch = SimpleNamespace(num_reqs=2)
    made.speculator.propose(batch, *[None] * 8, *SAMPLING, dummy_run=True)
    assert made.two.requests == made.one.requests == 0
    assert made.two.read[0][2] == [0, 0]
    assert len(made.one.read) == DRAFTS - 1
    assert (made.speculator.hidden[:SIZE] == -1).all()


@pytest.mark.usefixtures("sampled")
def test_no_pass_reads_past_the_longest_that_the_engine_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make(monkeypatch)
    propose(made.speculator, [0], [LONGEST - 2])
    assert made.one.read[0][1:] == ([LONGEST - 1], [LONGEST])
    assert made.one.read[1][1:] == ([LONGEST - 1], [LONGEST])


@pytest.mark.usefixtures("sampled")
def test_a_round_with_masks_samples_from_masked_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is no graph, which has none."""
    seen: list[int] = []

    class Masks:
        def masked(self, logits: torch.Tensor, step: int) -> torch.Tensor:
            seen.append(step)
            return logits.roll(1, 1)

    made = make(monkeypatch, rows=2)
    drafts, _ = propose(made.speculator, [1], [2], masks=Masks())
    assert drafts.tolist() == [[16, 18, 20]]
    assert seen == [0, 1, 2]
    assert made.graphs.ran == []
