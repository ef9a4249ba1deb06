"""The rows of a batch as the trainer process sees them: what was generated and who wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.files import write_file
from tandem_plugin.training.authorship_wire import CallRule, Facts, ranges_of

__all__ = ["Row", "dumped_columns", "masked_log_probs", "row_of", "write_step"]


@dataclass(frozen=True, slots=True)
class Row:
    """One response of a batch. Arrays have the length of the response, unless something is wrong.

    Fields that a trainer did not deliver are None; the checks report them.
    """

    name: str
    """Its name in error messages."""
    group: str
    """The prompt it answers: responses to one prompt are compared with each other."""
    response_ids: NDArray[np.int64]
    response_mask: NDArray[np.bool_]
    """The tokens that are trained on."""
    authorship: NDArray[np.bool_] | None = None
    seed: int | None = None
    fingerprint: str | None = None
    segments: Sequence[Sequence[int]] = ()
    asked: Sequence[CallRule | None] = ()
    """The rule of each segment whose generate call chose its own; empty if none did."""
    trained: NDArray[np.bool_] | None = None
    """The tokens that the agent loop would train: ``response_mask`` is the senior's among them."""
    unknown: NDArray[np.bool_] | None = None
    """Those that two calls could have written with different authors; None for no token."""
    loss_mask: NDArray[np.bool_] | None = None
    """The mask for the loss's denominator, if a trainer has a separate one."""
    junior_mask: NDArray[np.bool_] | None = None
    """The junior's tokens, which the senior imitates in a run with ``lambda_jun`` above 0."""
    error: str | None = None
    settings: Mapping[str, Any] | None = None
    """The schedule that decided the authorship, its parameters and its resolver."""
    junior: str | None = None
    """The junior's name in the run's settings; None if they name none."""
    graded: Mapping[str, float] = field(default_factory=dict)
    """The outcome of grading, if tandem's own reward graded it: see :data:`GRADED`."""

    def dump(self) -> dict[str, Any]:
        """The row's columns in a rollout dump, from which ``tandem replay`` derives authorship."""
        # Without segments, readers treat the whole response as one segment of the row's seed.
        nothing = [] if self.seed is None else [[self.seed, 0, 0]]
        asked = [None if one is None else dict(one[1]) for one in self.asked]
        return {
            "response_ids": self.response_ids.tolist(),
            "authorship": None if self.authorship is None else self.authorship.astype(int).tolist(),
            "tandem_seed": self.seed,
            "tandem_fingerprint": self.fingerprint,
            "tandem_schedule": None if self.settings is None else dict(self.settings),
            "tandem_junior": self.junior,
            "tandem_segments": [list(segment) for segment in self.segments] or nothing,
            "tandem_segment_schedules": asked or None,
            "tandem_unknown": [list(one) for one in ranges_of(self.unknown_tokens)] or None,
        }

    @property
    def unknown_tokens(self) -> NDArray[np.bool_]:
        """Bool ``[length]``: :attr:`unknown`, also where it is None."""
        if self.unknown is None:
            return np.zeros(len(self.response_ids), dtype=np.bool_)
        return self.unknown


def dumped_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The columns of at least one row in a rollout dump, by name (:meth:`Row.dump`)."""
    dumped = [row.dump() for row in rows]
    return {name: [row[name] for row in dumped] for name in dumped[0]}


def row_of(facts: Facts | None, **known: Any) -> Row:
    """A row with the facts sent with its response; known: the fields that the trainer has."""
    if facts is None:
        return Row(**known)
    computed = {
        "authorship": facts.authorship,
        "seed": facts.seed,
        "fingerprint": facts.fingerprint,
        "settings": facts.settings,
        "segments": facts.segments,
        "asked": facts.asked,
        "trained": facts.trained_mask,
        "unknown": facts.unknown_mask,
        "junior_mask": facts.junior_mask,
        "junior": facts.junior,
    }
    return Row(**{**computed, **known})


def write_step(
    folder: str | Path, step: int, responses: Iterable[tuple[Row, Mapping[str, Any]]]
) -> None:
    """Write ``<folder>/<step>.jsonl`` atomically, one response per line.

    responses: each row with further columns, named as in verl's dumps (``input``, ``output``,
    ``gts``, ``score``). Raises :class:`OutputError` if the file cannot be written.
    """
    lines = (json.dumps({**known, "step": step, **row.dump()}) for row, known in responses)
    write_file(Path(folder) / f"{step}.jsonl", "".join(line + "\n" for line in lines))


def masked_log_probs(log_probs: Sequence[float] | None, senior: NDArray[np.bool_]) -> Any:
    """An agent's log-probabilities, zero where ``senior`` is false; None if it returned none.

    Raises :class:`AuthorshipError` if their number differs from the tokens'.
    """
    if log_probs is None:
        return None
    if len(log_probs) != len(senior):
        raise AuthorshipError("TP431", log_probs=len(log_probs), tokens=len(senior))
    return [value if mine else 0.0 for value, mine in zip(log_probs, senior, strict=True)]
