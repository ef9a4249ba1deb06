"""What an engine went by for each request that it took in, for the response to say."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from tandem_plugin.request import response_mark

if TYPE_CHECKING:
    from tandem_plugin.rules import ResolvedRequest

__all__ = ["ADMITTED", "note_admitted"]

ADMITTED: ContextVar[list[str]] = ContextVar("tandem_admitted")
"""One mark per tandem request of the body that this task answers. Tasks that a handler starts share
its list."""


def note_admitted(resolved: ResolvedRequest | None) -> None:
    """Keep what the engine goes by for a request that it has just taken in."""
    if resolved is not None and (marks := ADMITTED.get(None)) is not None:
        marks.append(response_mark(resolved.seed, resolved.rule.fingerprint))
