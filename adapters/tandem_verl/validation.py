"""How a validation prompt says who is to answer it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.standing import StandsBefore
from tandem_plugin.training.validation import ANSWERER, Answerer

__all__ = ["ROW", "AddressedPrompts", "answerer_of"]

ROW = "tandem_row"
"""The batch column that numbers the prompts of one step."""


def answerer_of(config: TandemConfig, sample: Mapping[str, Any]) -> Answerer:
    """Who is to answer a validation prompt.

    sample: the row's fields. Raises :class:`ConfigError` where both are, and the row does not say
    whose turn it is.
    """
    answerer = sample.get(ANSWERER, config.validation)
    if answerer == "both":
        raise ConfigError(
            "tandem.validation=both: a validation prompt came without saying who is to answer it, "
            "so this trainer does not validate through verl's own _validate. Set "
            "validation=senior or validation=team."
        )
    return "team" if answerer == "team" else "senior"


class AddressedPrompts(StandsBefore):
    """verl's loader of validation prompts, with two more columns: who is to answer, and numbers."""

    def __init__(self, batches: Any, answerer: Answerer) -> None:
        super().__init__(batches)
        self._answerer = answerer

    def __len__(self) -> int:
        return len(self._theirs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first = 0
        for batch in self._theirs:
            count = len(next(iter(batch.values())))
            addressed = np.array([self._answerer] * count, dtype=object)
            numbers = np.array(range(first, first + count), dtype=object)
            yield {**batch, ANSWERER: addressed, ROW: numbers}
            first += count
