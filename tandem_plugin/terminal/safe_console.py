"""A console that escapes control characters instead of sending them to the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tandem_plugin.errors import printable

__all__ = ["SafeConsole"]


class SafeConsole(Console):
    """rich's console: passes its own colours and bars on, but no control characters of text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich's ``Console``."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield Segment(text, segment.style, segment.control)
