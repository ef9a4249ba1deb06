"""The benchmarks of the speculative mode run and count what they should; how fast, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.speculation import needs_drafting

pytestmark = [needs_drafting, pytest.mark.long, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "speculative.py"


def test_every_engine_is_measured_beside_single_models_and_lockstep(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--toy", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "speculative.json").read_text())["cases"]
    assert set(found) == {
        f"{junior}, batch {batch}" for junior in ("equal", "small junior") for batch in (1, 4)
    }
    for case in found.values():
        assert [(row["mode"], row["drafts"]) for row in case["rows"]] == [
            ("lockstep", None), ("speculative", 2), ("speculative", 4), ("speculative", 8),
            ("speculative, solo", 4),
        ]  # fmt: skip
        for row in case["rows"]:
            assert 0 < row["low"] <= row["median"] <= row["high"]
            for other in ("ratio_to_single_v1", "ratio_to_single_v2", "ratio_to_lockstep"):
                assert row[other]["median"] > 0
            if row["drafts"] is not None:
                counted = row["counters"]
                assert counted["drafts"] == row["drafts"] * counted["rounds"] > 0
