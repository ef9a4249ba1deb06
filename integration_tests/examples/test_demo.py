"""``make demo`` in small: killed in each of its parts, it resumes, repeats nothing and gives what a
demo gives that was not killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.small_demo import DEMO, SmallDemo

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

SMALL = f"""
import sys
from dataclasses import replace

sys.path.insert(0, {str(DEMO)!r})
import pair
import run

pair.SENIOR, pair.JUNIOR = (replace(each, steps=60) for each in (pair.SENIOR, pair.JUNIOR))
run.SIZES = replace(run.SIZES, prompts=4, group=2, warmup=1, save_every=1)
run.EVALUATION_PROBLEMS = 8
sys.exit(run.main())
"""
"""The demo of short lessons, small batches and few problems."""


RESULTS = ("scores.jsonl", "results.md", "demo.html", "demo.svg")


def test_demo_killed_in_each_part_resumes_with_equal_results(tmp_path: Path) -> None:
    """But for a training: one that resumes goes on from its checkpoint with other samples."""
    out, log = tmp_path / "demo", tmp_path / "log"

    def finished() -> Iterator[Path]:
        yield from out.glob("models/*/model.safetensors")
        yield from out.glob("*/checkpoint/model.safetensors")
        yield from out.glob("*/rollouts/1.jsonl")
        for summary in out.glob("evaluation/**/summary.json"):
            yield summary.with_name("problems.jsonl")

    def evaluated_with_the_reader() -> list[Path]:
        return sorted((out / "evaluation" / "tandem").rglob("reader/problems.jsonl"))

    demo = SmallDemo(SMALL, out, log)
    demo.check_kills(
        [
            lambda: (out / "models" / "senior").exists(),  # it teaches the junior
            lambda: (out / "grpo" / "train.log").stat().st_size > 0,  # plain GRPO starts
            lambda: "Step 2 of 4: reward of the team" in log.read_text(),  # after its checkpoint
            lambda: any(file.stat().st_size for file in evaluated_with_the_reader()),
        ],
        out / "grpo" / "train.log",
        finished,
    )
    for method, steps in (("grpo", 2), ("tandem", 4)):
        lines = (out / method / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, steps + 1))
        dumps = {path.name for path in (out / method / "rollouts").iterdir()}
        assert dumps == {f"{step}.jsonl" for step in range(1, steps + 1)}
    assert (out / "tandem" / "rollouts.html").stat().st_size

    # The model whose teaching was killed, and the evaluation that was: anew, and to their end.
    junior = out / "models" / "junior"
    weights = (junior / "model.safetensors").read_bytes()
    results = {name: (out / name).read_bytes() for name in RESULTS}
    rows = {file: by_place(file) for file in evaluated_with_the_reader()}
    shutil.rmtree(junior)
    for file in rows:
        shutil.rmtree(file.parent)
    demo.finish()
    assert (junior / "model.safetensors").read_bytes() == weights
    assert {file: by_place(file) for file in evaluated_with_the_reader()} == rows
    assert {name: (out / name).read_bytes() for name in RESULTS} == results


def by_place(file: Path) -> list[dict[str, Any]]:
    """The rows of an evaluation, which are written as they end."""
    rows = map(json.loads, file.read_text().splitlines())
    return sorted(rows, key=lambda row: (row["problem"], row["sample"]))
