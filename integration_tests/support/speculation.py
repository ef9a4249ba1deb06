"""What the tests of the speculative engine share."""

from __future__ import annotations

import pytest
import vllm
from packaging.version import Version


def has_drafting() -> bool:
    """Whether this vLLM must have a draft model in Model Runner V2: asked of its version alone.

    Were it asked of the draft model's module, tests would be skipped where that had moved.
    """
    return Version(vllm.__version__) >= Version("0.32")


needs_drafting = pytest.mark.skipif(
    not has_drafting(), reason="this vLLM has no draft model in Model Runner V2: it needs 0.32"
)
