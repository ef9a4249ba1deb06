"""Thousands of responses, a tenth of them hostile, from eight threads and from Ray actors.

``TANDEM_TORTURE=20000`` makes it twenty thousand; without it, four thousand, so that the whole
suite stays short.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tandem_plugin.grading import Grade, Grader, GradingLimits

pytestmark = pytest.mark.long

COUNT = int(os.environ.get("TANDEM_TORTURE", "4000"))
LIMITS = GradingLimits(seconds=0.5, memory_mb=512, workers=2)

HOSTILE = (
    "9^{9^{9^{9^{9}}}}",
    "((10^{6})!)!",
    "9" * 200_000,
    "(" * 5_000 + "x" + ")" * 5_000,
    "5\ud800",
    "__import__('os').system('true')",
)
COSTLY = (
    "(" * 24 + "x" + ")" * 24,
    r"\sum_{k=1}^{99999}\frac{1}{k^{1.5}+\sin k}",
    r"\prod_{k=1}^{90000}(k^{9}+x^{k})",
    r"\int_0^1 \sin(x^x)e^{x^5} dx",
)
"""Of the kinds in tests/grading/test_hostile.py."""


def made_up(seed: int, count: int) -> Iterator[tuple[str, str, str | None]]:
    """(response, gold, the outcome it must have; None for a hostile one, which is never right)."""
    draw = random.Random(seed)
    for place in range(count):
        n = draw.randrange(2, 900)
        if place % 10 == 0:
            # Most of these cost their whole time limit: one in ten of the hostile ones.
            answers = COSTLY if draw.random() < 0.1 else HOSTILE
            yield rf"Then \boxed{{{draw.choice(answers)}}}", rf"{n}\sqrt{{7}}", None
        elif place % 10 == 1:
            yield rf"Then \boxed{{{n}\sqrt{{2}}}}", rf"\sqrt{{{2 * n * n}}}", "correct"
        elif place % 10 == 2:
            yield f"Then \\boxed{{{n}", str(n), "no_answer"
        elif place % 10 == 3:
            yield rf"Then \boxed{{\frac{{{n}}}{{{2 * n + 1}}}}}", str(n), "incorrect"
        else:
            yield f"Then \\boxed{{{n}}}.", f"{n}.0", "correct"


def check(graded: list[tuple[Grade, str | None]]) -> Counter[str]:
    wrong = [
        (grade, expected)
        for grade, expected in graded
        if (expected is not None and grade.outcome != expected)
        or (expected is None and grade.outcome not in ("incorrect", "timeout"))
    ]
    assert wrong == []
    return Counter(grade.outcome for grade, _ in graded)


def test_eight_threads_grade_everything_within_bounds():
    grown_from = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Grader(LIMITS) as grader, ThreadPoolExecutor(8) as threads:
        grader.start()
        began = time.monotonic()
        rows = list(made_up(1, COUNT))
        grades = list(threads.map(lambda row: grader.grade(row[0], row[1]), rows))
        took = time.monotonic() - began
        deaths = grader.deaths
        nursery = grader._pool.start().process.pid
        workers = Path(f"/proc/{nursery}/task/{nursery}/children").read_text().split()
    counts = check([(grade, row[2]) for grade, row in zip(grades, rows, strict=True)])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown_from) / 1024
    print(f"\n{COUNT:,} in {took:.0f} s; {counts}; lost {deaths}; grown {grown:.0f} MiB")
    assert counts["timeout"] > 0
    assert sum(deaths.values()) == counts["timeout"]
    assert len(workers) <= 2
    assert grown < 300
    assert took < 400


def test_ray_actors_grade_with_workers_of_their_own(tmp_path: Path):
    ray = pytest.importorskip("ray")
    ray.init(
        num_cpus=2,
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80_000_000,
    )
    try:
        actors = [ray.remote(Actor).remote() for _ in range(2)]
        parts = ray.get([actor.grade.remote(seed) for seed, actor in enumerate(actors, 2)])
    finally:
        ray.shutdown()
    for part in parts:
        check(part)
        assert len(part) == 400


class Actor:
    """Grades from threads within an actor, as a trainer's reward worker does."""

    def grade(self, seed: int) -> list[tuple[Grade, str | None]]:
        rows = list(made_up(seed, 400))
        with Grader(LIMITS) as grader, ThreadPoolExecutor(4) as threads:
            grades = list(threads.map(lambda row: grader.grade(row[0], row[1]), rows))
        return [(grade, row[2]) for grade, row in zip(grades, rows, strict=True)]
