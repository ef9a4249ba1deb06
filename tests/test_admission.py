"""Prompts at the door of a tandem engine, without an engine."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.engine import admission, vocabularies
from tandem_plugin.errors import RequestError


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration of an engine with these numbers of token ids, vLLM's parts made up."""

    def made(senior: int, junior: int) -> Any:
        model = SimpleNamespace(
            model="senior", trust_remote_code=False, get_vocab_size=lambda: senior
        )
        parts = {
            "vllm.transformers_utils.config": {
                "get_config": lambda name, trust: SimpleNamespace(vocab_size=junior)
            },
            "vllm.exceptions": {
                "VLLMValidationError": type("VLLMValidationError", (ValueError,), {})
            },
        }
        for name, content in parts.items():
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
        for kept in ((vocabularies, "_sizes"), (admission, "_client_kinds")):
            monkeypatch.setattr(*kept, {})
        return SimpleNamespace(model_config=model, additional_config={"tandem": {"junior": "j"}})

    return made


@pytest.mark.parametrize(("senior", "junior"), [(100, 90), (90, 100), (90, 90)])
def test_ids_that_not_both_models_have_are_refused(engine: Any, senior: int, junior: int):
    """Also where both have the same: vLLM lets ids through where it has no tokenizer."""
    config = engine(senior, junior)
    admission.check_prompt(config, [3, 89])
    admission.check_prompt(config, None)
    with pytest.raises(RequestError, match=r"holds token id 90, .* share only the ids below 90\."):
        admission.check_prompt(config, [3, 90, 4])
