"""The engine's own record of who wrote each token, for audits: one JSON line a finished request."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tandem_plugin.engine.authors import Passage

__all__ = ["AuthorshipRecord"]


class AuthorshipRecord:
    """Appends finished requests to ``<folder>/authorship-<process id>.jsonl``.

    A request that was preempted and resumed leaves a line each time; the last one is whole.
    """

    def __init__(self, folder: str) -> None:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self._file = (path / f"authorship-{os.getpid()}.jsonl").open("a", encoding="utf-8")

    def write(self, passage: Passage) -> None:
        """Append one request; the line is on disk when this returns."""
        row = {
            "tandem_seed": passage.seed,
            "tandem_fingerprint": passage.rule.fingerprint,
            "tandem_schedule": passage.rule.settings(),
            "response_ids": list(passage.output),
            "authorship": [int(author) for author in passage.authors],
        }
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
