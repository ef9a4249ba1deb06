"""``make demo-self-pair`` in small: killed in any part, it resumes; a second one is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.small_demo import DEMO, SmallDemo

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

SMALL = f"""
import sys
from functools import partial

sys.path.insert(0, {str(DEMO)!r})
import evaluation
import self_pair as run

run.Lesson = partial(run.Lesson, steps=60)
run.Training = partial(run.Training, prompts=4, group=2, warmup=1, save_every=1)
run.EVALUATION_PROBLEMS = 8
run.DECODINGS = evaluation.DECODINGS = run.DECODINGS[-1:]
sys.exit(run.main())
"""
"""The demo of a short lesson, small batches and one temperature."""


def test_demo_killed_in_each_part_resumes_and_repeats_nothing(tmp_path: Path) -> None:
    out, log = tmp_path / "demo", tmp_path / "log"

    def finished() -> Iterator[Path]:
        yield out / "model" / "model.safetensors"
        yield out / "checkpoint" / "model.safetensors"
        yield from (out / "evaluation").glob("*/step-0/**/problems.jsonl")

    SmallDemo(SMALL, out, log).check_kills(
        [
            lambda: (out / "rollouts.html").exists(),  # it teaches
            lambda: "Step 1 of 4: " in log.read_text(),  # after its checkpoint
            lambda: any(file.stat().st_size for file in out.glob("evaluation-4-0.log")),
        ],
        out / "train.log",
        finished,
    )
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]
    dumps = {path.name for path in (out / "rollouts").iterdir()}
    assert dumps == {f"{step}.jsonl" for step in (1, 2, 3, 4)}
    assert (out / "results.md").exists()
