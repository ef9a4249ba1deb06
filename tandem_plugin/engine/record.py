"""The engine's own record of who wrote each token, for audits: one JSON line a finished request."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.engine.authors import Passage

__all__ = ["AuthorshipRecord"]


class AuthorshipRecord:
    """Appends finished requests to ``<folder>/authorship-<process id>.jsonl``.

    A request that was preempted and resumed leaves a line each time; the last one is whole. So does
    a response that went on in another request: that one's line is the whole response too, and says
    in ``tandem_begun`` how many of its tokens came before, whose authors it replayed.
    """

    def __init__(self, folder: str) -> None:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self._file = (path / f"authorship-{os.getpid()}.jsonl").open("a", encoding="utf-8")

    def write(self, passage: Passage, more: Mapping[str, Any] | None = None) -> None:
        """Append one request; the line is on disk when this returns.

        more: further fields of its line.
        """
        before = passage.rule.replay(passage.begun, passage.seed)
        row = {
            "tandem_seed": passage.seed,
            "tandem_fingerprint": passage.rule.fingerprint,
            "tandem_schedule": passage.rule.settings(),
            "response_ids": [*passage.begun, *passage.output],
            "authorship": [int(author) for author in (*before, *passage.authors)],
        }
        if passage.begun:
            row["tandem_begun"] = len(passage.begun)
        row.update(more or {})
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
