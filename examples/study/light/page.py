"""The light part's page: rows, claims and curves, as Markdown and figures."""

from __future__ import annotations

from pathlib import Path

from light.claims import CLAIMS, Judged, judge_all
from light.figure import draw_curves
from light.power import power_lines
from light.size import SELF, TRL, LightSize
from light.table import CHOICES, MEASURES, Choice, Found, Row, read_found

__all__ = ["write_page"]

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
    """Write ``light.md`` and its figures from the notes of all trainings; returns its path."""
    found = read_found(out, size)
    sections = ["# Before it was run", *power_lines(size), ""]
    for exposure in size.exposures:
        figure = draw_curves(found, exposure, out / "figures")
        sections += _section(found, exposure, figure.relative_to(out))
    path = out / "light.md"
    path.write_text("\n".join(sections) + "\n", encoding="utf-8")
    return path


def _section(found: Found, exposure: str, figure: Path) -> list[str]:
    named = "the senior as it was taught" if exposure == SELF else f"{exposure} of jargon"
    lines = [f"# The junior: {named}", "", f"![Curves]({figure})", ""]
    if exposure == SELF:
        lines += ["Declared beforehand as a null.", ""]
    for choice, said in CHOICES.items():
        lines += [f"## At {said}", "", *_table(found, exposure, choice), ""]
        lines += [*_claims(judge_all(found, exposure, choice)), ""]
    return lines


def _table(found: Found, exposure: str, choice: Choice) -> list[str]:
    names = [method.name for method in found.size.methods(exposure)]
    rows = [found.row(exposure, name, choice) for name in names]
    head = " | ".join(_HEADS[name] for name in MEASURES)
    return [
        f"| | {head} |",
        "| --- |" + " ---: |" * len(MEASURES),
        f"| taught senior | {' | '.join(_start(found, exposure, name) for name in MEASURES)} |",
        *(
            f"| {row.method} | {' | '.join(_cell(row, name) for name in MEASURES)} |"
            for row in rows
        ),
        "",
        "Mean ± standard error over runs.",
    ]


def _start(found: Found, exposure: str, measure: str) -> str:
    values = [
        {**one["senior"], **one["senior"]["beside"][exposure]}[measure] for one in found.start
    ]
    return f"{sum(values) / len(values):.3f}"


def _cell(row: Row, measure: str) -> str:
    return f"{row.mean(measure):.3f} ± {row.error(measure):.3f}"


def _claims(judged: list[Judged]) -> list[str]:
    lines = [
        f"| {TRL.name}'s claim | against | the paper | here | p | verdict |",
        "| --- | --- | --- | ---: | ---: | --- |",
    ]
    lines += [
        f"| {one.claim.text} | {one.against} | {one.claim.paper} | "
        f"{one.difference:+.3f} ± {one.error:.3f} | {one.p:.2g} | {one.verdict} |"
        for one in sorted(judged, key=lambda one: CLAIMS.index(one.claim))
    ]
    return lines
