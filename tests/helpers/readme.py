"""What README says that a reader types, as tests type it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def one_flag(trainer: str, page: Path = README) -> list[str]:
    """The pieces of code in a trainer's row: arguments for verl, otherwise one command or call."""
    text = page.read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| \[?{trainer}(?:\]\([^)]*\))? \| (.*) \|$", text, re.M | re.I)
    return re.findall(r"`([^`]+)`", row)


def command_with_flag(trainer: str) -> list[str]:
    """The words of a row's command: ``python -m MODULE``, and tandem's flags."""
    (line,) = one_flag(trainer)
    return shlex.split(line)
