"""The validations of a run: compared with its first one, in its log and for its page."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.files import is_number, read_json, write_file
from tandem_plugin.training.validation import SEVERAL, Answerer

_ERRORS = 2.0
"""Standard errors of a difference beyond which a fall is no chance: 2% of evaluations without one
are beyond it."""

CHANGE = "tandem/senior_alone_change"
"""The metric: the senior's accuracy alone, minus that at the run's first validation."""
JUNIOR_ALONE = "tandem/junior_alone"
"""The metric: the junior's accuracy alone. It is frozen: its first validation holds."""

FILE = "validations.json"
"""Next to the dumped rollouts of a run."""
_ANSWERERS = ("senior", "team", "junior")


@dataclass(frozen=True, slots=True)
class Validation:
    """One validation by one of those who answer."""

    run: str
    """What defines its run: those of other runs in the same folder are not compared."""
    step: int
    answerer: Answerer
    accuracy: float
    """The mean reward."""
    problems: int
    warning: str = ""
    """What the log was told of it."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the validation prompts, by one of those who answer."""

    answerer: Answerer
    is_one_of_several: bool
    _log: ValidationLog

    def named(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics under distinct names: all but the senior's begin with its answerer's name."""
        prefix = "" if self.answerer == "senior" else f"{self.answerer}/"
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    def add(self, accuracy: float | None, problems: int, step: int) -> dict[str, float]:
        """The metrics of this pass; raises and warns like :meth:`ValidationLog.add`."""
        return self._log.add(self.answerer, accuracy, problems, step)

    def folder(self, folder: str) -> str:
        """Where this answerer's dump goes: in a separate folder if several answer."""
        return os.path.join(folder, self.answerer) if self.is_one_of_several else folder

    def columns(self, count: int) -> dict[str, list[str]]:
        """What a dump of so many responses says of who answered."""
        return {"answered_by": [self.answerer] * count}


class ValidationLog:
    """Compares each validation of the senior alone with a run's first, and keeps the junior's.

    A team can pull a senior into what the junior knows better and the senior knows worse. The
    training reward does not show it: it is the team's.

    run: what defines it. folder: of its rollouts, in which a resumed run finds its earlier
    validations; None without rollouts: a resumed run begins anew. writes: false in processes other
    than the one that writes rollouts.
    """

    def __init__(
        self, run: str = "", folder: str | Path | None = None, *, writes: bool = True
    ) -> None:
        self._run, self._writes = run, writes
        self._file = None if folder is None else Path(folder) / FILE
        self._validations = [] if self._file is None else read_validations(self._file.parent)
        self._is_junior_known = False

    def passes(self, setting: str) -> tuple[Pass, ...]:
        """The passes of the next validation, in this order; setting: ``validation``.

        The junior answers only once.
        """
        is_known = self._is_junior_known or self._first("junior") is not None
        single: Answerer = "team" if setting == "team" else "senior"
        return tuple(
            Pass(answerer, setting in SEVERAL, self)
            for answerer in SEVERAL.get(setting, (single,))
            if answerer != "junior" or not is_known
        )

    def add(
        self, answerer: Answerer, accuracy: float | None, problems: int, step: int
    ) -> dict[str, float]:
        """The metrics of a validation; warns in the log if the senior alone fell.

        accuracy: the mean reward. A fall is judged where rewards are from 0 to 1: others have no
        bound on their error. problems: how many it is over. The error is binomial, over problems:
        several samples of each make it smaller. step: the trainer's. Raises :class:`OutputError`
        if the file of validations cannot be written.
        """
        self._is_junior_known |= answerer == "junior"
        if accuracy is None or not math.isfinite(accuracy) or problems < 1:
            return {}
        self._forget(after=step)
        metrics, warning = {}, ""
        if answerer == "senior" and 0 <= accuracy <= 1:
            first = self._first("senior")
            before = accuracy if first is None else first.accuracy
            metrics[CHANGE] = accuracy - before
            warning = _warning(accuracy, before, problems)
        if warning:
            print(f"WARNING: {warning}", file=sys.stderr, flush=True)
        self._keep(Validation(self._run, step, answerer, accuracy, problems, warning))
        if (junior := self._first("junior")) is not None:
            metrics[JUNIOR_ALONE] = junior.accuracy
        return metrics

    def _forget(self, after: int) -> None:
        """Forget other runs, and what this run, before it was resumed, had after a step.

        The junior's stays: it does not change.
        """
        self._validations = [
            earlier
            for earlier in self._validations
            if earlier.run == self._run and (earlier.step <= after or earlier.answerer == "junior")
        ]

    def _first(self, answerer: Answerer) -> Validation | None:
        """This run's first validation by one of them; of the senior, the first that is judged."""
        mine = (
            validation
            for validation in self._validations
            if (validation.run, validation.answerer) == (self._run, answerer)
            and (answerer != "senior" or 0 <= validation.accuracy <= 1)
        )
        return min(mine, key=lambda validation: validation.step, default=None)

    def _keep(self, validation: Validation) -> None:
        """Add it, in place of one at the same step that is not the run's first."""
        first, place = self._first(validation.answerer), (validation.step, validation.answerer)
        self._validations = [
            earlier
            for earlier in self._validations
            if earlier is first or (earlier.step, earlier.answerer) != place
        ]
        self._validations.append(validation)
        if self._file is not None and self._writes:
            rows = [asdict(noted) for noted in self._validations]
            write_file(self._file, json.dumps(rows, indent=1) + "\n")


def read_validations(folder: str | Path) -> list[Validation]:
    """What a run noted of its validations next to its rollouts; nothing of an unreadable file."""
    try:
        rows = read_json(Path(folder) / FILE)
        return [_validation(row) for row in rows]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _validation(row: Any) -> Validation:
    """Raises ValueError, LookupError or TypeError if the row is none."""
    validation = Validation(**row)
    numbers = (validation.step, validation.accuracy, validation.problems)
    texts = (validation.run, validation.answerer, validation.warning)
    is_sound = all(map(is_number, numbers)) and all(isinstance(text, str) for text in texts)
    if not is_sound or validation.answerer not in _ANSWERERS:
        raise ValueError(row)
    return validation


def _warning(accuracy: float, before: float, problems: int) -> str:
    """What to say of a fall beyond chance; else nothing."""
    change = accuracy - before
    error = math.sqrt(sum(rate * (1 - rate) for rate in (accuracy, before)) / problems)
    if change >= -_ERRORS * error:
        return ""
    return (
        f"the senior alone solves {accuracy:.1%} of the validation problems, {-100 * change:.1f} ± "
        f"{100 * error:.1f} points less than at this run's first validation. In tandem it may be "
        "drawn to what the junior knows better than it does. Let it write some of the responses "
        "alone: tandem.alone=0.25."
    )
