"""The benchmarks of the speculative mode run and count what they should; how fast, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.speculation import needs_drafting

pytestmark = [needs_drafting, pytest.mark.long, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "speculative.py"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, str(SCRIPT), "--toy", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def cases(out: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())["cases"]
    return found


def test_every_engine_is_measured_beside_single_models_and_lockstep(out: Path) -> None:
    found = cases(out, "speculative")
    assert set(found) == {"equal, batch 1", "equal, batch 4", "small junior, batch 1"}
    for case in found.values():
        engines = ["single model", "lockstep", "speculative", "speculative, solo"]
        assert [row["engine"] for row in case["rows"]] == engines
        for row in case["rows"]:
            assert 0 < row["low"] <= row["median"] <= row["high"]
            assert row["wall"]["median"] < row["median"]  # kernels are interpreted on a CPU
            for other in ("ratio_to_single", "ratio_to_lockstep"):
                assert row[other]["median"] > 0


def test_every_round_had_the_drafts_that_were_asked_for(out: Path) -> None:
    rows = [row for case in cases(out, "speculative").values() for row in case["rows"]]
    drafted = [row for row in rows if row["engine"].startswith("speculative")]
    assert len(drafted) == 6
    for row in drafted:
        counted = row["counters"]
        assert counted["drafts"] == 4 * counted["rounds"] > 0
        assert counted["tokens"] <= counted["drafts"] + counted["rounds"]
