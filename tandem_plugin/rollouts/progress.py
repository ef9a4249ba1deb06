"""How far a file of rollouts is, while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["response_progress"]


@contextmanager
def response_progress(name: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal; gives what to call with each response's length.

    total: responses in all. done: those that are there already.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]:,} tokens"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(name), total=total, completed=done, tokens=0)
        tokens = 0

        def advance(length: int) -> None:
            nonlocal tokens
            tokens += length
            progress.update(task, advance=1, tokens=tokens)

        yield advance
