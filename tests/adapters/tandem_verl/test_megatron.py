"""Gradients of verl's real Megatron engine through tandem's masks, against plain loops.

Each layout with fixed and dynamic micro-batches, three ways to aggregate, a KL penalty, an entropy
bonus, tools' turns and a response without the senior; with ``lambda_jun`` and without it; the
critic's, and with a teacher that is distilled.
"""

from __future__ import annotations

import pytest

pytest.importorskip(
    "megatron.core",
    reason="megatron-core is not installed: pip install --no-deps megatron-core==0.16.1",
    exc_type=ImportError,
)

from megatron_ranks import Layout, errors_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ALONE = [Layout(), Layout(packed=False)]
PAIRS = [
    Layout(tp=2),
    Layout(pp=2),
    Layout(cp=2),
    Layout(dp=2),
    Layout(tp=2, packed=False),
    Layout(pp=2, packed=False),
    Layout(dp=2, packed=False),
]
FOURS = [Layout(cp=2, dp=2), Layout(tp=2, cp=2), Layout(pp=2, cp=2)]


@pytest.mark.parametrize("layouts", [ALONE, PAIRS, FOURS], ids=["1", "2", "4"])
def test_gradients_are_those_of_a_loop_over_the_seniors_tokens(layouts: list[Layout]) -> None:
    """To the rounding of Megatron's cross entropy, which is float32."""
    errors = errors_of(layouts)
    assert len(errors) >= 16 * len(layouts)  # four of them are the critic's and the teacher's
    worst = max(errors, key=errors.__getitem__)
    assert 0 < errors[worst] < 5e-7, f"{worst}: {errors[worst]:.1e}"
