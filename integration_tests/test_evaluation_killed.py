"""An evaluation killed at many random moments, by a stand-in for the engine that starts at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.processes import members

TANDEM = "from tandem_plugin.cli import main; main()"
ENGINE = Path(__file__).parent / "support" / "slow_engine"
SAMPLES, PROBLEMS, KILLS = 8, 12, 8


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    for name in ("one", "two"):
        rows = [{"problem": f"What is {i}?", "answer": i} for i in range(PROBLEMS)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def made(out: Path) -> list[str]:
        return [
            *(sys.executable, "-c", TANDEM, "eval", "solo", "--senior", f"s={folder}"),
            *("--benchmark", str(folder / "one.jsonl"), "--benchmark", str(folder / "two.jsonl")),
            *("--out", str(out), "--n", str(SAMPLES), "--max-tokens", "40"),
        ]

    return made


def environment() -> dict[str, str]:
    path = [str(ENGINE), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(part for part in path if part)}


def finished(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]


def rows(out: Path) -> dict[tuple[str, int, int], dict[str, Any]]:
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for file in sorted(out.rglob("*.jsonl")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            key = file.name, row["problem"], row["sample"]
            assert key not in found, "a sample was repeated"
            found[key] = row
    return found


def lines(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.rglob("*.jsonl"))


def test_killed_at_random_moments_it_ends_with_the_same_result(command: Any, tmp_path: Path):
    whole, out = tmp_path / "whole", tmp_path / "killed"
    finished(command(whole))
    responses = 2 * PROBLEMS * SAMPLES
    assert lines(whole) == 2 * responses  # and a grade for each
    moments = random.Random(3)
    for target in sorted(moments.sample(range(1, 2 * responses - 64), KILLS)):
        before = {file: file.read_bytes() for file in out.rglob("*.jsonl")}
        process = subprocess.Popen(
            command(out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(),
        )
        deadline = time.monotonic() + 300
        while lines(out) < target and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
        while members(process.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert members(process.pid) == [], "a process outlived the command"
        for file, content in before.items():
            assert file.read_bytes().startswith(content[: content.rfind(b"\n") + 1])
    finished(command(out))
    assert rows(out) == rows(whole)
    assert (out / "s/solo/summary.json").read_bytes() == (
        whole / "s/solo/summary.json"
    ).read_bytes()
