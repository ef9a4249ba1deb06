"""The record of one graded response, and the limits within which it is graded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tandem_plugin.errors import ConfigError

Outcome: TypeAlias = Literal["correct", "incorrect", "copied", "no_answer", "timeout", "error"]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Grade:
    """The outcome of grading one response, and why."""

    outcome: Outcome
    answer: str | None
    """The content of the last box, as the response has it; None without one."""
    rule: str
    """The rule that decided; docs/grading.md lists them all."""
    milliseconds: float
    """Wall time from the call to the decision, waiting for a free worker left out."""
    gold: str | None = None
    """The gold that the answer equals; None unless the outcome is ``correct``."""
    message: str | None = None
    """A sentence for people where the outcome is ``timeout`` or ``error``."""

    @property
    def reward(self) -> float:
        """1.0 for ``correct``, 0.0 for everything else."""
        return 1.0 if self.outcome == "correct" else 0.0


@dataclass(frozen=True, slots=True)
class GradingLimits:
    """Hard limits of grading. Raises :class:`ConfigError` for limits that are too small."""

    seconds: float = 5.0
    """CPU time that one response may take in a worker, all its golds together; six times as
    much wall time: a busy machine changes no grade."""
    memory_mb: int = 1024
    """Address space of one worker, in MiB."""
    workers: int | None = None
    """Worker processes of one calling process; None takes its CPUs, at most four."""

    def __post_init__(self) -> None:
        for name, least in (("seconds", 0.05), ("memory_mb", 256), ("workers", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError("grading-limit-too-small", name=name, value=value, least=least)

    @property
    def worker_count(self) -> int:
        """The number of workers that ``workers`` means."""
        return self.workers or min(4, len(os.sched_getaffinity(0)))
