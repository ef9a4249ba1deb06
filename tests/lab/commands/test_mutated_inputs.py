"""Spoiled inputs of commands: a sentence or a result, never a traceback, a hang or a loss.

``TANDEM_MUTATED_INPUTS`` says how many there are for each command, and ``TANDEM_MUTATED_SEED``
which ones. What is found is written with the number of its input, which makes it again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.cli import app
from tandem_plugin.errors import EngineError

INPUTS = int(os.environ.get("TANDEM_MUTATED_INPUTS", "40"))
SEED = int(os.environ.get("TANDEM_MUTATED_SEED", "0"))
SECONDS = 60
"""How long one input may take, on a machine that does much else."""
PIECES = ("a", "b", "Ġa", "Ġb", "ĊĊ", "c", "Ġ", ".")
WRITTEN = {"out", "page.html"}
ROLLOUT = ("--senior", "model", "--problems", "problems.jsonl", "--engine", "tokenizer=vocab.json")
COMMANDS = {
    "replay": (("rollouts.jsonl", "--tokenizer", "vocab.json"), ("rollouts.jsonl", "vocab.json")),
    "replay --without-seed": (
        ("rollouts.jsonl", "--tokenizer", "vocab.json"),
        ("rollouts.jsonl", "vocab.json"),
    ),
    "view": (
        ("rollouts.jsonl", "--tokenizer", "vocab.json", "--out", "page.html"),
        ("rollouts.jsonl", "vocab.json"),
    ),
    "data prepare": (("problems.jsonl", "--to", "openrlhf", "--out", "out"), ("problems.jsonl",)),
    "data prepare --bad-rows skip": (
        ("problems.json", "--to", "verl", "--out", "out", "--heldout", "1"),
        ("problems.json",),
    ),
    "rollout": (
        (*ROLLOUT, "--out", "written.jsonl"),
        ("problems.jsonl", "written.jsonl", "written.jsonl.run.json", "model/config.json"),
    ),
}
"""By their names: more arguments, and the files that a mutation may spoil."""


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 10**400, 0.5, float("nan"), float("inf"), "", "x" * 300, "\x00",
    "\ud800", "../x", [], {}, [[]], [None], [1, "a"], {"a": 1}, "1" * 5000, {"\ud800": 1},
    {"schedule": "word", "\ud800": 1}, {"schedule": {"\x00": []}}, nested(200), nested(900),
)  # fmt: skip
"""What takes the place of a value in a row or a setting."""
KEYS = ("\ud800", "", "\x00", "x" * 300, "schedule", "self", "problem")
"""What takes the place of a name."""
RAW = (
    b"9" * 5000, b"1e400", b"[" * 100_000, b'{"a": 1, "a": 2}', b"NaN", b"\xff\xfe",
    b'"\xed\xa0\x80"', b"\x00", b"'x'", b"",
)  # fmt: skip
"""The same as bytes that no JSON writer writes."""


def _bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 20))):
        start = rng.randrange(len(content) + 1)
        stop = start + rng.choice((0, 1, 4, 500))
        content[start:stop] = rng.choice((b"", rng.randbytes(4), *RAW))
    path.write_bytes(bytes(content))


def _value(path: Path, rng: random.Random) -> None:
    """Replace, drop or rename a value of a JSON file, or of one of its rows."""
    lines = path.read_text().splitlines()
    place = rng.randrange(len(lines))
    row = holder = json.loads(lines[place])
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.7:
        holder = holder[key]
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if rng.random() < 0.2:
        del holder[key]
    elif isinstance(holder, dict) and rng.random() < 0.2:
        holder[rng.choice(KEYS)] = holder.pop(key)
    else:
        holder[key] = rng.choice(VALUES)
    lines[place] = json.dumps(row)
    path.write_text("\n".join(lines) + "\n")


def _gone(path: Path, rng: random.Random) -> None:
    path.unlink()
    instead: tuple[Callable[[], Any], ...] = (
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("nowhere"),
        lambda: None,
    )
    rng.choice(instead)()


def make_inputs(folder: Path) -> None:
    vocabulary = Vocabulary(PIECES, "a test")
    rows: list[dict[str, Any]] = [{"response_ids": [0, 1], "response": "ab", "tandem_seed": None}]
    for i, settings in enumerate(({"schedule": "word", "p": 0.5}, {"schedule": "chunk"})):
        rule = TandemRules(TandemConfig.from_mapping(settings), vocabulary).default
        ids = random.Random(i).choices(range(8), k=20)
        rows.append({
            "problem": i, "sample": 0, "prompt": "2+2?", "answer": "4", "reward": 1.0,
            "response": b"".join(vocabulary.texts()[t] for t in ids).decode(),
            "response_ids": ids, "authorship": rule.replay(ids, 7).tolist(), "tandem_seed": 7,
            "tandem_fingerprint": rule.fingerprint, "tandem_schedule": settings,
            "tandem_segments": [[7, 0, 20]], "tandem_unknown": [[3, 5]], "step": 3,
        })  # fmt: skip
    problems: list[dict[str, Any]] = [
        {"problem": "What is 1 + 1?", "answer": ["2", "2.0"]},
        {"messages": [{"role": "user", "content": "Add."}], "solution": "\\boxed{3}"},
        {"problem": "What is 1 + 3?", "answer": 4},
    ]
    (folder / "model").mkdir()
    files = {
        "rollouts.jsonl": rows,
        "written.jsonl": rows[1:],
        "written.jsonl.run.json": [{"senior": "vocab.json", "seed": 0}],
        "vocab.json": [{piece: i for i, piece in enumerate(PIECES)}],
        "problems.jsonl": problems,
        "problems.json": [problems],
        "model/config.json": [{"model_type": "qwen3"}],
    }
    for name, lines in files.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: Any) -> Any:
        raise EngineError("The engine would start here.")

    monkeypatch.setattr("tandem_plugin.lab.rollouts.engine.start_engine", start)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def end(*signalled: Any) -> None:
        raise TimeoutError(f"took longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def contents(folder: Path) -> dict[str, bytes | None]:
    """All that lies in a folder but what commands write; None for what is no file."""
    found = (path for path in folder.rglob("*") if path.relative_to(folder).parts[0] not in WRITTEN)
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("command", COMMANDS)
def test_spoiled_inputs_end_in_a_sentence_and_lose_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, spoiled = COMMANDS[command]
    codes = []
    for number in range(INPUTS):
        rng = random.Random(f"{SEED} {command} {number}")
        work = tmp_path / str(number)
        work.mkdir()
        make_inputs(work)
        monkeypatch.chdir(work)
        (spoil,) = rng.choices((_bytes, _value, _gone), (4, 12, 1)) if number else [lambda *_: None]
        spoil(Path(rng.choice(spoiled)), rng)
        before = contents(work)
        with limited(SECONDS):
            done = CliRunner().invoke(app, [*command.split(), *arguments])
        where = f"{command}, {number}: "
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            where += "".join(traceback.format_exception(done.exception)[-6:])
        assert done.exit_code in (0, 1), where + done.output
        assert done.output.strip(), where
        assert "Traceback" not in done.output, where
        assert contents(work).items() >= before.items(), where
        codes.append(done.exit_code)
    assert codes[0] == 0 or command in ("replay --without-seed", "rollout"), "valid inputs are read"
