"""The engine's wiring, as its package says it."""

from __future__ import annotations

import re
from pathlib import Path

from tandem_plugin import engine

WIRING = engine.__doc__ or ""
FOLDER = Path(engine.__path__[0])
NO_PARTS = ["tandem"]  # the argument of TandemLLM's calls


def exists(name: str) -> bool:
    path = FOLDER / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_the_wiring_names_every_part_of_the_engine_and_no_other() -> None:
    parts = {path.stem for path in FOLDER.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - {"__init__", "__pycache__"} <= set(re.findall(r"``(\w+)", WIRING))
    told = re.findall(r"``([a-z][a-z_0-9.]*)``", WIRING)
    assert [name for name in told if not exists(name)] == NO_PARTS


def test_the_wiring_has_four_groups_and_a_line_for_each_part() -> None:
    lines = WIRING.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        "Startup:", "A request:", "A step:", "Afterwards:",
    ]  # fmt: skip
    assert all(len(line) <= 100 for line in lines)
    assert sum(line.startswith("- ``") for line in lines) > 20
