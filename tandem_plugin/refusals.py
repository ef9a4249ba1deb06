"""Every error by its code: its sentence and its remedy, from ``refusals.json``.

``raise ConfigError("TP101", settings=value)`` renders the entry's two sentences with the fields of
that run. ``{name}``, ``{name!r}`` and ``{name:.2f}`` are Python's; ``{name!q}`` is an external
value, quoted and truncated to fit in a sentence (:func:`tandem_plugin.errors.shown`).

A code never changes its meaning: a new error takes the next free number of its group, and a retired
number is not reused. ``docs/troubleshooting.md`` is generated from the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

__all__ = ["ADVICE", "GROUPS", "REFUSALS", "Group"]


class Group(NamedTuple):
    """The errors of one area: a section of the troubleshooting page."""

    title: str
    guide: str
    """What to read about all of them, as Markdown."""
    refusals: dict[str, tuple[str, str]]
    """By code, a sentence and a remedy."""


ADVICE = {
    "mend": "Install a version that this release supports.",
}
"""Fields that are advice in themselves, made where the error is, and what the page says of them."""


def _groups() -> tuple[Group, ...]:
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    return tuple(
        Group(
            group["title"],
            group["guide"],
            {code: (said, remedy) for code, (said, remedy) in group["refusals"].items()},
        )
        for group in json.loads(text)
    )


GROUPS = _groups()
"""The groups in the order of the page, and in each its refusals in the order of their codes."""

REFUSALS = {code: entry for group in GROUPS for code, entry in group.refusals.items()}
"""The sentence and the remedy of each code."""
