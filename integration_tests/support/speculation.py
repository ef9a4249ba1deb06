"""Which engines tests start, where the speculative mode runs."""

from __future__ import annotations

import pytest

from support.drafting import has_drafting

needs_drafting = pytest.mark.skipif(
    not has_drafting(), reason="the speculative mode needs vLLM 0.29"
)

ENGINES = [
    ("v1", "lockstep"),
    ("v2", "lockstep"),
    pytest.param(("v2", "speculative"), marks=[needs_drafting, pytest.mark.long]),
]
"""Model runners and modes; without a GPU kernels of V2 are interpreted, and rounds take long."""

V1_FIRST = [ENGINES[0], pytest.param(ENGINES[1], marks=pytest.mark.long), ENGINES[2]]
"""The same, of which ``make test`` starts the one on Model Runner V1."""
