"""What the tests of the speculative engine share."""

from __future__ import annotations

import pytest

from support.drafting import has_drafting

needs_drafting = pytest.mark.skipif(
    not has_drafting(), reason="the speculative mode needs vLLM 0.29"
)
