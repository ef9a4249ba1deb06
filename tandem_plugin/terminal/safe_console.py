"""A console that writes control characters out instead of sending them to the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tandem_plugin.errors import printable


class SafeConsole(Console):
    """rich's console: its own colours and bars reach the terminal, no text's control characters."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As of rich's ``Console``, without the spaces that fill lines."""
        line: list[Segment] = []
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            if text == "\n":
                while line and not line[-1].control and line[-1].text.isspace():
                    line.pop()
                if line and not line[-1].control:
                    last = line.pop()
                    line.append(Segment(last.text.rstrip(" "), last.style))
                yield from line
                line.clear()
            line.append(Segment(text, segment.style, segment.control))
        yield from line
