"""Warns during a run when the senior alone falls on validation problems."""

from __future__ import annotations

import math
import sys

_ERRORS = 2.0
"""Standard errors of a difference beyond which a fall is no chance: 2% of evaluations without one
are beyond it."""

CHANGE = "tandem/senior_alone_change"
"""The metric: the senior's accuracy alone, minus that at the run's first validation."""


class SeniorAlone:
    """Compares each validation of the senior alone with a run's first.

    A team can pull a senior into what the junior knows better and the senior knows worse. The
    training reward does not show it: it is the team's.
    """

    def __init__(self) -> None:
        self._first: float | None = None

    def validated(self, accuracy: float | None, problems: int) -> dict[str, float]:
        """The change since the first validation; warns in the log if it is a fall.

        accuracy: the senior's mean reward, with rewards from 0 to 1; others have no bound on their
        error and are not judged, nor is None. problems: how many it is over. The error is binomial,
        over problems: several samples of each make it smaller.
        """
        if accuracy is None or not 0 <= accuracy <= 1 or problems < 1:
            return {}
        if self._first is None:
            self._first = accuracy
        change = accuracy - self._first
        spread = sum(rate * (1 - rate) for rate in (accuracy, self._first))
        error = math.sqrt(spread / problems)
        if change < -_ERRORS * error:
            _warn(accuracy, change, error)
        return {CHANGE: change}


def _warn(accuracy: float, change: float, error: float) -> None:
    print(
        f"WARNING: the senior alone solves {accuracy:.1%} of the validation problems, "
        f"{-100 * change:.1f} ± {100 * error:.1f} points less than at this run's first validation. "
        "In tandem it may be drawn to what the junior knows better than it does. Let it write some "
        "of the responses alone: tandem.alone=0.25.",
        file=sys.stderr,
        flush=True,
    )
