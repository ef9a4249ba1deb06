"""A console that writes control characters out instead of sending them to the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from tandem_plugin.errors import printable

__all__ = ["SafeConsole", "Unpadded"]


class Unpadded:
    """A stream that is given no spaces at the ends of lines, with which tables are filled up."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of a text stream; rich writes whole lines."""
        return self._stream.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class SafeConsole(Console):
    """rich's console: its own colours and bars reach the terminal, no text's control characters.

    Text is made :func:`printable` before it is laid out, so that none of it is cut off, and what a
    renderable makes by itself after it.
    """

    def render_str(self, text: str, **how: Any) -> Text:
        """As of rich's ``Console``."""
        return super().render_str(printable(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As of rich's ``Console``."""
        if isinstance(renderable, Text) and printable(renderable.plain) != renderable.plain:
            # Spans are by place, and lost: colours are not worth obeying the text.
            renderable = renderable.blank_copy(printable(renderable.plain))
        for segment in super().render(renderable, options):
            if segment.control or printable(segment.text) == segment.text:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
