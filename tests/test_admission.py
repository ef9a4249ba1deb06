"""Prompts at the door of a tandem engine, without an engine."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.engine import admission, vocabularies
from tandem_plugin.errors import RequestError


class Unread(list[int]):
    """A prompt that nobody reads."""

    def __iter__(self) -> Any:
        raise AssertionError("the prompt was read")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration of an engine with these numbers of token ids, vLLM's parts made up."""

    def made(senior: int, junior: int, tokenizer: int | None) -> Any:
        model = SimpleNamespace(
            model="senior",
            tokenizer="senior",
            tokenizer_mode="auto",
            tokenizer_revision=None,
            trust_remote_code=False,
            skip_tokenizer_init=tokenizer is None,
            get_vocab_size=lambda: senior,
        )
        known = SimpleNamespace(max_token_id=None if tokenizer is None else tokenizer - 1)
        parts = {
            "vllm.tokenizers": {"cached_tokenizer_from_config": lambda config: known},
            "vllm.transformers_utils.config": {
                "get_config": lambda name, trust: SimpleNamespace(vocab_size=junior)
            },
            "vllm.exceptions": {
                "VLLMValidationError": type("VLLMValidationError", (ValueError,), {})
            },
        }
        for name, content in parts.items():
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
        for kept in (
            (vocabularies, "_sizes"),
            (vocabularies, "_admitted"),
            (admission, "_client_kinds"),
        ):
            monkeypatch.setattr(*kept, {})
        return SimpleNamespace(model_config=model, additional_config={"tandem": {"junior": "j"}})

    return made


@pytest.mark.parametrize(
    ("senior", "junior", "tokenizer"),
    [(100, 90, 90), (90, 100, 95), (90, 100, None), (90, 90, 95), (90, 90, None), (100, 90, None)],
)
def test_ids_that_not_both_models_have_are_refused(
    engine: Any, senior: int, junior: int, tokenizer: int | None
):
    """Also where both have the same, and vLLM has no tokenizer, or one with more ids."""
    config = engine(senior, junior, tokenizer)
    admission.check_prompt(config, [3, 89])
    admission.check_prompt(config, None)
    with pytest.raises(RequestError, match=r"holds token id 90, .* share only the ids below 90\."):
        admission.check_prompt(config, [3, 90, 4])


@pytest.mark.parametrize(("senior", "junior"), [(90, 90), (90, 100)])
def test_prompts_are_not_read_where_vllm_has_refused_all_other_ids(
    engine: Any, senior: int, junior: int
):
    admission.check_prompt(engine(senior, junior, 80), Unread([3, 4]))
