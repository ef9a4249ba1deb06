"""A round of drafting: what the junior reads, what is sampled from it, and what is kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("vllm")

from tandem_plugin.engine.speculative import speculator as module
from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

SIZE, DRAFTS, VOCABULARY, LONGEST = 4, 3, 50, 12


class Pass:
    """Passes of a junior whose hidden state behind a token is the token: it drafts the next id."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.input_ids = torch.zeros(SIZE * width, dtype=torch.int32)
        self.positions = torch.zeros(SIZE * width, dtype=torch.int64)
        self.requests = -1
        self.read: list[tuple[list[int], list[int], Any]] = []

    def lay_out(self, requests: int) -> None:
        self.requests = requests

    def metadata(
        self, rows: int, seq_lens: torch.Tensor, longest: torch.Tensor, capturing: bool = False
    ) -> Any:
        assert (longest >= seq_lens).all()
        return self.width, seq_lens.tolist()

    def run(self, junior: Any, rows: int, slots: torch.Tensor, metadata: Any) -> torch.Tensor:
        tokens = rows * self.width
        width, lengths = metadata
        assert width == self.width, "metadata of another kind of pass"
        ids = self.input_ids[:tokens]
        self.read.append((ids.tolist(), self.positions[:tokens].tolist(), lengths))
        return ids.view(rows, -1)[:, -1:].float()


class NoGraphs:
    def of(self, requests: int, drafts: int) -> Any:
        return None


class Graphs:
    """One for every size and length, which only counts."""

    def __init__(self) -> None:
        self.ran: list[tuple[int, int]] = []

    def of(self, requests: int, drafts: int) -> Any:
        return SimpleNamespace(num_reqs=requests + 1, drafts=drafts)

    def run_fullgraph(self, graph: Any) -> None:
        self.ran.append((graph.num_reqs, graph.drafts))


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


def of_vllm(made: Any, config: Any, device: torch.device) -> None:
    """What vLLM's own ``__init__`` leaves behind."""
    made.num_speculative_steps, made.max_num_reqs, made.max_model_len = DRAFTS, SIZE, LONGEST
    made.hidden_size, made.vocab_size = 1, VOCABULARY
    made.draft_model_config = SimpleNamespace(dtype=torch.float32)
    made.temperature, made.seeds = torch.zeros(SIZE), torch.zeros(SIZE, dtype=torch.int64)
    made.idx_mapping = torch.zeros(SIZE, dtype=torch.int32)
    made.draft_tokens = torch.zeros(SIZE, DRAFTS, dtype=torch.int64)
    made.draft_logits, made.use_fp64_gumbel = torch.zeros(SIZE, DRAFTS, VOCABULARY), False


@pytest.fixture(autouse=True)
def _without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.DraftModelSpeculator, "__init__", of_vllm)
    monkeypatch.setattr(module, "JuniorPass", lambda config, width, size, device: Pass(width))
    monkeypatch.setattr(module, "draft_lengths", lambda config: [DRAFTS, DRAFTS, 0])


def make() -> Any:
    made: Any = JuniorSpeculator(None, torch.device("cpu"))
    made.hidden.fill_(-1.0)
    made._graphs = NoGraphs()
    made.model = SimpleNamespace(
        logits=lambda hidden: torch.eye(VOCABULARY).roll(1, 1)[hidden[:, 0].long()]
    )
    return made


TOKENS = torch.arange(SIZE * LONGEST, dtype=torch.int32).view(SIZE, LONGEST)
"""Slot s holds s * LONGEST at position 0, and counts on."""


def propose(made: Any, slots: list[int], computed: list[int], **options: Any) -> Any:
    """A round behind a step after which so many tokens of each slot are computed."""
    lengths = torch.zeros(SIZE, dtype=torch.int32)
    lengths[slots] = torch.tensor(computed, dtype=torch.int32)
    read: list[Any] = []
    made.model_state = SimpleNamespace(
        request_states=SimpleNamespace(
            num_computed_tokens=SimpleNamespace(gpu=lengths),
            all_token_ids=SimpleNamespace(gpu=TOKENS),
        ),
        masks=lambda batch: options.get("masks"),
        read=read.append,
        foresees=lambda batch, foreseen: made.foreseen.append(foreseen),
    )
    made.foreseen = []
    batch = SimpleNamespace(
        num_reqs=len(slots),
        idx_mapping=torch.tensor(slots, dtype=torch.int32),
        is_prefilling_np=torch.tensor([options.get("prompts", False)] * len(slots)).numpy(),
        seq_lens_cpu_upper_bound=torch.tensor([*computed, 0, 0], dtype=torch.int32),
        num_draft_tokens=options.get("drafted", 0),
    )
    nothing: Any = None
    drafts = made.propose(
        batch, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing,
        torch.ones(SIZE), torch.ones(SIZE, dtype=torch.int64), **options.get("asked", {}),
    )  # fmt: skip
    return drafts, read == [batch]


def test_the_first_pass_reads_the_last_two_tokens_and_each_other_one_the_draft_before(
    sampled: list[Any],
) -> None:
    made = make()
    drafts, read = propose(made, [2, 0], [5, 3])
    assert not read
    # The newest token lies at the position that is not computed yet.
    assert made._first.read == [([28, 29, 2, 3], [4, 5, 2, 3], [6, 4])]
    assert made._following.read == [([30, 4], [6, 4], [7, 5]), ([31, 5], [7, 5], [8, 6])]
    assert drafts.tolist() == [[30, 31, 32], [4, 5, 6]]
    assert sampled == [([2, 0], [5, 3], 0), ([2, 0], [6, 4], 1), ([2, 0], [7, 5], 2)]
    assert made.hidden[[2, 0], :, 0].tolist() == [[29, 30, 31], [3, 4, 5]]
    assert made.hidden[1].tolist() == [[-1.0]] * DRAFTS


