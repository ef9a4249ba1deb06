"""What the junior's drafts are sampled from, and what is refused before anything is drafted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tandem_plugin.engine.speculative import junior as junior_module
from tandem_plugin.engine.speculative.drafting import Drafting
from tandem_plugin.engine.speculative.junior import TandemJunior, junior_of
from tandem_plugin.engine.speculative.requests import check_sampling
from tandem_plugin.errors import EngineError, RequestError

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


def drafting(slots: list[int], sampler: Any) -> Drafting:
    return Drafting(
        torch.tensor(slots),
        np.array(slots),
        sampler,
        torch.tensor([10 + slot for slot in slots]),
        torch.zeros(SLOTS, STEPS, HIDDEN),
    )


def test_drafts_are_masked_by_each_rows_own_request_and_keep_their_values() -> None:
    sampler = Masks()
    round_ = drafting([2, 0], sampler)
    for step in range(STEPS):
        logits = torch.randn(2, VOCABULARY).to(torch.bfloat16)
        masked = round_.masked(torch.full((2, HIDDEN), float(step + 1)), logits)
        assert masked.dtype == torch.bfloat16
        assert masked.isneginf().nonzero().tolist() == [[0, 2], [1, 0]]
        allowed = ~masked.isneginf()
        assert torch.equal(masked[allowed], logits[allowed])
    assert sampler.positions == [[12, 10], [13, 11]]
    assert round_.is_done
    expected = torch.zeros(SLOTS, STEPS, HIDDEN)
    expected[[0, 2]] = torch.tensor([[1.0] * HIDDEN, [2.0] * HIDDEN])
    assert torch.equal(round_.hidden, expected)


def test_drafts_of_plain_requests_are_left_as_they_are() -> None:
    sampler = Masks()
    sampler.needed = False
    logits = torch.randn(1, VOCABULARY)
    assert drafting([1], sampler).masked(torch.zeros(1, HIDDEN), logits) is logits


def test_drafting_for_other_rows_than_expected_stops() -> None:
    round_ = drafting([1, 2], Masks())
    with pytest.raises(EngineError, match="asked for 3 rows at step 0 of drafting, but 2 requests"):
        round_.masked(torch.zeros(3, HIDDEN), torch.zeros(3, VOCABULARY))


def test_drafting_that_passed_by_stops() -> None:
    round_ = drafting([1], Masks())
    round_.masked(torch.zeros(1, HIDDEN), torch.zeros(1, VOCABULARY))
    with pytest.raises(EngineError, match="made 1 of 2 steps of drafting"):
        round_.check_done()
    round_.masked(torch.zeros(1, HIDDEN), torch.zeros(1, VOCABULARY))
    round_.check_done()
    with pytest.raises(EngineError, match="at step 2 of drafting"):
        round_.masked(torch.zeros(1, HIDDEN), torch.zeros(1, VOCABULARY))


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


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[TandemJunior, Any]:
    monkeypatch.setattr(junior_module, "load_junior", lambda config: Inner())
    config = SimpleNamespace(compilation_config=object())
    return TandemJunior(vllm_config=config, prefix="draft_model"), config


def test_no_weight_of_the_junior_is_a_parameter_and_every_one_a_buffer(
    made: tuple[TandemJunior, Any],
) -> None:
    junior, config = made
    assert junior_of(config) is junior
    assert list(junior.named_parameters()) == []
    assert dict(junior.state_dict()) == {}
    buffers = dict(junior.named_buffers())
    assert buffers["weight"] is junior.junior.weight
    assert buffers["table"] is junior.junior.table


def test_weights_are_ignored_while_the_engine_starts_and_refused_later(
    made: tuple[TandemJunior, Any],
) -> None:
    junior, _ = made
    before = junior.junior.weight.clone()
    assert junior.load_weights([("weight", torch.zeros(2))]) == set()
    junior.freeze()
    with pytest.raises(EngineError, match="sent to the draft model, which is tandem's junior"):
        junior.load_weights([("weight", torch.zeros(2))])
    assert torch.equal(junior.junior.weight, before)


def test_only_a_rounds_own_steps_are_masked(made: tuple[TandemJunior, Any]) -> None:
    junior, _ = made
    hidden = junior(torch.tensor([3]), torch.tensor([1]))
    plain = junior.compute_logits(hidden)
    assert plain is not None
    assert plain.tolist() == [[8.0] * VOCABULARY]
    junior.draft(drafting([1], Masks()))
    for _ in range(STEPS):
        masked = junior.compute_logits(hidden)
        assert masked is not None
        assert masked.isneginf().sum() == 1
    again = junior.compute_logits(hidden)
    assert again is not None
    assert torch.equal(again, plain)


PLAIN = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "bad_words": None,
    "structured_outputs": None,
    "logprob_token_ids": None,
}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"presence_penalty": 0.1}, "presence_penalty=0.1 is not supported in tandem"),
        ({"frequency_penalty": -0.1}, "frequency_penalty=-0.1 is not supported in tandem"),
        ({"repetition_penalty": 0.9}, "repetition_penalty=0.9 is not supported in tandem"),
        ({"bad_words": ["x"]}, r"bad_words=\['x'\] is not supported in tandem"),
        ({"structured_outputs": "a grammar"}, "structured_outputs='a grammar' is not supported"),
        ({"thinking_token_budget": 0}, "thinking_token_budget=0 is not supported in tandem"),
    ],
)
def test_what_follows_the_tokens_so_far_is_refused_in_tandem_alone(
    asked: dict[str, Any], said: str
) -> None:
    params = SimpleNamespace(**(PLAIN | asked))
    with pytest.raises(RequestError, match=said):
        check_sampling(params, in_tandem=True)
    check_sampling(params, in_tandem=False)
    check_sampling(SimpleNamespace(**PLAIN), in_tandem=True)


@pytest.mark.parametrize("in_tandem", [False, True])
def test_logprobs_that_vllm_would_leave_out_are_refused(in_tandem: bool) -> None:
    params = SimpleNamespace(**(PLAIN | {"logprob_token_ids": [1, 2]}))
    with pytest.raises(RequestError, match="rejection sampler leaves them out"):
        check_sampling(params, in_tandem=in_tandem)
