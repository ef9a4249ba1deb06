"""What an engine itself recorded, by tandem seed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def all_records(folder: Path) -> list[dict[str, Any]]:
    """All that an engine has recorded so far, in the order of its process's writing."""
    return [
        json.loads(line)
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]


def recorded(folder: Path, seeds: Iterable[int], patience: float = 60) -> dict[int, dict[str, Any]]:
    """The last record of each seed; a preempted request leaves one each time it is preempted.

    The engine records a request at the step after its last one, which may come after the response:
    so this waits until all are there, at most ``patience`` seconds.
    """
    wanted = set(seeds)
    end = time.monotonic() + patience
    while True:
        rows = {row["tandem_seed"]: row for row in all_records(folder)}
        if wanted <= set(rows) or time.monotonic() > end:
            return rows
        time.sleep(0.05)
