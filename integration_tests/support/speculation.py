"""What the tests of the speculative engine share."""

from __future__ import annotations

import pytest
import vllm
from packaging.version import Version


def has_drafting() -> bool:
    """Whether the speculative mode runs on this vLLM: asked of its version alone.

    Were it asked of vLLM's speculators, tests would be skipped where these had moved.
    """
    return Version(vllm.__version__) >= Version("0.29")


needs_drafting = pytest.mark.skipif(
    not has_drafting(), reason="the speculative mode needs vLLM 0.29"
)
