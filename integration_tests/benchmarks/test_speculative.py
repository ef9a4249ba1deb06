"""The benchmarks of the speculative mode run and count what they should; how fast, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.speculation import needs_drafting

pytestmark = [needs_drafting, pytest.mark.long, pytest.mark.timeout(900), pytest.mark.engine]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "speculative.py"


def test_every_engine_is_measured_beside_single_models_and_lockstep(tmp_path: Path) -> None:
    options = ["--toy", "--part", "speculative", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "speculative.json").read_text())["cases"]
    assert set(found) == {"equal, batch 1", "equal, batch 4", "small junior, batch 1"}
    for case in found.values():
        engines = ["single model", "lockstep", "speculative", "speculative, solo"]
        assert [row["engine"] for row in case["rows"]] == engines
        for row in case["rows"]:
            assert 0 < row["low"] <= row["median"] <= row["high"]
            assert row["wall"]["median"] < row["median"]  # kernels are interpreted on a CPU
            for other in ("ratio_to_single", "ratio_to_lockstep"):
                assert row[other]["median"] > 0
            if row["engine"].startswith("speculative"):
                counted = row["counters"]
                assert counted["drafts"] == 4 * counted["rounds"] > 0
                assert counted["tokens"] <= counted["drafts"] + counted["rounds"]
