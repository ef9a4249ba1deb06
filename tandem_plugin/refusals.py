"""Every error by its code: its message and its remedy, from ``refusals.json``.

``{name}``, ``{name!r}`` and ``{name:.2f}`` are Python's; ``{name!q}`` is an external value, quoted
and truncated to fit in a sentence (:func:`tandem_plugin.errors.shown`).

A code never changes its meaning: a new error takes the next free number of its group, and a retired
number is not reused. ``docs/troubleshooting.md`` is generated from the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["GROUPS", "REFUSALS"]

GROUPS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
"""The areas in order: a title, a guide as Markdown, and the errors by their ascending codes."""

REFUSALS: dict[str, list[str]] = {
    code: entry for group in GROUPS for code, entry in group["refusals"].items()
}
"""The sentence and the remedy of each code."""
