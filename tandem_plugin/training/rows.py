"""The rows of a batch as the trainer process sees them: what was generated and who wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.files import write_file
from tandem_plugin.training.authorship_wire import AUTHORSHIP, ResponseAuthorship

_ERROR = "tandem_error"
"""The column with why a trajectory failed in tandem: the trainer process stops."""

GRADED = "outcome_"
"""The prefix of the outcome flags, 0.0 or 1.0, of tandem's reward."""


@dataclass(frozen=True, slots=True)
class Row:
    """One response of a batch. Arrays have the length of the response, unless something is wrong.

    Fields that a trainer did not deliver are None; the checks report them.
    """

    COLUMNS: ClassVar[frozenset[str]] = frozenset({AUTHORSHIP, _ERROR})
    """What tandem sends with a response; :meth:`received` makes a row of it."""

    name: str
    """Its name in error messages."""
    group: str
    """The prompt it answers: responses to one prompt are compared with each other."""
    response_ids: NDArray[np.int64]
    response_mask: NDArray[np.bool_]
    """The tokens that are trained on: the senior's, of those that the agent loop would train."""
    facts: ResponseAuthorship | None = None
    """The authorship data sent with the response."""
    loss_mask: NDArray[np.bool_] | None = None
    """The mask for the loss's denominator, if a trainer has a separate one."""
    error: str | None = None
    graded: Mapping[str, float] = field(default_factory=dict)
    """The outcome of grading, if tandem's own reward graded it: see :data:`GRADED`."""

    @classmethod
    def received(
        cls,
        name: str,
        group: str,
        response_ids: NDArray[np.int64],
        response_mask: NDArray[np.bool_],
        columns: Mapping[str, Any],
        loss_mask: NDArray[np.bool_] | None = None,
    ) -> Row:
        """A row whose facts, error and grading are in the columns that came with its response.

        columns: those of :attr:`NarrowedResponse.columns`, or of :meth:`failure`, among others.
        Raises :class:`AuthorshipError` for facts from a different version of this package.
        """
        return cls(
            name,
            group,
            response_ids,
            response_mask,
            ResponseAuthorship.from_wire(columns.get(AUTHORSHIP)),
            loss_mask,
            columns.get(_ERROR),
            _graded(columns.get("reward_extra_info")),
        )

    @staticmethod
    def failure(error: Exception) -> dict[str, str]:
        """The columns that carry a trajectory's error to the trainer process, to be raised."""
        return {_ERROR: f"{type(error).__name__}: {error}"}

    @staticmethod
    def dumped(rows: Sequence[Row]) -> dict[str, list[Any]]:
        """The columns of at least one row in a rollout dump, by name (:meth:`dump`)."""
        dumped = [row.dump() for row in rows]
        return {name: [row[name] for row in dumped] for name in dumped[0]}

    def without_prompt(self) -> Row:
        """The row from its first segment or trained token on, for a response with its prompt."""
        if self.facts is None:
            return self
        start, stop = self.facts.start, len(self.response_ids)
        return replace(
            self,
            response_ids=self.response_ids[start:],
            response_mask=self.response_mask[start:],
            facts=self.facts.part(start, stop),
        )

    def dump(self) -> dict[str, Any]:
        """The row's columns in a rollout dump, from which ``tandem replay`` derives authorship."""
        facts = self.facts
        if facts is None:
            none = dict.fromkeys(_COLUMNS)
            return {**none, "response_ids": self.response_ids.tolist(), "tandem_segments": []}
        # Without segments, readers treat the whole response as one segment of the row's seed.
        segments = facts.segments or [(facts.seed, 0, 0)]
        values = (
            self.response_ids.tolist(),
            facts.authorship.astype(int).tolist(),
            facts.seed,
            facts.fingerprint,
            dict(facts.settings),
            facts.junior,
            [list(segment) for segment in segments],
            [list(span) for span in facts.unknown] or None,
        )
        return dict(zip(_COLUMNS, values, strict=True))


_COLUMNS = (
    "response_ids",
    "authorship",
    "tandem_seed",
    "tandem_fingerprint",
    "tandem_schedule",
    "tandem_junior",
    "tandem_segments",
    "tandem_unknown",
)


def _graded(reward: Any) -> dict[str, float]:
    """The outcome flags among what a reward function returned."""
    if not isinstance(reward, Mapping):
        return {}
    flags = {name: value for name, value in reward.items() if str(name).startswith(GRADED)}
    return {name: float(value) for name, value in flags.items() if value is not None}


def _plain(value: Any) -> Any:
    """An array's or a NumPy number's content; the text of any other object, as golds may be."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def write_step(
    folder: str | Path, step: int, responses: Iterable[tuple[Row, Mapping[str, Any]]]
) -> None:
    """Write ``<folder>/<step>.jsonl`` atomically, one response per line.

    responses: each row with further columns, named as in verl's dumps (``input``, ``output``,
    ``gts``, ``score``). Raises :class:`OutputError` if the file cannot be written.
    """
    lines = (
        json.dumps({**columns, "step": step, **row.dump()}, default=_plain)
        for row, columns in responses
    )
    write_file(Path(folder) / f"{step}.jsonl", "".join(line + "\n" for line in lines))
