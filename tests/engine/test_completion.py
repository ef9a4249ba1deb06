"""What ``TandemLLM`` makes of vLLM's outputs: spans with their text, and colours in a notebook."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")

from refused import refused
from vllm.outputs import CompletionOutput

from tandem_plugin import Span, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.engine.completion import (
    NOTHING,
    SeedSource,
    SentRequest,
    TandemCompletion,
    resolve_requests,
    signed_completion,
)
from tandem_plugin.seeds import sample_seed
from tandem_plugin.spans import TokenBytes

IDS = [0, 2, 1, 7]


@pytest.fixture
def output() -> CompletionOutput:
    return CompletionOutput(2, "a ab", tuple(IDS), None, None, finish_reason="stop")


@pytest.fixture
def rules(byte_level: Vocabulary) -> TandemRules:
    return TandemRules(TandemConfig.from_mapping({"schedule": "token"}), byte_level)


@pytest.fixture
def signed(output: CompletionOutput, rules: TandemRules) -> TandemCompletion:
    """The third of three samples; its third token alone is the junior's."""
    authors = [1, 1, 0, 1]
    seeds = {seed: sample_seed(seed, 2) for seed in range(99)}
    seed = next(s for s in seeds if rules.default.replay(IDS, seeds[s]).tolist() == authors)
    asked = SentRequest(rules.for_request({"seed": seed}), None, 3)
    return signed_completion(output, [], asked, TokenBytes(rules.vocabulary), {})


def test_each_sample_has_the_scores_of_its_own_tokens(output: CompletionOutput, rules: TandemRules):
    request = SentRequest(rules.for_request({"seed": 1}), "7", 3)
    scores = {
        name: np.full((4, 3), number, np.float32) + np.array([0.25, 0.5, 0.75], np.float32)
        for number, name in enumerate(request.names)
    }
    signed = signed_completion(output, [], request, TokenBytes(rules.vocabulary), scores)
    columns = (signed.senior_logprobs, signed.junior_logprobs, signed.overlaps)
    assert [column.tolist() for column in columns] == [[2.25] * 4, [2.5] * 4, [2.75] * 4]


def test_parameters_beside_off_are_refused(rules: TandemRules):
    several = ["off", {"schedule": "off"}, {"schedule": "off", "seed": 1}]
    assert resolve_requests(rules, several, 3, SeedSource(None)) == [None] * 3
    with refused("request-off-with-parameters", name="p"):
        resolve_requests(rules, {"schedule": "off", "p": 0.3}, 1, SeedSource(None))


def test_signed_output_is_vllms_own_whose_spans_carry_their_text(
    signed: TandemCompletion, output: CompletionOutput, rules: TandemRules
):
    assert isinstance(signed, CompletionOutput)
    assert {name: getattr(signed, name) for name in vars(output)} == vars(output)
    assert signed.spans == (
        Span(0, 2, "senior", "a a"),
        Span(2, 3, "junior", "b"),
        Span(3, 4, "senior", "."),
    )
    assert signed.authorship == rules.default.replay(IDS, signed.tandem_seed)
    assert signed.tandem_fingerprint == rules.fingerprint
    assert signed.tandem_schedule == rules.default.settings()
    copy: Any = pickle.loads(pickle.dumps(signed))
    assert (copy.spans, copy.text) == (signed.spans, "a ab")


def test_notebook_shows_the_authors_colours(signed: TandemCompletion):
    page = signed._repr_html_()
    assert (page.count("<span"), page.count("solid"), page.count("dotted")) == (3, 2, 1)


def test_output_of_the_senior_alone_has_no_spans_and_one_colour(
    output: CompletionOutput, byte_level: Vocabulary
):
    alone = signed_completion(output, [], NOTHING, TokenBytes(byte_level), {})
    assert alone.authorship is alone.tandem_seed is alone.tandem_fingerprint is None
    assert alone.tandem_schedule is alone.spans is None
    assert alone._repr_html_().count("<span") == 1
