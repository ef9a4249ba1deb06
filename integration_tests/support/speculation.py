"""What the tests of the speculative engine share."""

from __future__ import annotations

import importlib.util

import pytest


def has_drafting() -> bool:
    """Whether this vLLM's Model Runner V2 has a draft model."""
    try:
        name = "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator"
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


needs_drafting = pytest.mark.skipif(
    not has_drafting(), reason="this vLLM has no draft model in Model Runner V2: it needs 0.32"
)