def test_in_a_step_with_prompts_the_junior_reads_them_before(sampled: list[Any]) -> None:
    made = make()
    drafts, read = propose(made, [1], [1], prompts=True)
    assert read
    assert made._first.read == [([12, 13], [0, 1], [2])]
    assert drafts.tolist() == [[14, 15, 16]]


@pytest.mark.usefixtures("sampled")
def test_a_round_has_as_many_drafts_as_were_asked_for() -> None:
    """But vLLM's warm-up asks for none, also of an engine that always drafts."""
    made = make()
    drafts, _ = propose(made, [1], [2], asked={"num_speculative_tokens": 2})
    assert drafts.tolist() == [[15, 16, -1]]
    made.asked = 1  # where the runner does not say
    drafts, _ = propose(made, [1], [2])
    assert drafts.tolist() == [[15, -1, -1]]
    assert made.foreseen == [False]
    made.asked, made._can_skip_drafts = 0, False
    drafts, _ = propose(made, [1], [2])
    assert drafts.tolist() == [[15, 16, 17]]


NONE = {"num_speculative_tokens": 0}
NEWEST, LAST_TWO = [([29, 3], [5, 3], [6, 4])], [([28, 29, 2, 3], [4, 5, 2, 3], [6, 4])]


@pytest.mark.parametrize(
    ("options", "first", "following"),
    [
        ({}, [], NEWEST),
        ({"drafted": 4}, LAST_TWO, []),  # behind a round with drafts, whose last nobody read
        ({"drafted": 4, "prompts": True}, [], NEWEST),  # the step before was read just now
    ],
)
def test_without_drafts_the_junior_reads_the_newest_token_and_what_it_says_is_kept(
    options: dict[str, Any], first: list[Any], following: list[Any], sampled: list[Any]
) -> None:
    made = make()
    _, read = propose(made, [2, 0], [5, 3], asked=NONE, **options)
    assert read is options.get("prompts", False)
    assert made._first.read == first
    assert made._following.read == following
    assert made.hidden[[2, 0], 0, 0].tolist() == [29, 3]
    assert (made.hidden[[1, 3]] == -1).all()
    assert sampled == []
    assert made.foreseen == [True]


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_round_of_any_length_is_the_graph_of_its_length(length: int, sampled: list[Any]) -> None:
    made = make()
    made._graphs = Graphs()
    propose(made, [2, 0], [5, 3], asked={"num_speculative_tokens": length})
    assert made._graphs.ran == [(3, length)]
    assert made._first.read == made._following.read == sampled == []
    # What the graph reads: the tokens, wherever its first pass looks for them.
    assert made._first.input_ids[:4].tolist() == [28, 29, 2, 3]
    assert made._following.input_ids[:2].tolist() == [29, 3]


@pytest.mark.parametrize("options", [{"masks": object()}, {"drafted": 4}])
def test_without_drafts_masks_wait_for_the_next_step_and_unread_drafts_for_no_graph(
    options: dict[str, Any], sampled: list[Any]
) -> None:
    made = make()
    made._graphs = Graphs()
    propose(made, [1], [2], asked=NONE, **options)
    assert made._graphs.ran == ([] if "drafted" in options else [(2, 0)])
    assert sampled == []


@pytest.mark.usefixtures("sampled")
def test_padding_is_neither_read_nor_kept() -> None:
    """As a graph runs it, over more rows than there are requests."""
    made = make()
    propose(made, [2], [5])
    kept = made.hidden[:SIZE].clone()
    made._draft(3, lambda step: (2 - (step > 0), made._seq_lens[:3].tolist()), DRAFTS)
    assert made.idx_mapping.tolist() == [2, -1, -1, -1]
    assert [read[2] for read in made._following.read[-2:]] == [[9, 0, 0], [10, 0, 0]]
    assert made.draft_tokens[1:3].tolist() == [[0] * DRAFTS] * 2
    others = [0, 1, 3]
    assert torch.equal(made.hidden[others], kept[others])


@pytest.mark.usefixtures("sampled")
def test_a_dummy_round_touches_nothing_of_any_request() -> None:
    made = make()
    batch = SimpleNamespace(num_reqs=2)
    nothing: Any = None
    made.propose(
        batch, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing,
        torch.ones(SIZE), torch.ones(SIZE, dtype=torch.int64), dummy_run=True,
    )  # fmt: skip
    assert made._first.requests == made._following.requests == 0
    assert made._first.read[0][2] == [0, 0]
    assert (made.hidden[:SIZE] == -1).all()


@pytest.mark.usefixtures("sampled")
def test_no_pass_reads_behind_the_longest_that_the_engine_reads() -> None:
    made = make()
    propose(made, [0], [LONGEST - 2])
    assert made._following.read[0][1:] == ([LONGEST - 1], [LONGEST])
    assert made._following.read[1][1:] == ([LONGEST - 1], [LONGEST])


def test_a_round_with_masks_samples_from_masked_logits(sampled: list[Any]) -> None:
    seen: list[int] = []

    class Masks:
        def masked(self, logits: torch.Tensor, step: int) -> torch.Tensor:
            seen.append(step)
            return logits.roll(1, 1)

    drafts, _ = propose(make(), [1], [2], masks=Masks())
    assert drafts.tolist() == [[16, 18, 20]]
    assert seen == [0, 1, 2]
