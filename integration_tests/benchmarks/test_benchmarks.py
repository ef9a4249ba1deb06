"""The benchmarks run and say what they measured; how fast anything is, no test says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.drafting import has_drafting

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "run.py"
GPU_SCRIPT = SCRIPT.with_name("gpu.py")
CASES = {
    "lockstep": 6,
    "selection": 12,
    "handoffs": 4,
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
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Of the benchmarks for a GPU, those of one pair, at toy size, and what the command printed."""
    folder = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, str(GPU_SCRIPT), "--toy", "--out", str(folder), "--limit", "400"]
    parts = ["--part", "1.7b", "--part", "weights-1.7b", "--prompt", "5"]
    done = subprocess.run([*command, *parts], capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_a_figure_of_a_log_is_told_once_its_line_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from parts import _figures

    log = tmp_path / "log"
    with log.open("wb") as writing, log.open("rb") as reading:

        def told(written: str) -> list[str]:
            writing.write(written.encode())
            writing.flush()
            return _figures(reading)

        assert told("INFO: loading\nfigure: single: batch 1, 219 to") == []
        assert told("kens per second\nfigure: single: batch") == [
            "single: batch 1, 219 tokens per second"
        ]
        assert told(" 16, 3,549 tokens\n") == ["single: batch 16, 3,549 tokens"]


def test_tables_say_how_long_prompts_and_responses_were(toy: tuple[Path, str]) -> None:
    lengths = "Prompts of 5 tokens; decoded tokens of a response: 12 at batch 1, 12 at batch 4"
    assert lengths in (toy[0] / "tables.md").read_text()
    assert results(toy[0], "1.7b")["command"].endswith("--part 1.7b --prompt=5 --toy")


def test_long_responses_are_decoded_once_by_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from gpu_pairs import arguments, lengths_of

    usual, long = lengths_of(False, None, None), lengths_of(False, 512, 3000)
    assert (usual.prompt, usual.rounds) == (2, 3)
    assert list(usual.decoded) == [1, 16, 64, 256]
    assert (long.prompt, long.rounds, long.longest) == (512, 1, 3512)
    assert long.decoded == dict.fromkeys((1, 16, 64, 128), 3000)
    assert arguments(False, usual.longest)["max_model_len"] == 4096
    assert arguments(False, lengths_of(False, 512, 8000).longest)["max_model_len"] > 8512


def test_each_figure_of_a_gpu_is_printed_when_it_is_there(toy: tuple[Path, str]) -> None:
    figures, _, _ = toy[1].partition("### Machine")
    for engine in ("single", "lockstep"):
        assert re.search(rf"^ +\d+ s  {engine}: started in \d+ s$", figures, re.M)
        for batch in (1, 4):
            pattern = rf"^ +\d+ s  {engine}: batch {batch}, [\d.,]+ decoded tokens per second$"
            assert re.search(pattern, figures, re.M)
    assert re.search(r"^ +\d+ s  lockstep: weight sync, [\d.]+ s$", figures, re.M)


def test_gpu_benchmarks_measure_every_engine_that_this_vllm_has(toy: tuple[Path, str]) -> None:
    for part in ("1.7b", "weights-1.7b"):
        cases = results(toy[0], part)["cases"]
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
            assert not case.get("unfinished")
            assert all(row.get("median", row.get("seconds")) > 0 for row in case["rows"])
    throughput = results(toy[0], "1.7b")["cases"]
    assert [row["batch"] for row in throughput["lockstep"]["rows"]] == [1, 4]
    assert throughput["lockstep"]["memory"]["junior_bytes"] > 0
    blocks = [throughput[mode]["memory"]["blocks"] for mode in ("single", "lockstep")]
    assert blocks[0] > blocks[1] > 0
