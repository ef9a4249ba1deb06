"""How right the grader is, class by class, beside Math-Verify's own answer for every pair.

``python benchmarks/grading_suites.py`` grades the pairs of ``tests/grading/suite.jsonl``, and golds
of real problem sets, changed and restyled (``--problems FOLDER``, read in place), and prints the
table of ``docs/grading.md``. Math-Verify is called as verl's ``math_verify`` reward calls it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "grading"))

from mutations import mutations, restyled  # noqa: E402

from tandem_plugin.grading import Grader  # noqa: E402
from tandem_plugin.lab.data import read_problems  # noqa: E402

SAMPLE = 1_000
"""Pairs of each kind that are drawn from the problem sets: Math-Verify takes a while for each."""

MATH_VERIFY = r"""
import json, logging, sys
logging.disable(logging.CRITICAL)
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
for line in sys.stdin:
    gold, answer = json.loads(line)
    try:
        wanted = parse("\\boxed{" + gold + "}", [LatexExtractionConfig()])
        given = parse("\\boxed{" + answer + "}", [ExprExtractionConfig(), LatexExtractionConfig()])
        right = bool(verify(wanted, given))
    except Exception:
        right = False
    print(json.dumps(right), flush=True)
"""


class Pair(NamedTuple):
    """A gold, an answer, and whether it is right."""

    group: str
    gold: str
    answer: str
    is_right: bool


def written_down() -> Iterator[Pair]:
    """The pairs of the suite."""
    for line in (ROOT / "tests" / "grading" / "suite.jsonl").read_text().splitlines():
        row = json.loads(line)
        for is_right in (True, False):
            for answer in row["right" if is_right else "wrong"]:
                yield Pair(row["class"], row["gold"], answer, is_right)


def from_problems(folder: Path) -> Iterator[Pair]:
    """Golds of all problem sets of a folder: changed, the next problem's, and restyled."""
    pairs: dict[str, list[Pair]] = {}
    for file in sorted(folder.iterdir()):
        problems = read_problems(file).problems
        for problem, other in zip(problems, (*problems[1:], problems[0]), strict=True):
            gold, after = problem.golds[0].strip(), other.golds[0].strip()
            for group, is_right, answers in (
                ("problem sets: one thing changed", False, (a for _, a in mutations(gold))),
                ("problem sets: the next problem's", False, (after,)),
                ("problem sets: restyled", True, (a for _, a in restyled(gold))),
            ):
                made = [Pair(group, gold, a, is_right) for a in answers]
                if is_right or after.replace(" ", "") != gold.replace(" ", ""):
                    pairs.setdefault(group, []).extend(made)
    for group in pairs.values():
        yield from random.Random(0).sample(group, min(SAMPLE, len(group)))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--problems", type=Path, help="a folder of problem sets")
    folder = arguments.parse_args().problems
    pairs = [*written_down(), *(from_problems(folder) if folder else ())]
    with Grader() as grader:
        grades = grader.grade_batch((f"\\boxed{{{p.answer}}}", p.gold) for p in pairs)
    ours = [grade.outcome == "correct" for grade in grades]
    print(as_table(pairs, ours, math_verify(pairs)))


def math_verify(pairs: list[Pair]) -> list[bool]:
    """Whether Math-Verify says that an answer is right, for every pair."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MATH_VERIFY],
        input="".join(json.dumps([pair.gold, pair.answer]) + "\n" for pair in pairs),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def as_table(pairs: list[Pair], ours: list[bool], theirs: list[bool]) -> str:
    """Lines of Markdown: for every class the pairs, and how many each of the two has right."""
    lines = ["| Pairs | n | right here (wrong rewarded, right rejected) | right by Math-Verify |",
             "|---|---|---|---|"]  # fmt: skip
    for group in [*dict.fromkeys(pair.group for pair in pairs), "all"]:
        places = [i for i, pair in enumerate(pairs) if group in (pair.group, "all")]
        cells = [_cell(pairs, answers, places) for answers in (ours, theirs)]
        lines.append(f"| {group} | {len(places)} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def _cell(pairs: list[Pair], answers: list[bool], places: list[int]) -> str:
    paid = sum(answers[i] and not pairs[i].is_right for i in places)
    refused = sum(pairs[i].is_right and not answers[i] for i in places)
    return f"{len(places) - paid - refused} ({paid}, {refused})"


if __name__ == "__main__":
    main()
