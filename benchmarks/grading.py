"""How fast the grader is: pairs of response and gold a second, on all cores.

``python benchmarks/grading.py``: the fast path, with responses of a few thousand characters and
answers that need no computer algebra; the symbolic path, where every pair needs it; and the search
for a box in long texts, on one core. Every pair is graded once, so that no cache helps.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from command import progress_bar, run_benchmark
from results import Results
from rounds import run_rounds
from table import Table, spread

__all__ = ["NAME", "measure", "table"]

NAME = "grading"

FAST, SYMBOLIC = 10_000, 1_000

Pair = tuple[str, str]
TEXTS = {
    "prose": "We compute {x} and go on. " * 38_000 + "\\boxed{5}",
    "a hundred thousand boxes": "\\boxed{" * 100_000,
}


def measure(results: Results, quick: bool) -> None:
    """Both paths and the extraction, in turn in every round."""
    from tandem_plugin.grading import Grader, GradingLimits

    fast, symbolic, rounds = (500, 60, 2) if quick else (FAST, SYMBOLIC, 9)
    figures: dict[str, dict[str, Any]] = {
        "fast": {"what": "no pair needs computer algebra", "pairs": fast},
        "symbolic": {"what": "every pair needs computer algebra", "pairs": symbolic},
        **{kind: {"what": kind, "characters": len(text)} for kind, text in TEXTS.items()},
    }
    if all(name in results for name in figures):
        return
    cores = len(os.sched_getaffinity(0))
    with Grader(GradingLimits(workers=cores)) as grader:
        began = time.perf_counter()
        grader.start()
        started = time.perf_counter() - began
        cases: dict[str, Callable[[], float]] = {
            "fast": partial(_graded, grader, _pairs(fast_pair), fast),
            "symbolic": partial(_graded, grader, _pairs(symbolic_pair), symbolic),
            **{kind: partial(_searched, text) for kind, text in TEXTS.items()},
        }
        with progress_bar() as progress:
            task = progress.add_task(NAME, total=len(cases) * (rounds + 1))
            samples = run_rounds(cases, rounds, lambda: progress.advance(task))
    for name, sample in samples.items():
        unit = "characters a second" if "characters" in figures[name] else "pairs a second"
        extra = {"unit": unit, "cores": cores, "start_seconds": round(started, 2)}
        results.add(name, figures[name] | extra | sample.as_json())


def _graded(grader: Any, pairs: Iterator[Pair], count: int) -> float:
    """Grades the next pairs; pairs a second."""
    given = list(itertools.islice(pairs, count))
    start = time.perf_counter()
    grades = grader.grade_batch(given)
    took = time.perf_counter() - start
    lost = [grade for grade in grades if grade.outcome in ("timeout", "error")]
    if lost:
        raise RuntimeError(f"A pair of the benchmark was lost: {lost[0]}")
    return count / took


def _searched(text: str) -> float:
    """Looks for the last box; characters a second."""
    from tandem_plugin.grading import extract_answer

    start = time.perf_counter()
    extract_answer(text)
    return len(text) / (time.perf_counter() - start)


def _pairs(make: Callable[[random.Random, int], Pair]) -> Iterator[Pair]:
    """Pairs without end, of which each is new."""
    draw = random.Random(0)
    return (make(draw, place) for place in itertools.count())


def table(content: Mapping[str, Any]) -> Table:
    """Pairs and million characters a second."""
    rows = []
    for case in content["cases"].values():
        if "pairs" in case:
            rows.append([case["what"], f"{case['pairs']:,} pairs", f"{spread(case)} pairs"])
        else:
            millions = {key: case[key] / 1e6 for key in ("median", "low", "high")}
            size = f"{case['characters']:,} characters"
            rows.append([f"search for a box: {case['what']}", size, f"{spread(millions)} million"])
    first = next(iter(content["cases"].values()))
    return Table(
        title="Grading",
        columns=["what", "a round", "a second"],
        rows=rows,
        unit=f"on {first['cores']} cores; the search on one",
        notes=[f"The worker processes start within {first['start_seconds']} s, once a process."],
    )


def fast_pair(draw: random.Random, place: int) -> Pair:
    """A typical response of a few thousand characters and a gold that needs no computer algebra."""
    n = draw.randrange(10**6)
    prose = "We compute \\frac{1}{2} of {x} and go on. " * draw.randrange(20, 120)
    return _boxed(
        draw,
        [
            (f"{n}", f"{n}"),
            (f"{n}", f"{n + 1}"),
            (f"{n:,}", f"{n}.0"),
            (f"\\frac{{{2 * n}}}{{{2 * n + 2}}}", f"{n}/{n + 1}"),
            (f"({n}, {n + 1})", f"({n},{n + 2})"),
            (f"{n}\\text{{ cm}}", f"{n}"),
            (f"x = {n}", f"{n}"),
            (f"{n / 100:.2f}", f"{n}\\%"),
        ],
        f"{prose}{place}. ",
    )


def symbolic_pair(draw: random.Random, place: int) -> Pair:
    """An answer and a gold of which neither is a plain number; two in three are equal."""
    a, b = place + 2, draw.randrange(2, 50)
    return _boxed(
        draw,
        [
            (f"{a}\\sqrt{{2}}", f"\\sqrt{{{2 * a * a}}}"),
            (f"{a}\\sqrt{{3}}+{b}", f"{b}+\\sqrt{{{3 * a * a}}}"),
            (f"\\frac{{{a}\\pi}}{{{b}}}", f"\\frac{{{a + 1}\\pi}}{{{b}}}"),
            (f"{a}\\pi-{b}", f"-{b}+{a}\\pi"),
            (f"\\frac{{\\sqrt{{{a}}}-1}}{{{b}}}", f"\\frac{{\\sqrt{{{a}}}+1}}{{{b}}}"),
            (f"({a}+\\sqrt{{5}}, {b}\\pi)", f"(\\sqrt{{5}}+{a}, {b}\\pi)"),
            (f"{a}x^2+{b}x", f"x({a}x+{b})"),
            (f"2^{{{b}}}\\cdot {a}+\\sqrt{{2}}", f"\\sqrt{{2}}+{a * 2**b}"),
            (f"\\ln {a}", f"\\ln {a + 1}"),
        ],
    )


def _boxed(draw: random.Random, pairs: Sequence[Pair], prose: str = "") -> Pair:
    """A response whose box holds the answer of one of the pairs, and that pair's gold."""
    answer, gold = draw.choice(pairs)
    return f"{prose}The answer is $\\boxed{{{answer}}}$.", gold


if __name__ == "__main__":
    run_benchmark(NAME, "Grading on all cores.", measure)
