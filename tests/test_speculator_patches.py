"""Whose speculator vLLM's runner takes."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.engine.speculative import patches


def runner() -> Any:
    """A module like vLLM's, with tandem's wrappers."""

    module: Any = ModuleType("runner")
    module.init_speculator = lambda vllm_config, device, *rest: ("vLLM's", device, *rest)
    patches._wrap_runner(module)
    return module


def config(tandem: Any, drafting: Any) -> Any:
    return SimpleNamespace(additional_config=tandem, speculative_config=drafting)


@pytest.mark.parametrize("made", [config({}, object()), config({"tandem": {}}, None)])
def test_an_engine_that_does_not_draft_in_tandem_has_vllms_own_speculator(made: Any) -> None:
    assert runner().init_speculator(made, "cpu", "states") == ("vLLM's", "cpu", "states")
