"""What commands send to a terminal, to a full disk and to programs, whatever others wrote."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.errors import printable

HOSTILE = "a\x1b[2Jb\x1b]0;pwn\x07c\rd\x9b31me\u202ef\x7fg"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What terminals obey, or lay out in another order, but for the end of a line and the tab."""


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    problems = [{"problem": HOSTILE, "answer": HOSTILE}, {HOSTILE: 1}]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(p) + "\n" for p in problems))
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "Ġb": 1, f"Ġ{HOSTILE}": 2}))
    rollout = {
        "response_ids": [0, 1], "authorship": [1, 0], "tandem_seed": 1, "tandem_fingerprint": "x",
        "tandem_schedule": {"schedule": HOSTILE}, "response": HOSTILE,
    }  # fmt: skip
    other = {**rollout, "tandem_schedule": {"schedule": "word", HOSTILE: 1}}
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(rollout) + "\n" + json.dumps(other) + "\n")
    (tmp_path / f"{HOSTILE}.jsonl").write_text("{}\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "prepare", f"{HOSTILE}.jsonl", "--to", "openrlhf", "--out", "o"],
        ["data", "prepare", "problems.jsonl", "--to", "openrlhf", "--out", f"o{HOSTILE}",
         "--bad-rows", "skip"],
        ["replay", "rollouts.jsonl", "--tokenizer", "vocab.json"],
        ["replay", f"{HOSTILE}.jsonl", "--tokenizer", "vocab.json"],
        ["replay", "rollouts.jsonl", "--tokenizer", "vocab.json", "--schedule", HOSTILE],
        ["view", "rollouts.jsonl", "--tokenizer", "vocab.json", "--out", f"{HOSTILE}.html"],
        ["compare", HOSTILE],
        ["report", HOSTILE],
        ["eval", "drift", "--senior", HOSTILE, "--junior", HOSTILE, "--out", HOSTILE],
        ["plan", "--senior", HOSTILE, "--memory", "8"],
        ["rollout", "--senior", HOSTILE, "--problems", "problems.jsonl", "--out", "o"],
        ["path", HOSTILE],
        ["doctor", f"--{HOSTILE}"],
        [HOSTILE],
    ],
    ids=lambda arguments: " ".join(arguments).replace(HOSTILE, "HOSTILE")[:60],
)  # fmt: skip
def test_no_control_character_of_others_text_reaches_the_terminal(
    inputs: Path, arguments: list[str]
) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.stdout or done.stderr
    assert not OBEYED.search(done.stdout)
    assert not OBEYED.search(done.stderr)


def test_a_table_on_a_terminal_keeps_its_colours_and_writes_others_codes_out() -> None:
    code = (
        "from rich.table import Table; from rich.text import Text; from rich.panel import Panel\n"
        "from tandem_plugin.terminal.output import table_console\n"
        f"hostile = {HOSTILE!r}\n"
        "table = Table(hostile, title=hostile)\n"
        "table.add_row(Text(hostile, style='red')); table.add_row(hostile)\n"
        "console = table_console()\n"
        "console.print(table); console.print(Panel(Text(hostile), title=hostile))\n"
        "console.print(hostile, markup=False); console.print(hostile, style='green')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "100", "TERM": "xterm"},
        capture_output=True,
        check=True,
    )
    said = done.stdout.decode()
    assert "\x1b[31m" in said
    assert not OBEYED.search(re.sub(r"\x1b\[[0-9;]*m", "", said))
    assert "\x1b[2J" not in said
    assert said.count("\\x1b[2J") == 8


@given(st.text())
def test_printable_text_has_nothing_to_obey_and_keeps_the_rest(text: str) -> None:
    said = printable(text)
    assert not OBEYED.search(said)
    assert printable(said) == said
    if not re.search("[\u061c\u200e\u200f]", text) and not OBEYED.search(text):
        assert said == text


def test_json_stays_json(inputs: Path) -> None:
    command = ["data", "prepare", "problems.jsonl", "--bad-rows", "skip", "--to", "openrlhf"]
    done = CliRunner().invoke(app, [*command, "--out", "out", "--instruction", HOSTILE, "--json"])
    assert HOSTILE in json.loads(done.stdout)["bad_rows"][0]["reason"]
    done = CliRunner().invoke(app, [*command, "--out", f"problems.jsonl/{HOSTILE}", "--json"])
    assert "\x1b" not in done.stdout
    assert json.loads(done.stdout)["error"]


def started(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "tandem_plugin", *arguments]
    return subprocess.run(command, text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["plugins"],
        ["plugins", "--json"],
        ["path", "reward-verl"],
        ["replay", "rollouts.jsonl", "--tokenizer", "vocab.json"],
        ["replay", "none.jsonl", "--json"],
        ["view", "rollouts.jsonl", "--tokenizer", "vocab.json"],
        ["data", "prepare", "problems.jsonl", "--to", "openrlhf", "--out", "o"],
        ["plan", "--senior", "none", "--memory", "8", "--json"],
    ],
    ids=" ".join,
)
def test_full_disk_behind_the_output_is_a_sentence(inputs: Path, arguments: list[str]) -> None:
    (inputs / "problems.jsonl").write_text('{"problem": "1 + 1?", "answer": 2}\n')
    row = {"response_ids": [0, 1], "response": "a b", "tandem_seed": None}
    (inputs / "rollouts.jsonl").write_text(json.dumps(row))
    with open("/dev/full", "w") as full:
        done = started(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr.endswith("The output cannot be written: No space left on device.\n")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_module_is_the_command_and_its_output_may_be_closed(inputs: Path) -> None:
    done = started("--help", stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: tandem ")
    closed = started("plugins", preexec_fn=lambda: os.close(1))
    assert (closed.returncode, closed.stderr) == (0, "")


def test_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.table", None)
    done = CliRunner().invoke(app, ["plugins"])
    assert done.exit_code == 1
    assert "rich.table is missing" in done.stderr
    assert "package-missing" in done.stderr
    done = CliRunner().invoke(app, ["plugins", "--json"])
    assert done.exit_code == 0


def test_json_may_stand_before_the_command() -> None:
    done = CliRunner().invoke(app, ["--json", "plugins"])
    assert json.loads(done.stdout) == json.loads(
        CliRunner().invoke(app, ["plugins", "--json"]).stdout
    )
    done = CliRunner().invoke(app, ["--json", "replay", "--", "--json"])
    assert "'--json'" in json.loads(done.stdout)["error"]
    assert "stack" in json.loads(CliRunner().invoke(app, ["--json", "--version"]).stdout)
