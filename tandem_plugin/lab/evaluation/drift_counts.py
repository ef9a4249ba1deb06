"""Token counts of a drift run, in folds of its responses, and their file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import read_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.evaluation.drift import token_counts
from tandem_plugin.lab.evaluation.results import COUNTS, Summary, write_json
from tandem_plugin.lab.rollouts.rollout import short

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FOLDS", "fold_counts", "read_counts", "read_folds", "write_counts"]

FOLDS = 24
"""Responses are counted in so many folds: the halves have twelve, which three models can share."""

_MOST_CELLS = 2**27

_MOST_COUNTED = 2**53
"""Counts stay below it, so that they and their sums are exact as floats."""


def fold_counts(
    responses: Iterable[tuple[int, int, Sequence[int]]], vocabulary: int
) -> NDArray[Any]:
    """How often each token was written in each fold: int64 ``[FOLDS, vocabulary]``.

    responses: (problem, sample, token ids). A response is in the fold (problem + sample) mod FOLDS,
    so that every model has the same problems and samples in a fold. Raises
    :class:`EvaluationError` for a token id that the vocabulary lacks.
    """
    import numpy as np

    counts = np.zeros((FOLDS, vocabulary), dtype=np.int64)
    for problem, sample, ids in responses:
        counts[(problem + sample) % FOLDS] += token_counts([ids], vocabulary)
    return counts


def write_counts(folder: Path, senior: NDArray[Any], junior: NDArray[Any]) -> None:
    """Write the counts ``[folds, vocabulary]`` of both models: a row a token that was written."""
    content: dict[str, Any] = {"vocabulary": senior.shape[1], "folds": len(senior)}
    for name, counts in (("senior", senior), ("junior", junior)):
        written = counts.sum(0).nonzero()[0]
        content[name] = [[int(t), *counts[:, t].tolist()] for t in written]
    write_json(folder / COUNTS, content)


def read_counts(summary: Summary) -> tuple[NDArray[Any], NDArray[Any]]:
    """The token counts of a drift run: the senior's and the junior's, ``[vocabulary]`` each."""
    senior, junior = read_folds(summary)
    return senior.sum(0), junior.sum(0)


def read_folds(summary: Summary) -> tuple[NDArray[Any], NDArray[Any]]:
    """The same ``[folds, vocabulary]``; a file that has no folds has one.

    Raises :class:`EvaluationError` for a file that is missing or none.
    """
    path = summary.folder / COUNTS
    try:
        content = parse_json(read_file(path))
        size, folds = content["vocabulary"], content.get("folds", 1)
        if type(size) is not int or not 0 < size <= MAX_TOKEN_ID + 1:
            raise ValueError(f"a vocabulary of {short(size)} tokens")
        if type(folds) is not int or not 0 < folds * size <= max(_MOST_CELLS, size):
            raise ValueError(f"{short(folds)} folds of {size} tokens")
        return _counts(content["senior"], size, folds), _counts(content["junior"], size, folds)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise EvaluationError(
            f"The counts {str(path)!r} cannot be read: {error}. Remove them, and make them again."
        ) from error


def _counts(rows: Any, size: int, folds: int) -> NDArray[Any]:
    import numpy as np

    counts = np.zeros((folds, size), dtype=np.int64)
    for token, *found in rows:
        if type(token) is not int or not 0 <= token < size:
            raise ValueError(f"the token {short(token)} in a vocabulary of {size}")
        if len(found) != folds or not all(type(c) is int and c >= 0 for c in found):
            raise ValueError(f"{short(found)} of the token {token} in {folds} fold(s)")
        if sum(found) >= _MOST_COUNTED:
            raise ValueError(f"{short(sum(found))} of the token {token}")
        counts[:, token] = found
    return counts
