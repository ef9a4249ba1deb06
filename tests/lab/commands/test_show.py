"""``tandem show``: one response in the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.boundaries.vocabulary_families import byte_level_piece
from tandem_plugin.cli import app
from tandem_plugin.lab.rollouts.rollout import text_digest

ANSI = re.compile(r"\x1b\[([\d;]*)m")


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write rows of bytes as tokens, and show one; the result."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text(json.dumps({byte_level_piece(bytes([i])): i for i in range(256)}))
    file = tmp_path / "rollouts.jsonl"

    def run(rows: list[Any], *options: str) -> Any:
        lines = (r if isinstance(r, str) else json.dumps(r) for r in rows)
        file.write_text("".join(line + "\n" for line in lines))
        command = ["show", str(file), "--tokenizer", str(vocabulary), *options]
        return CliRunner().invoke(app, command)

    return run


def row(text: str, authors: str, **fields: Any) -> dict[str, Any]:
    """authors: S or J for each byte of the text."""
    ids = list(text.encode())
    return {
        "response_ids": ids,
        "authorship": [int(who == "S") for who in authors],
        "tandem_seed": 1,
        "tandem_fingerprint": "x",
        "prompt": "2+2?",
    } | fields


ROW = row("I think so", "SSJJJJJJSS", answer="4", outcome="incorrect")


def test_response_of_a_line_is_printed_with_its_authors_marked(show: Any):
    done = show(["torn", ROW], "--row", "2")
    assert done.exit_code == 0
    assert done.stdout == ("2+2?\n\nI «think »so\n\ngold 4, outcome incorrect, seed 1\n")


def test_colours_tell_the_authors_in_a_terminal(show: Any):
    done = show([ROW], "--color", "always")
    assert ANSI.sub("", done.stdout) == "2+2?\n\nI think so\n\ngold 4, outcome incorrect, seed 1\n"
    spans = re.findall(r"\x1b\[([\d;]+)m([^\x1b]*)", done.stdout)
    assert [text for _, text in spans if text.strip()][1:4] == ["I ", "think ", "so"]
    styles = [style for style, text in spans if text.strip() in ("I", "think", "so")]
    assert styles[0] == styles[2] != styles[1]


@pytest.mark.parametrize("options", [(), ("--color", "auto"), ("--color", "never")])
def test_without_a_terminal_nothing_is_coloured(
    show: Any, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    if "never" in options:
        monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in show([ROW], *options).stdout


@pytest.mark.parametrize("color", ["always", "never"])
def test_hostile_text_reaches_no_terminal(show: Any, color: str):
    hostile = "\x1b[31mred\x07 \r\u202eover\x9b2J\n  \tend"
    done = show(
        [row(hostile, "S" * len(hostile.encode()), prompt=hostile, answer=hostile)],
        *("--color", color),
    )
    plain = ANSI.sub("", done.stdout) if color == "always" else done.stdout
    assert done.exit_code == 0
    written_out = r"\x1b[31mred\x07 \x0d\u202eover\x9b2J"
    assert plain.count(written_out) == 3, "in the prompt, the response and the gold"
    assert all(letter.isprintable() or letter == "\n" for letter in plain)


def test_json_has_the_spans(show: Any):
    done = show([ROW], "--json")
    result = json.loads(done.stdout)
    assert [(span["author"], span["tokens"], span["text"]) for span in result["spans"]] == [
        ("senior", 2, "I "),
        ("junior", 6, "think "),
        ("senior", 2, "so"),
    ]
    assert (result["row"], result["facts"][0]) == (1, "gold 4")


def test_grade_beside_the_file_is_shown(show: Any, tmp_path: Path):
    grade = {"problem": 0, "sample": 0, "outcome": "copied", "answer": "7"}
    grades = {**grade, "response_sha256": text_digest("I think so")}
    (tmp_path / "rollouts.grades.jsonl").write_text(json.dumps(grades) + "\n")
    done = show([{**ROW, "problem": 0, "sample": 0, "response": "I think so"}])
    assert "outcome copied, answered 7" in done.stdout


@pytest.mark.parametrize(
    ("rows", "number", "code", "said"),
    [
        (
            [ROW],
            2,
            "show-row-missing",
            "no response in line 2; the last that was read is in line 1",
        ),
        ([], 1, "show-row-missing", "line 0"),
        (["torn"], 1, "show-row-unreadable", "Line 1 of"),
        ([{**ROW, "response": "else"}], 1, "view-tokenizer-differs", "'else'"),
    ],
)
def test_row_that_cannot_be_shown_is_named(
    show: Any, rows: list[Any], number: int, code: str, said: str
):
    done = show(rows, "--row", str(number))
    assert done.exit_code == 1
    assert done.stderr.rstrip().endswith(f"[{code}]")
    assert said in done.stderr
    assert done.stderr.count("[") == 1 + done.stderr.count("['")
