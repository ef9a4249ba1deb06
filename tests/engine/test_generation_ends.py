"""Where a team's responses end, by what each model's configuration says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine import generation_ends
from tandem_plugin.engine.generation_ends import (
    Pair,
    end_at_either,
    ends_of,
    ids_within_responses,
    reconciled,
)

PIECES = ("a", "Ġa", ".", "<|endoftext|>", "<|im_end|>", "<|end|>")
BASE, CHAT, CHANNEL = 3, 4, 5
VOCABULARY = Vocabulary(PIECES, "made up", "byte-level BPE", frozenset({BASE, CHAT, CHANNEL}))
PAIR = Pair("the senior", "the junior")

Ends = set[int]


def added(senior: Ends, junior: Ends, within: Ends | None = None, shared: int = 6) -> Ends:
    ends = frozenset(senior), frozenset(junior)
    return {*reconciled(*ends, VOCABULARY, shared, PAIR, frozenset(within or ()))}


@pytest.mark.parametrize(
    ("senior", "junior", "more"),
    [
        ({BASE}, {BASE}, set()),
        ({BASE}, {CHAT, BASE}, {CHAT}),
        ({BASE}, {CHAT}, {CHAT}),
        ({CHAT, BASE}, {BASE}, set()),
        ({CHAT}, {1, CHAT}, set()),
        ({CHAT}, {1, BASE}, {BASE}),
        ({CHAT}, set(), set()),
        (set(), {CHAT}, {CHAT}),
        ({BASE, 99}, {BASE}, set()),
        ({BASE}, {99, BASE}, set()),
    ],
)
def test_juniors_ends_are_added_if_they_are_no_text(senior: Ends, junior: Ends, more: Ends) -> None:
    assert added(senior, junior) == more


@pytest.mark.parametrize("junior", [{1}, {99}, {CHANNEL}])
def test_junior_without_an_end_that_the_team_can_take_is_refused(junior: Ends) -> None:
    """An ordinary token, an id that nobody has, the end of a channel before the answer."""
    with refused("generation-ends-differ", model="the senior", junior="the junior"):
        added({BASE}, junior, within={CHANNEL})


def test_senior_whose_ends_are_never_sampled_is_refused() -> None:
    with refused("generation-end-not-shared", size=4):
        added({CHAT, 99}, {CHAT}, shared=4)


@pytest.mark.parametrize(
    ("senior", "junior", "said"),
    [
        ({BASE}, {CHAT}, "4 ('<|im_end|>')"),
        ({CHAT}, {CHAT, 1}, "1 ('Ġa')"),
        (set(), set(), "Neither model names an id"),
        ({CHAT, BASE}, {CHAT}, None),
    ],
)
def test_what_differs_is_said(
    senior: Ends, junior: Ends, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        added(senior, junior)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (said is not None)
    assert said is None or said in messages[0]


@pytest.mark.parametrize("eos", [None, 7, [7, 8]])
@pytest.mark.parametrize("own", [None, 9])
def test_ends_of_a_model_are_those_of_vllm(eos: Any, own: int | None) -> None:
    model = SimpleNamespace(
        try_get_generation_config=lambda: {} if eos is None else {"eos_token_id": eos}
    )
    listed = {None: set()}.get(eos) if eos is None else {*(eos if isinstance(eos, list) else [eos])}
    expected = {*(listed or set()), *([] if own is None else [own])}
    assert ends_of(model, SimpleNamespace(eos_token_id=own)) == expected
    assert ends_of(model, None) == (listed or set())


@pytest.mark.parametrize("eos", [[[7, 8]], 7.0, [7, 8.0], "7", [True]])
def test_ends_that_are_no_token_ids_are_refused_in_words(eos: Any) -> None:
    model = SimpleNamespace(model="m", try_get_generation_config=lambda: {"eos_token_id": eos})
    with refused("generation-end-invalid", model="m"):
        ends_of(model, None)


@pytest.fixture
def params() -> Any:
    return SimpleNamespace(stop_token_ids=[BASE], all_stop_token_ids={BASE}, ignore_eos=False)


@pytest.fixture
def request_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(generation_ends, "added_ends", lambda config: frozenset({CHAT}))
    rules = TandemRules(TandemConfig(), VOCABULARY)
    return lambda **settings: rules.for_request({"seed": 1, **settings})


@pytest.mark.parametrize("eos", [-1, [-1], [-1, 4]])
def test_end_of_minus_one_is_none(eos: Any) -> None:
    """An id that no token has would count as one at which responses can end."""
    model = SimpleNamespace(model="m", try_get_generation_config=lambda: {"eos_token_id": eos})
    assert ends_of(model, None) == ({4} if eos == [-1, 4] else set())


def test_request_in_tandem_ends_at_either(params: Any, request_of: Callable[..., Any]) -> None:
    end_at_either(None, request_of(), params)
    assert params.stop_token_ids == [BASE, CHAT]
    assert params.all_stop_token_ids == {BASE, CHAT}


def test_request_that_ignores_ends_ignores_the_juniors(
    params: Any, request_of: Callable[..., Any]
) -> None:
    params.ignore_eos = True
    end_at_either(None, request_of(), params)
    assert params.stop_token_ids == [BASE]
    assert params.all_stop_token_ids == {BASE, CHAT}


def test_senior_alone_ends_where_it_always_does(
    params: Any, request_of: Callable[..., Any]
) -> None:
    for resolved in (None, request_of(schedule="solo")):
        end_at_either(None, resolved, params)
        assert params.stop_token_ids == [BASE]


def test_tokens_within_a_response_are_found_by_the_chat_template() -> None:
    """As in gpt-oss, where a thought ends with <|end|> before the answer begins."""

    def harmony(turns: list[dict[str, str]], **options: Any) -> str:
        text = "<|start|>user<|message|>A question<|end|><|start|>assistant"
        thought = "<|channel|>analysis<|message|>A thought<|end|><|start|>assistant"
        answer = "<|channel|>final<|message|>An answer<|im_end|>"
        return text if options.get("add_generation_prompt") else text + thought + answer

    tokenizer = SimpleNamespace(apply_chat_template=harmony)
    assert ids_within_responses(tokenizer, VOCABULARY) == {CHANNEL}
    assert ids_within_responses(SimpleNamespace(), VOCABULARY) == set()
