"""What docs/compatibility.md says of the stacks is what their constraint files pin."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
CONSTRAINTS = {
    file.name: dict(re.findall(r"^([\w-]+)==(\S+)$", file.read_text(), re.MULTILINE))
    for file in (ROOT / "constraints").glob("*.txt")
    if not file.name.startswith("overrides")
}


def test_every_stack_stands_in_the_table_with_its_versions() -> None:
    rows = re.findall(r"^\| `([\w.-]+\.txt)` \| ([\d., ]+)[^|]*(?::[^|]*)?\|", PAGE, re.MULTILINE)
    said = {name: tuple(versions.split(", ")) for name, versions in rows}
    assert {name: tuple(v.strip() for v in versions) for name, versions in said.items()} == {
        name: (pins["vllm"], pins["torch"], pins["transformers"])
        for name, pins in CONSTRAINTS.items()
    }


def test_files_that_the_pages_name_are_there() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {
        name
        for page in pages
        for name in re.findall(
            r"(?:constraints|docker)/[\w.-]+\.\w+", page.read_text(encoding="utf-8")
        )
    } - {"constraints/STACK.txt"}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
