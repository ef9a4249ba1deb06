"""The results of one benchmark: a JSON file that is complete after every case."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Results:
    """``<folder>/<name>.json``: how and where it was measured, and one entry a case.

    A file of the same benchmark, machine and settings is continued: cases that it has are not
    measured again. Any other is replaced.
    """

    def __init__(self, folder: Path, name: str, header: Mapping[str, Any]) -> None:
        self.path = folder / f"{name}.json"
        self.header = dict(header)
        self.cases: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if {key: value for key, value in content.items() if key != "cases"} == self.header:
                self.cases = content["cases"]

    def __contains__(self, case: str) -> bool:
        return case in self.cases

    def add(self, case: str, figures: Mapping[str, Any]) -> None:
        """Add one case, with the machine's load; the file holds it when this returns."""
        self.cases[case] = {**figures, "load": round(os.getloadavg()[0], 2)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".tmp")
        content = {**self.header, "cases": self.cases}
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path)


def cases_of(out: Path, name: str) -> dict[str, dict[str, Any]]:
    """The cases that the file of a benchmark has so far."""
    file = out / f"{name}.json"
    if not file.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return found
