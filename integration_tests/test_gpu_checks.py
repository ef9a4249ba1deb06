"""The checks of make test-gpu start, end and pass, at toy size on a CPU, on Model Runner V1.

What they show of a GPU, they show on one: see docs/compatibility.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "gpu_checks.py"
ENGINES = ["V1, lockstep, eager, float32", "V1, lockstep, FULL_AND_PIECEWISE, float32"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, str(SCRIPT), "--toy", "--part", "v1", "--out", str(folder)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*command, "--limit", "800"], capture_output=True, text=True, timeout=850, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def cases(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "v1.json").read_text())["cases"]
    return found


def test_every_engine_passes_every_check(cases: dict[str, Any]) -> None:
    checks = ["greedy", "traffic", "first sync", "second sync"]
    expected = {f"{engine}: {check}" for engine in ENGINES for check in checks}
    assert set(cases) == expected | {f"{ENGINES[1]}: replayed graphs"}
    assert [name for name, case in cases.items() if case["passed"] is not True] == []


def test_greedy_tokens_are_those_of_their_authors_and_of_nobody_else(cases: dict[str, Any]) -> None:
    for engine in ENGINES:
        for check in ("greedy", "first sync", "second sync"):
            case = cases[f"{engine}: {check}"]
            assert case["likeliest"] == case["tokens"] >= 40
            assert case["telling"] > 0.9 * case["tokens"]
