"""Writes the problems of a run of OpenRLHF, which ends when it has seen all of its prompts once.

As many as are asked for, in an order by a seed; where the set has fewer, each comes again in
a new order before any comes a third time. The same set, number and seed give the same file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tandem_plugin.errors import DataError
from tandem_plugin.files import read_file, write_file


def chosen(lines: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """``count`` of the lines, each as often as any other or once more."""
    draws, problems = random.Random(seed), list[str]()
    while len(problems) < count:
        problems += draws.sample(lines, len(lines))
    return problems[:count]


def write_chosen(source: str, count: str, out: str) -> None:
    """Copy ``count`` problems of a file to a second file, one per line.

    Raises :class:`DataError` where there are none, and :class:`OutputError` as
    :func:`tandem_plugin.files.write_file` does.
    """
    try:
        text = read_file(source).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise DataError("problem-file-missing", path=source) from error
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise DataError("problem-set-empty", name=source, first="")
    write_file(out, "".join(line + "\n" for line in chosen(lines, int(count))))
