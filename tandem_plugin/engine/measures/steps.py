"""Which steps of an engine are measured."""

from __future__ import annotations

import random

__all__ = ["MeasuredSteps"]


class MeasuredSteps:
    """One step of every ``every`` in a row, at a place among them that is drawn anew each time.

    Drawn, since the responses of a batch begin together: every sixty-fourth step would always
    measure the same places of a response. The draws are the same in every process of an engine, and
    share nothing with its other ones.
    """

    def __init__(self, every: int) -> None:
        """every: 0 for no step at all."""
        self._every = every
        self._random = random.Random(0)
        self._step = self._chosen = 0

    def next(self) -> bool:
        """Whether the step that comes is measured. Call once for each."""
        if not self._every:
            return False
        if self._step == 0:
            self._chosen = self._random.randrange(self._every)
        is_measured = self._step == self._chosen
        self._step = (self._step + 1) % self._every
        return is_measured
