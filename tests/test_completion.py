"""What ``TandemLLM`` makes of vLLM's outputs: spans with their text, and colours in a notebook."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.outputs import CompletionOutput

from tandem_plugin import Authorship, Span, Vocabulary
from tandem_plugin.engine.completion import Signature, TandemCompletion, signed_completion
from tandem_plugin.spans import TokenBytes

SIGNATURE = Signature(Authorship.from_bits([1, 1, 0, 1]), 7, "f", {"schedule": "word"})


@pytest.fixture
def output() -> CompletionOutput:
    return CompletionOutput(0, "a ab", [0, 2, 1, 7], None, None, finish_reason="stop")


def test_spans_carry_their_text(output: CompletionOutput, byte_level: Vocabulary):
    signed = signed_completion(output, TokenBytes(byte_level), SIGNATURE)
    assert signed.spans == (
        Span(0, 2, "senior", "a a"),
        Span(2, 3, "junior", "b"),
        Span(3, 4, "senior", "."),
    )
    assert signed.authorship is not None
    assert [span.text for span in signed.authorship.spans] == [None] * 3


def test_signed_output_is_vllms_own_with_its_signature(
    output: CompletionOutput, byte_level: Vocabulary
):
    output.token_ids = tuple(output.token_ids)
    signed = signed_completion(output, TokenBytes(byte_level), SIGNATURE)
    assert isinstance(signed, CompletionOutput)
    assert {name: getattr(signed, name) for name in vars(output)} == vars(output)
    assert (signed.tandem_seed, signed.tandem_fingerprint) == (7, "f")
    assert signed.tandem_schedule == {"schedule": "word"}
    copy: Any = pickle.loads(pickle.dumps(signed))
    assert (copy.spans, copy.text) == (signed.spans, "a ab")


def test_notebook_shows_the_authors_colours(output: CompletionOutput, byte_level: Vocabulary):
    page = signed_completion(output, TokenBytes(byte_level), SIGNATURE)._repr_html_()
    assert page.count("<span") == 3
    assert (page.count("solid"), page.count("dotted")) == (2, 1)


def test_output_of_the_senior_alone_has_no_spans_and_one_colour(
    output: CompletionOutput, byte_level: Vocabulary
):
    signed: TandemCompletion = signed_completion(output, TokenBytes(byte_level))
    assert signed.authorship is signed.tandem_seed is signed.tandem_fingerprint is None
    assert signed.tandem_schedule is signed.spans is None
    assert signed._repr_html_().count("<span") == 1
