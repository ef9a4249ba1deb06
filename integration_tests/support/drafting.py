"""Whether the speculative mode runs here. Imported where there is no pytest as well."""

from __future__ import annotations

import vllm
from packaging.version import Version


def has_drafting() -> bool:
    """Whether the speculative mode runs on this vLLM: asked of its version alone.

    Were it asked of vLLM's speculators, tests would be skipped where these had moved.
    """
    return Version(vllm.__version__) >= Version("0.29")
