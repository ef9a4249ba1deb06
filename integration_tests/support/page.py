"""The commands of a page of the documentation, as a script that a reader would have typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def page_script(page: str, out: Path, problems: Path) -> Path:
    """Write a page's commands up to its first trainer's, which takes the script's arguments.

    problems: is copied to where the script runs, under the name that the page uses.
    """
    blocks = re.findall(r"```\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    first = next(i for i, block in enumerate(blocks) if "python -m" in block)
    typed = "\n".join(blocks[: first + 1]).rstrip() + ' "$@"\n'
    script = out / f"{Path(page).stem}.sh"
    script.write_text(f"#!/usr/bin/env bash\nset -e\ncp {problems} problems.jsonl\n{typed}")
    script.chmod(0o755)
    return script


def write_problems(file: Path, count: int) -> Path:
    """Sums, with their answers."""
    rows = [{"problem": f"What is {i} + {2 * i}?", "answer": str(3 * i)} for i in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
