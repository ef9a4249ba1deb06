"""How much time, memory and text one response may cost."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tandem_plugin.errors import ConfigError

__all__ = ["GradingLimits"]


@dataclass(frozen=True, slots=True)
class GradingLimits:
    """Hard limits of grading. Raises :class:`ConfigError` for one that cannot be kept."""

    seconds: float = 5.0
    """CPU time that one response may take in a worker, all its golds together; six times as
    much wall time, so that a busy machine changes no grade."""
    memory_mb: int = 1024
    """Address space of one worker, in MiB."""
    workers: int | None = None
    """Worker processes of one calling process; None takes its CPUs, at most four."""
    window_chars: int = 1_000_000
    """Only this much of a response's end is searched for a box."""
    answer_chars: int = 2_000
    """A longer answer is not read."""
    answer_depth: int = 24
    """An answer whose brackets nest deeper is not read."""

    def __post_init__(self) -> None:
        for name, least in (
            ("seconds", 0.05),
            ("memory_mb", 256),
            ("workers", 1),
            ("window_chars", 100),
            ("answer_chars", 10),
            ("answer_depth", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError("TP801", name=name, value=value, least=least)

    @property
    def worker_count(self) -> int:
        """The number of workers that ``workers`` stands for."""
        return self.workers or min(4, len(os.sched_getaffinity(0)))
