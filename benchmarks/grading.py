"""How many pairs a second are graded, through the fast path and through computer algebra.

::

    python benchmarks/grading.py [--quick] [--out FILE.json]

Every pair is different, so that no cache helps. A measurement is repeated after a warm-up, and the
median counts; the result says on what machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tandem_plugin.grading import GradeCounts, Grader, GradingLimits, extract_answer

Pair = tuple[str, str]


def fast_pair(draw: random.Random, place: int) -> Pair:
    """A typical response of a few thousand characters and a gold that needs no computer algebra."""
    n = draw.randrange(10**6)
    prose = "We compute \\frac{1}{2} of {x} and go on. " * draw.randrange(20, 120)
    answer, gold = draw.choice(
        [
            (f"{n}", f"{n}"),
            (f"{n}", f"{n + 1}"),
            (f"{n:,}", f"{n}.0"),
            (f"\\frac{{{2 * n}}}{{{2 * n + 2}}}", f"{n}/{n + 1}"),
            (f"({n}, {n + 1})", f"({n},{n + 2})"),
            (f"{n}\\text{{ cm}}", f"{n}"),
            (f"x = {n}", f"{n}"),
            (f"{n / 100:.2f}", f"{n}\\%"),
        ]
    )
    return f"{prose}{place}. The answer is \\boxed{{{answer}}}.", gold


def symbolic_pair(draw: random.Random, place: int) -> Pair:
    """An answer and a gold of which neither is a plain number; two in three are equal."""
    a, b = place + 2, draw.randrange(2, 50)
    answer, gold = draw.choice(
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
        ]
    )
    return f"The answer is $\\boxed{{{answer}}}$.", gold


def rate(
    grader: Grader, make: Callable[[random.Random, int], Pair], count: int, repeats: int
) -> Any:
    """Pairs a second of each repeat, each with pairs of its own."""
    rates, counts = [], None
    for repeat in range(repeats + 1):
        draw = random.Random(repeat)
        pairs = [make(draw, repeat * count + place) for place in range(count)]
        began = time.perf_counter()
        grades = grader.grade_batch(pairs)
        took = time.perf_counter() - began
        counts = GradeCounts.of(grades)
        if repeat:  # the first is the warm-up
            rates.append(count / took)
    assert counts is not None
    return {
        "pairs": count,
        "per_second": round(statistics.median(rates), 1),
        "repeats": [round(one, 1) for one in rates],
        "outcomes": counts.outcomes,
        "rules": counts.rules,
    }


def start_seconds() -> float:
    """From nothing to the first symbolic grade."""
    began = time.perf_counter()
    with Grader() as grader:
        grader.grade(r"\boxed{\sqrt{8}}", r"2\sqrt{2}")
    return round(time.perf_counter() - began, 2)


def extraction_rate() -> dict[str, float]:
    """Megabytes a second of text that is searched for a box: typical, and hostile."""
    rates = {}
    for name, text in (
        ("prose", "We compute {x} and go on. " * 38_000 + "\\boxed{5}"),
        ("braces", "\\boxed{" * 140_000),
    ):
        began = time.perf_counter()
        extract_answer(text)
        rates[name] = round(len(text) / 1e6 / (time.perf_counter() - began), 1)
    return rates


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "math-verify": version("math-verify"),
        "sympy": version("sympy"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer pairs and repeats")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    options = parser.parse_args()
    fast, symbolic, repeats = (2_000, 200, 2) if options.quick else (10_000, 1_000, 5)
    result: dict[str, Any] = {"benchmark": "grading", "machine": machine()}
    result["start_seconds"] = start_seconds()
    result["extraction_mb_per_second"] = extraction_rate()
    with Grader(GradingLimits(workers=result["machine"]["cpus"])) as grader:
        result["fast"] = rate(grader, fast_pair, fast, repeats)
        grader.start()
        result["symbolic"] = rate(grader, symbolic_pair, symbolic, repeats)
        result["workers_lost"] = grader.deaths
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
