"""``make demo`` in small: killed in each of its parts, it resumes and repeats nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

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


def test_demo_killed_in_each_part_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    out, log = tmp_path / "demo", tmp_path / "log"

    def finished() -> Iterator[Path]:
        yield from out.glob("models/*/model.safetensors")
        yield from out.glob("*/checkpoint/model.safetensors")
        for summary in out.glob("evaluation/**/summary.json"):  # as the rows, opened again
            yield summary.with_name("problems.jsonl.run.json")

    SmallDemo(SMALL, out, log).check_kills(
        [
            lambda: (out / "models" / "senior").exists(),  # it teaches the junior
            lambda: "Step 1 of 2: reward of the senior alone" in log.read_text(),  # plain GRPO
            lambda: "Step 2 of 4: reward of the team" in log.read_text(),  # after its checkpoint
            lambda: any(file.stat().st_size for file in out.glob("evaluation-tandem-reader.log")),
        ],
        out / "grpo" / "train.log",
        finished,
    )
    for method, steps in (("grpo", 2), ("tandem", 4)):
        lines = (out / method / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, steps + 1))
        dumps = {path.name for path in (out / method / "rollouts").iterdir()}
        assert dumps == {f"{step}.jsonl" for step in range(1, steps + 1)}
    for name in ("results.md", "demo.html", "demo.svg", "scores.jsonl", "tandem/rollouts.html"):
        assert (out / name).stat().st_size, name
