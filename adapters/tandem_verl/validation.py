"""Who answers validation prompts: the senior alone, the team, or each of the two in its turn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.training.rows import Row
from tandem_plugin.training.validation import TEAM, Answerer, answerers

__all__ = ["ANSWERER", "ROW", "AddressedPrompts", "Pass", "answerer_of", "passes"]

ROW = "tandem_row"
"""The batch column that numbers the prompts of one step."""

ANSWERER = "tandem_answerer"
"""The batch column that says who is to answer a validation prompt."""

_ANSWERED_BY = "answered_by"
"""The column of a validation dump that says who did."""


@dataclass(slots=True)
class Pass:
    """One walk through the validation prompts, all of them answered by one answerer."""

    answerer: Answerer
    is_alone: bool
    """Whether it is the only one of this validation."""
    is_last: bool
    samples: list[tuple[Any, Any, Any]]
    """(input, output, score) for the loggers' table: those of earlier passes, and its own."""
    rows: list[Row] = field(default_factory=list)
    """What was generated so far, where the trainer has no keys to ask for it later."""

    def named(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Its metrics under names of their own."""
        prefix = TEAM if self.answerer == "team" else ""
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    def table(self, inputs: Any, outputs: Any, scores: Any) -> dict[str, Any] | None:
        """Samples for the loggers' table, which has one place a step.

        Those of all passes at the last one, and None before it.
        """
        if not self.is_alone:
            labelled = [f"[{self.answerer}] {text}" for text in inputs]
            self.samples.extend(zip(labelled, outputs, scores, strict=True))
            if not self.is_last:
                return None
            inputs, outputs, scores = zip(*self.samples, strict=True) if self.samples else [()] * 3
        return {"inputs": inputs, "outputs": outputs, "scores": scores}

    def addressed(self, dump: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of its dump, which says who answered and lies apart where two do."""
        columns = dict(dump["reward_extra_infos_dict"])
        columns[_ANSWERED_BY] = [self.answerer] * len(dump["inputs"])
        folder = dump["dump_path"]
        folder = folder if self.is_alone else os.path.join(folder, self.answerer)
        return {**dump, "reward_extra_infos_dict": columns, "dump_path": folder}


def passes(config: TandemConfig) -> Iterator[Pass]:
    """The passes that one validation is made of, the senior's first."""
    walks = answerers(config.validation)
    samples: list[tuple[Any, Any, Any]] = []
    for answerer in walks:
        yield Pass(answerer, len(walks) == 1, answerer == walks[-1], samples)


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


class AddressedPrompts:
    """verl's loader of validation prompts, with two more columns: who is to answer, and numbers.

    Everything but iterating over it is the loader's own.
    """

    def __init__(self, batches: Any, answerer: Answerer) -> None:
        self._batches = batches
        self._answerer = answerer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first = 0
        for batch in self._batches:
            count = len(next(iter(batch.values())))
            addressed = np.array([self._answerer] * count, dtype=object)
            numbers = np.array(range(first, first + count), dtype=object)
            yield {**batch, ANSWERER: addressed, ROW: numbers}
            first += count
