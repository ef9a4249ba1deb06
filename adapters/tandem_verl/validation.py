"""How a validation prompt says who is to answer it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tandem_plugin.patching.delegation import Delegate
from tandem_plugin.training.validation import ANSWERER, Answerer

__all__ = ["ROW", "AddressedPrompts"]

ROW = "tandem_row"
"""The batch column that numbers the prompts of one step."""


class AddressedPrompts(Delegate):
    """verl's loader of validation prompts, with two more columns: who is to answer, and numbers."""

    def __init__(self, batches: Any, answerer: Answerer) -> None:
        super().__init__(batches)
        self._answerer = answerer

    def __len__(self) -> int:
        return len(self._target)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first = 0
        for batch in self._target:
            count = len(next(iter(batch.values())))
            addressed = np.array([self._answerer] * count, dtype=object)
            numbers = np.array(range(first, first + count), dtype=object)
            yield {**batch, ANSWERER: addressed, ROW: numbers}
            first += count
