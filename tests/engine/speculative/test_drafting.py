"""What the junior's drafts are sampled from, and what is refused before anything is drafted."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from refused import refused

from tandem_plugin.engine.admission import check_sampling
from tandem_plugin.engine.speculative import draft_model
from tandem_plugin.engine.speculative.draft_model import TandemJunior, junior_of
from tandem_plugin.engine.speculative.drafting import DraftMasks, asks_for_masks

SLOTS, STEPS, HIDDEN, VOCABULARY = 4, 2, 3, 5


class Masks:
    """A sampler that allows each slot one token less than the vocabulary: its own number."""

    def __init__(self) -> None:
        self.positions: list[list[int]] = []
        self.needed = True

    def apply_sampling_params(
        self, logits: torch.Tensor, slots: torch.Tensor, *rest: Any
    ) -> torch.Tensor:
        if not self.needed:
            return logits
        self.positions.append(rest[2].tolist())
        processed = logits.float() / 0.7  # as a temperature changes what is allowed
        return processed.scatter(1, slots[:, None], -torch.inf)


def drafting(slots: list[int], sampler: Any) -> DraftMasks:
    positions = torch.tensor([10 + slot for slot in slots])
    return DraftMasks(torch.tensor(slots), np.array(slots), sampler, positions)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_drafts_are_masked_by_each_rows_own_request_and_keep_their_values(
    dtype: torch.dtype,
) -> None:
    sampler = Masks()
    round_ = drafting([2, 0], sampler)
    for step in range(STEPS):
        logits = torch.randn(2, VOCABULARY).to(dtype)
        masked = round_.masked(logits, step)
        assert masked.dtype == dtype
        assert masked.isneginf().nonzero().tolist() == [[0, 2], [1, 0]]
        allowed = ~masked.isneginf()
        assert torch.equal(masked[allowed], logits[allowed])
    assert sampler.positions == [[12, 10], [13, 11]]


def test_drafts_of_plain_requests_are_left_as_they_are() -> None:
    sampler = Masks()
    sampler.needed = False
    logits = torch.randn(1, VOCABULARY)
    assert drafting([1], sampler).masked(logits, 0) is logits


def test_a_sampler_that_asks_for_lengths_is_given_one_for_each_row() -> None:
    """vLLM's does from 0.31 on."""

    class Lengths(Masks):
        def apply_sampling_params(
            self,
            logits: torch.Tensor,
            slots: torch.Tensor,
            again: torch.Tensor,
            slots_host: Any,
            positions: torch.Tensor,
            input_ids: torch.Tensor,
            places: torch.Tensor,
            seq_lens_upper_bound_np: Any,
        ) -> torch.Tensor:
            assert seq_lens_upper_bound_np.shape == (2,)
            return super().apply_sampling_params(logits, slots, again, slots_host, positions)

    masked = drafting([2, 0], Lengths()).masked(torch.randn(2, VOCABULARY), 0)
    assert masked.isneginf().nonzero().tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize(
    "asked",
    [
        {"top_k": 1}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}, {"min_tokens": 1},
        {"allowed_token_ids": [1]}, {"logit_bias": {1: 1.0}},
    ],
)  # fmt: skip
def test_a_request_that_masks_its_logits_is_known(asked: dict[str, Any]) -> None:
    vllm = pytest.importorskip("vllm")
    assert asks_for_masks(vllm.SamplingParams(**asked))
    assert not asks_for_masks(vllm.SamplingParams(temperature=0.7, max_tokens=9, logprobs=2))
    assert not asks_for_masks(vllm.SamplingParams(top_k=-1, top_p=1.0, min_p=0.0))


class Inner(torch.nn.Module):
    """A model that doubles: hidden states of token ids, logits of hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("table", torch.ones(3))
        self.config = SimpleNamespace(vocab_size=VOCABULARY)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return input_ids[:, None].float().expand(-1, HIDDEN) + positions[:, None]

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden[:, :1].expand(-1, VOCABULARY) * 2


def make(monkeypatch: pytest.MonkeyPatch, seniors_ids: int) -> tuple[TandemJunior, Any]:
    monkeypatch.setattr(draft_model, "load_junior", lambda config: Inner())
    target = SimpleNamespace(get_vocab_size=lambda: seniors_ids)
    config = SimpleNamespace(
        compilation_config=object(), speculative_config=SimpleNamespace(target_model_config=target)
    )
    return TandemJunior(vllm_config=config, prefix="draft_model"), config


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[TandemJunior, Any]:
    return make(monkeypatch, VOCABULARY)


@pytest.mark.parametrize("more", [2, -1])
def test_drafts_are_sampled_from_the_seniors_ids(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """Where the vocabularies are padded to different lengths."""
    junior, _ = make(monkeypatch, VOCABULARY + more)
    logits = junior.logits(junior(torch.tensor([3]), torch.tensor([1])))
    own = [8.0] * VOCABULARY + [-torch.inf] * max(more, 0)
    assert logits.tolist() == [own[: VOCABULARY + more]]


def test_nothing_but_its_engine_holds_a_junior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine may start in the process once this one was cleared."""
    junior, config = make(monkeypatch, VOCABULARY)
    left = weakref.ref(junior)
    del junior
    gc.collect()
    assert left() is None
    with refused("foreign-speculator"):
        junior_of(config)


def test_weights_are_ignored_while_the_engine_starts_and_refused_later(
    made: tuple[TandemJunior, Any],
) -> None:
    junior, config = made
    assert junior_of(config) is junior
    assert list(junior.named_parameters()) == []
    before = junior.junior.weight.clone()
    assert junior.load_weights([("weight", torch.zeros(2))]) == set()
    junior.freeze()
    with refused("draft-weights-sent"):
        junior.load_weights([("weight", torch.zeros(2))])
    assert torch.equal(junior.junior.weight, before)


@pytest.mark.parametrize(
    ("asked", "code", "where"),
    [
        ({"bad_words": ["x"]}, "sampling-depends-on-history", [True]),
        ({"structured_outputs": "a grammar"}, "sampling-depends-on-history", [True]),
        ({"thinking_token_budget": 0}, "sampling-depends-on-history", [True]),
        ({"presence_penalty": 0.1}, "sampling-depends-on-history", [True]),
        ({"frequency_penalty": -0.1}, "sampling-depends-on-history", [True]),
        ({"repetition_penalty": 0.9}, "sampling-depends-on-history", [True]),
        ({"logprob_token_ids": [1, 2]}, "logprob-token-ids-unsupported", [True, False]),
        ({"repetition_penalty": 1.0, "bad_words": [], "logprob_token_ids": None}, "", []),
    ],
)
def test_parameters_that_drafts_cannot_follow_are_refused_where_they_matter(
    asked: dict[str, Any], code: str, where: list[bool]
) -> None:
    for in_tandem in (True, False):
        expected = refused(code) if in_tandem in where else nullcontext()
        with expected:
            check_sampling(SimpleNamespace(**asked), in_tandem=in_tandem)
