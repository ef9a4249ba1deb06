"""The engine of rollouts, where it cannot start."""

from __future__ import annotations

import sys

import pytest
from refused import refused

from tandem_plugin.lab.rollouts.engine import start_engine


def test_a_vllm_that_cannot_be_imported_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delitem(sys.modules, "tandem_plugin.engine.llm", raising=False)
    with refused("vllm-import-failed", error="import of vllm halted; None in sys.modules"):
        start_engine("model", {}, None, 16)
