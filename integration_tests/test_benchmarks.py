"""The benchmarks run and say what they measured; how fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "run.py"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def results(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / f"{name}.json").read_text())


def test_every_case_of_every_benchmark_has_its_figures(out: Path) -> None:
    cases = {
        "lockstep": 8,
        "selection": 16,
        "replay_throughput": 4,
        "resuming": 6,
        "grading": 4,
    }
    for name, count in cases.items():
        found = results(out, name)["cases"]
        assert len(found) == count
        for case in found.values():
            assert 0 < case["low"] <= case["median"] <= case["high"]
            assert len(case["rounds"]) >= 1
    for case in results(out, "lockstep")["cases"].values():
        assert case["ratio_to_single"]["median"] > 0


def test_kv_blocks_are_those_that_both_models_leave_room_for(out: Path) -> None:
    cases = results(out, "engine_memory")["cases"]
    assert len(cases) == 3
    for case in cases.values():
        assert case["blocks"] == case["computed_blocks"]
    for name in ("tandem, equal sizes", "tandem, small junior"):
        case = cases[name]
        assert case["senior_bytes"] == case["computed_senior_bytes"]
        assert case["junior_bytes"] == case["computed_junior_bytes"] > 0


def test_tables_have_machine_and_command_beside_every_figure(out: Path) -> None:
    text = (out / "tables.md").read_text()
    names = ("lockstep", "selection", "replay_throughput", "resuming", "grading", "engine_memory")
    for name in names:
        assert f"`python benchmarks/{name}.py --quick`" in text
        assert results(out, name)["machine"]["processor"] in text


def test_quick_results_are_kept_out_of_the_documentation(out: Path) -> None:
    page = SCRIPT.parents[1] / "docs" / "performance.md"
    before = page.read_text()
    command = [sys.executable, str(SCRIPT), "--docs", "--out", str(out)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1
    assert "no whole results of: lockstep" in refused.stdout
    assert page.read_text() == before
