"""Writes the problems of a run of OpenRLHF, which ends when it has seen all of its prompts once.

As many as are asked for, in an order by a seed; where the set has fewer, each comes again in
another order before any comes a third time. The same set, number and seed give the same file::

    python examples/openrlhf/choose_problems.py openrlhf-data/train.jsonl 4000 problems.jsonl
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path


def chosen(lines: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """``count`` of the lines, each as often as any other or once more."""
    draws, found = random.Random(seed), list[str]()
    while len(found) < count:
        found += draws.sample(lines, len(lines))
    return found[:count]


def main(source: str, count: str, out: str) -> None:
    """Write them; a file without problems is an error."""
    try:
        lines = [line for line in Path(source).read_text("utf-8").splitlines() if line.strip()]
    except OSError as error:
        sys.exit(f"The problems {source!r} cannot be read ({error.strerror}): tandem data prepare "
                 "SOURCE --to openrlhf --out openrlhf-data writes them.")  # fmt: skip
    if not lines:
        sys.exit(f"{source!r} holds no problem.")
    Path(out).write_text("".join(line + "\n" for line in chosen(lines, int(count))), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
