"""Problems that reasoning-gym generates: ``reasoning-gym:NAME,count=500,seed=0,...``."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tandem_plugin.errors import DataError
from tandem_plugin.grading.generated import check_task, gold_of
from tandem_plugin.lab.data.problem import Problem, ProblemSet

PREFIX = "reasoning-gym:"
"""How the source of a task begins."""


def read_generated(source: str) -> ProblemSet:
    """The problems of a task.

    count: the number of problems. seed: selects them; sets with different seeds are drawn
    independently, and in a small task they can share problems. Other keys are the
    task's own settings, such as ``max_terms=3``. Raises :class:`DataError` for an unknown task or
    setting, :class:`GradingError` if the library is missing.
    """
    name, *pairs = source.removeprefix(PREFIX).split(",")
    check_task(name)
    settings = dict(map(_setting, pairs))
    count, seed = settings.pop("count", 500), settings.pop("seed", 0)
    import reasoning_gym

    # The library seeds problem i with seed + i, so adjacent seeds share problems.
    start = int.from_bytes(hashlib.sha256(f"{name} {seed}".encode()).digest()[:4], "big")
    try:
        if type(count) is not int:  # infinity would never end
            raise ValueError(f"count={count!r} is not an integer")
        entries = reasoning_gym.create_dataset(name, size=count, seed=start, **settings)
        problems = tuple(
            Problem(
                row,
                ({"role": "user", "content": entry["question"].strip()},),
                (gold_of(name, entry),),
            )
            for row, entry in enumerate(entries, 1)
        )
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError("generated-set-failed", source=source, error=error) from error
    return ProblemSet(f"reasoning-gym-{name}", problems)


def _setting(pair: str) -> tuple[str, Any]:
    """``max_terms=3`` as a name and a value; a value that is not JSON is text."""
    key, _, text = pair.partition("=")
    try:
        return key.strip(), json.loads(text)
    except ValueError:
        return key.strip(), text.strip()
