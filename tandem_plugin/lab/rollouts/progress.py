"""How far a file of rollouts is, while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["response_progress"]


@contextmanager
def response_progress(name: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """Show it on stderr; gives what to call with each response's length.

    total: responses in all. done: those that are there already.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from tandem_plugin.progress import ShownProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]:,} tokens"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with ShownProgress(*columns, transient=False) as progress:
        task = progress.add_task(name, total=total, completed=done, tokens=0)
        tokens = 0

        def advance(length: int) -> None:
            nonlocal tokens
            tokens += length
            progress.update(task, advance=1, tokens=tokens)

        yield advance
