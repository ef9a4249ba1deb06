"""The benchmarks run and say what they measured; how fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.drafting import has_drafting

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "run.py"
GPU_SCRIPT = SCRIPT.with_name("gpu.py")
CASES = {
    "lockstep": 6,
    "selection": 8,
    "replay_throughput": 2,
}
"""How many cases each benchmark has."""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, str(SCRIPT), "--toy", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def results(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / f"{name}.json").read_text())


def test_every_case_of_every_benchmark_has_its_figures(out: Path) -> None:
    for name, count in CASES.items():
        found = results(out, name)["cases"]
        assert len(found) == count
        for case in found.values():
            assert 0 < case["low"] <= case["median"] <= case["high"]
            assert len(case["rounds"]) >= 1
    for case in results(out, "lockstep")["cases"].values():
        assert case["ratio_to_single"]["median"] > 0


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the benchmarks for a GPU, those of one pair, at toy size."""
    folder = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, str(GPU_SCRIPT), "--toy", "--out", str(folder), "--limit", "400"]
    parts = ["--part", "1.7b", "--part", "weights-1.7b"]
    done = subprocess.run([*command, *parts], capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_gpu_benchmarks_measure_every_engine_that_this_vllm_has(toy: Path) -> None:
    for part in ("1.7b", "weights-1.7b"):
        cases = results(toy, part)["cases"]
        assert list(cases) == ["single", "lockstep", "speculative"]
        if not has_drafting():
            left_out = cases.pop("speculative")
            assert left_out["passed"] is None
            assert "use vLLM" in left_out["found"]
        for mode, case in cases.items():
            assert case["runner"] == ("V2" if mode == "speculative" else "V1")
            if case.get("passed", True) is None:  # on processors that vLLM packs weights for
                assert (part, mode) == ("weights-1.7b", "single")
                assert "packed this model's weights" in case["found"]
                continue
            assert case["rows"]
            assert all(row.get("median", row.get("seconds")) > 0 for row in case["rows"])
    throughput = results(toy, "1.7b")["cases"]
    assert [row["batch"] for row in throughput["lockstep"]["rows"]] == [1, 4]
    assert throughput["lockstep"]["memory"]["junior_bytes"] > 0
    blocks = [throughput[mode]["memory"]["blocks"] for mode in ("single", "lockstep")]
    assert blocks[0] > blocks[1] > 0
