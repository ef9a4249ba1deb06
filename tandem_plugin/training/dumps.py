"""The responses of a training step as a file, where a trainer writes none itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.files import write_file
from tandem_plugin.training.rows import Row

__all__ = ["write_step"]


def write_step(
    folder: str | Path, step: int, responses: Iterable[tuple[Row, Mapping[str, Any]]]
) -> None:
    """Write ``<folder>/<step>.jsonl``, one response a line, whole or not at all.

    responses: each row with what the trainer knows besides, under the names that verl's dumps have:
    ``input``, ``output``, ``gts``, ``score``. A step that is done again replaces its file. Raises
    :class:`OutputError` where it cannot be written.
    """
    lines = (json.dumps({**known, "step": step, **row.dump()}) for row, known in responses)
    write_file(Path(folder) / f"{step}.jsonl", "".join(line + "\n" for line in lines))
