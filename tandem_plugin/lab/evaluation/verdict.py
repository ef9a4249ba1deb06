"""What a comparison shows, in words, each with the test that it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.measures import Measure, measured, shown_measures
from tandem_plugin.lab.evaluation.rendering import number, probability, signed
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.significance import Direction, TTest, paired_test, seed_test

__all__ = ["LEVEL", "Verdict", "verdicts"]

LEVEL = 0.05
"""The level of every test; a claim's opposite is said at the same level on the other side."""

Outcome = Literal["better", "not shown", "worse", "no test"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim about the last senior and another one, and what the results say of it."""

    outcome: Outcome
    sentence: str
    evidence: str
    """Both numbers, their difference and the test."""


def verdicts(comparison: Comparison, k: int | None) -> list[Verdict]:
    """Of solo accuracy, of handing over to each junior, and of each junior's reading.

    The last senior is held against each of the others, by pass@k of one k (None takes 8, or the
    largest there is), cross-entropy and overlap: paired over problems, and over training seeds
    where both have several. Source: section 5.3 of the paper.
    """
    return list(_verdicts(comparison, k))


def _verdicts(comparison: Comparison, k: int | None) -> Iterator[Verdict]:
    *others, claimed = comparison.seniors
    for kind in ("solo", "handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            first = runs[claimed]
            for other in others:
                for one in shown_measures(first, k):
                    yield _verdict(comparison, label, runs, (claimed, other), one)


def _verdict(
    comparison: Comparison,
    label: str,
    runs: Mapping[str, Summary],
    names: tuple[str, str],
    measure: Measure,
) -> Verdict:
    claimed, other = (comparison.measured(runs[name])[measure] for name in names)
    decimals = measure.decimals + 1
    unit = f" {measure.unit}" if measure.unit and measure.unit != "%" else measure.unit
    ours, theirs = (
        f"{number(measure.scale * one.macro, decimals)}{unit}" for one in (claimed, other)
    )
    numbers = f"{measure.name} {ours} against {theirs}"
    test, name = _test(comparison, runs, names, measure)
    if test is None:
        return Verdict("no test", _claim(runs, label, names, measure, "no test"), numbers + ".")
    outcome: Outcome = "not shown"
    if test.p < LEVEL:
        outcome = "better"
    elif test.p > 1 - LEVEL:
        outcome = "worse"
    difference = signed(measure.scale * test.difference, decimals)
    p = probability(test.p)
    p_text = f"p {p}" if p.startswith("<") else f"p = {p}"
    if outcome == "worse":
        p_text += " for better"
    if math.isnan(test.p):
        p_text = "nothing differs"
    evidence = f"{numbers}; {name}: difference {difference}, t = {signed(test.t, 2)}, {p_text}."
    return Verdict(outcome, _claim(runs, label, names, measure, outcome), evidence)


def _test(
    comparison: Comparison, runs: Mapping[str, Summary], names: tuple[str, str], measure: Measure
) -> tuple[TTest | None, str]:
    """A test and its name: over seeds where both have several, else over problems, if enough."""
    direction: Direction = "greater" if measure.higher_is_better else "less"
    ours, theirs = (runs[name] for name in names)
    if len(ours.each) > 1 and len(theirs.each) > 1:
        one, two = (
            [measured(each, 2, comparison.over)[measure].macro for each in run.each]
            for run in (ours, theirs)
        )
        name = f"one-sided t-test over training seeds ({len(one)} and {len(two)})"
        return seed_test(one, two, direction), name
    claimed, other = (comparison.measured(run)[measure].pooled for run in (ours, theirs))
    if len(claimed) < 2:
        return None, ""
    name = f"paired one-sided t-test over {len(claimed):,} problems"
    return paired_test(claimed, other, direction), name


def _claim(
    runs: Mapping[str, Summary],
    label: str,
    names: tuple[str, str],
    measure: Measure,
    outcome: Outcome,
) -> str:
    claimed, other = names
    run = runs[claimed]
    if run.kind == "legibility":
        return _legibility(str(run.junior), claimed, other, measure, outcome)
    where = "Alone" if run.kind == "solo" else f"As a team ({label.removeprefix(run.kind).strip()})"
    return {
        "better": f"{where}, {claimed} solves more than {other}.",
        "worse": f"{where}, {claimed} solves less than {other}.",
        "not shown": f"{where}, no difference between {claimed} and {other} is shown.",
        "no test": f"{where}, {claimed} and {other} were not tested: there are too few problems.",
    }[outcome]


def _legibility(junior: str, claimed: str, other: str, measure: Measure, outcome: Outcome) -> str:
    by = measure.name.lower()
    return {
        "better": f"By {by}, {claimed} is more legible to {junior} than {other}.",
        "worse": f"By {by}, {claimed} is less legible to {junior} than {other}.",
        "not shown": f"By {by}, no difference between {claimed} and {other} is shown in how "
        f"legible they are to {junior}.",
        "no test": f"How legible {claimed} and {other} are to {junior} was not tested: there are "
        "too few problems.",
    }[outcome]
