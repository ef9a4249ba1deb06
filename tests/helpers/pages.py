"""Makes a page of ``tandem view``, and reads it as a browser would: the data its scripts unpack."""

from __future__ import annotations

import base64
import json
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tandem_plugin.cli import app


def view(rollouts: Path, tokenizer: Path, *options: str) -> tuple[int, Any, Any]:
    """Run ``tandem view --json``; exit code, result, and the data of the page, if there is one."""
    page = tokenizer.with_name("page.html")
    page.unlink(missing_ok=True)
    arguments = ["view", str(rollouts), "--tokenizer", str(tokenizer), "--json"]
    place = [] if "--out" in options else ["--out", str(page)]
    done = CliRunner().invoke(app, [*arguments, *place, *options])
    return done.exit_code, json.loads(done.stdout), content_of(page) if page.exists() else None


class Scripts(HTMLParser):
    """Collects what a browser would take for scripts, and every other tag."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.tags: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def content_of(page: Path) -> dict[str, Any]:
    """The data of a page, as its script reads it: responses with their texts, turns by problem."""
    scripts = Scripts()
    scripts.feed(page.read_text(encoding="utf-8"))
    index, *parts = scripts.scripts[:-1]
    data = json.loads(index)
    columns = data["responses"]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    unpacked = [json.loads(zlib.decompress(base64.b64decode(part))) for part in parts]
    data["responses"] = [row | unpacked[row["part"]]["responses"][row["place"]] for row in rows]
    data["turns"] = {int(k): v for part in unpacked for k, v in part["prompts"].items()}
    return data
