"""How many tokens an optimizer step is told to imitate, where OpenRLHF batches by length."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tandem_openrlhf.imitation import dynamic_counts


def test_each_dynamic_micro_batch_is_told_the_tokens_of_its_whole_step_over_all_ranks() -> None:
    counts = [3, 0, 5, 2, 7]
    buffer = SimpleNamespace(
        items=[SimpleNamespace(junior_mask=np.ones(count)) for count in counts],
        dynamic_indices=[[0, 2], [1], [4, 3]],
        dynamic_optimizer_step=[0, 1, 1],  # the first step is of two micro-batches
    )
    seen: list[list[float]] = []

    def of_two_ranks(totals: list[float]) -> list[float]:
        seen.append(totals)
        return [2 * total for total in totals]

    assert dynamic_counts(buffer, of_two_ranks) == [16, 16, 18]
    assert seen == [[8, 9]]


def test_a_step_with_nothing_to_imitate_is_told_so() -> None:
    buffer = SimpleNamespace(dynamic_indices=[], dynamic_optimizer_step=[], items=[])
    assert dynamic_counts(buffer, lambda totals: totals) == []
