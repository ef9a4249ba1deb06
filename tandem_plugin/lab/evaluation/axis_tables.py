"""Tables of one axis: metric, model, benchmarks and average; better values bold, differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.measures import Measure, Measured, measures
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, best, number, signed
from tandem_plugin.lab.evaluation.results import Summary

__all__ = [
    "AVERAGE",
    "DELTA",
    "axis_table",
    "column",
    "delta",
    "delta_name",
    "delta_rows",
]


AVERAGE = "Avg."
DELTA = "Δ"


def axis_table(comparison: Comparison, label: str, runs: Mapping[str, Summary]) -> PaperTable:
    """Metric, model, benchmarks and average; the last senior's difference from each other one."""
    first = next(iter(runs.values()))
    benchmarks = list(first.problems)
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    for chosen in measures(first):
        found = {s: comparison.measured(run)[chosen] for s, run in runs.items()}
        if rows:
            rules.append(len(rows))
        columns = [column(found, chosen, benchmark) for benchmark in [*benchmarks, None]]
        for i, senior in enumerate(comparison.seniors):
            heading = Cell(chosen.heading if i == 0 else "")
            rows.append((heading, Cell(senior), *(column[i] for column in columns)))
        rows += delta_rows(found, chosen, benchmarks)
    titles = {
        "solo": "Solo reasoning capability",
        "handoff": "Handoff robustness",
        "legibility": "Junior legibility of the senior's responses",
    }
    about = label.removeprefix(first.kind).strip()
    title = f"{titles[first.kind]} ({about})" if about else titles[first.kind]
    if first.kind == "legibility" and comparison.over == "positions":
        title += ", over all positions"
    return PaperTable(
        label.replace(" ", "-"),
        title,
        ("Metric", "Model", *benchmarks, AVERAGE),
        tuple(rows),
        tuple(rules),
        2,
        "Problems: " + ", ".join(f"{n} {len(rows):,}" for n, rows in first.problems.items()) + ".",
    )


def column(found: Mapping[str, Measured], chosen: Measure, benchmark: str | None) -> list[Cell]:
    """One benchmark's cells (or the average's, for None), the best one bold."""
    values = [m.macro if benchmark is None else m.means[benchmark] for m in found.values()]
    errors = [m.macro_error if benchmark is None else m.errors[benchmark] for m in found.values()]
    texts = [number(chosen.scale * value, chosen.decimals) for value in values]
    marked = best(texts, chosen.higher_is_better)
    return [
        Cell(text, number(chosen.scale * error, chosen.decimals), bold)
        for text, error, bold in zip(texts, errors, marked, strict=True)
    ]


def delta_rows(
    found: Mapping[str, Measured], chosen: Measure, benchmarks: Sequence[str]
) -> Iterator[tuple[Cell, ...]]:
    """The last senior's difference from each other one: no metric, name, benchmarks, average."""
    *others, claimed = found
    for other in others:
        name = delta_name(other, len(others))
        differences = [found[claimed].means[b] - found[other].means[b] for b in benchmarks] + [
            found[claimed].macro - found[other].macro
        ]
        yield (Cell(""), Cell(name), *(delta(d, chosen) for d in differences))


def delta_name(other: str, others: int) -> str:
    """How the difference from another senior is called, which of one other one needs no name."""
    return DELTA if others == 1 else f"{DELTA} to {other}"


def delta(difference: float, chosen: Measure) -> Cell:
    """A difference of a measure, bold where it is better."""
    text = signed(chosen.scale * difference, chosen.decimals)
    is_better = float(text) != 0 and (difference > 0) == chosen.higher_is_better
    return Cell(text, bold=is_better)
