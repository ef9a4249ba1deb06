"""The study's page: rows, claims and curves, as Markdown and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from light.claims import CLAIMS
from light.figure import draw_curves
from light.judging import Judged, judge_all
from light.power import power_lines
from light.size import SELF, TRL, LightSize
from light.table import CHOICES, MEASURES, START, Choice, Found, Row, read_found

__all__ = ["write_page"]

Verdicts: TypeAlias = Mapping[tuple[str, Choice], list[Judged]]
"""By junior and choice of checkpoints."""

_HEADS = {
    "solo": "alone",
    "step": "`step`",
    "step-bernoulli": "`step-bernoulli`",
    "cross_entropy": "junior's cross-entropy, nats",
    "overlap": "overlap",
    "kl": "drift, KL in nats",
    "jargon": "jargon",
}


def write_page(out: Path, size: LightSize) -> Path:
    """Write ``study.md`` and its figures from the notes of all trainings; returns its path."""
    found = read_found(out, size)
    judged = {
        (exposure, choice): judge_all(found, exposure, choice)
        for exposure in size.exposures
        for choice in CHOICES
    }
    sections = ["# Before it was run", *power_lines(size), "", *_verdicts(judged), ""]
    for exposure in size.exposures:
        figure = draw_curves(found, exposure, out / "figures").relative_to(out)
        sections += [*_head(exposure), "", f"![Curves]({figure})", ""]
        for choice, said in CHOICES.items():
            sections += [f"## At {said}", "", *_table(_rows(found, exposure, choice)), ""]
            sections += [*_claims(judged[exposure, choice]), ""]
    path = out / "study.md"
    path.write_text("\n".join(sections) + "\n", encoding="utf-8")
    return path


def _verdicts(judged: Verdicts) -> list[str]:
    """All verdicts in one table: a line a claim, a column for each junior and choice."""
    columns = [f"{exposure}, {choice}" for exposure, choice in judged]
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for column, found in zip(columns, judged.values(), strict=True):
        for one in found:
            lines.setdefault((one.claim.text, one.method, one.against), {})[column] = one.within
    order = sorted(lines, key=lambda key: [claim.text for claim in CLAIMS].index(key[0]))
    return [
        "# Verdicts within these pairs",
        "",
        f"| Claim | of | against | {' | '.join(columns)} |",
        "| --- | --- | --- |" + " --- |" * len(columns),
        *(
            f"| {' | '.join(key)} | {' | '.join(lines[key].get(one, '–') for one in columns)} |"
            for key in order
        ),
        "",
        "By the junior's share of jargon and the choice of checkpoints; numbers, and verdicts with "
        "pairs as units, are below.",
    ]


def _head(exposure: str) -> list[str]:
    if exposure == SELF:
        return ["# The junior: the senior as it was taught, the paper's setting"]
    return [f"# The junior: {exposure} of jargon"]


def _rows(found: Found, exposure: str, choice: Choice) -> list[tuple[str, Row]]:
    """Named rows: of matched checkpoints, couples of each other method and TRL."""
    others = [one.name for one in found.size.methods(exposure) if one != TRL]
    start = (START, found.row(exposure, START, choice))
    if choice != "matched":
        names = [*others, TRL.name]
        return [start, *((name, found.row(exposure, name, choice)) for name in names)]
    rows = [start]
    for other in others:
        trl, theirs = found.couple(exposure, TRL.name, other, choice)
        rows += [(f"{other}, as accurate as TRL", theirs), (f"TRL, as accurate as {other}", trl)]
    return rows


def _table(rows: list[tuple[str, Row]]) -> list[str]:
    head = " | ".join(_HEADS[name] for name in MEASURES)
    return [
        f"| | {head} | step |",
        "| --- |" + " ---: |" * (len(MEASURES) + 1),
        *(
            f"| {name} | {' | '.join(_cell(row, measure) for measure in MEASURES)} | "
            f"{row.mean('step_number'):.0f} |"
            for name, row in rows
        ),
        "",
        "Mean ± standard error over runs, within these pairs.",
    ]


def _cell(row: Row, measure: str) -> str:
    if row.method == START:
        return f"{row.mean(measure):.3f}"  # one a pair: no error over seeds
    return f"{row.mean(measure):.3f} ± {row.error(measure):.3f}"


def _claims(judged: list[Judged]) -> list[str]:
    return [
        "± and p are over pairs: of another pair.",
        "",
        "| Claim | of | against | the paper | here | in each pair | p | verdict | within these "
        "pairs |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | --- | --- |",
        *(
            f"| {one.claim.text} | {one.method} | {one.against} | {one.claim.paper} | "
            f"{one.mean:+.3f} ± {one.error:.3f} | "
            f"{', '.join(f'{mean:+.3f}' for mean in one.by_pair)} | {_probability(one.p)} | "
            f"{one.verdict} | {one.within} |"
            for one in judged
        ),
    ]


def _probability(p: float) -> str:
    return "–" if math.isnan(p) else f"{p:.2g}"
