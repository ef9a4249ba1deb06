"""Tables of drift: divergence, what is moved back, and the tokens that seniors over-emit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from tandem_plugin.evaluation import drift
from tandem_plugin.evaluation.drift_run import read_counts
from tandem_plugin.evaluation.measures import mean_metric
from tandem_plugin.evaluation.paper_table import Cell, PaperTable, best, number
from tandem_plugin.evaluation.results import Summary

__all__ = ["drift_baseline", "drift_table", "over_emitted_tables"]

Runs = Mapping[str, Summary]

_LISTED = 10
"""Over-emitted tokens of each senior in a table."""

_SHOWN = {"Ġ": "␣", "▁": "␣", "Ċ": "\\n", "ĉ": "\\t", "č": "\\r"}
"""How the bytes of white space in a piece of a vocabulary are shown."""


class _Recovered(NamedTuple):
    """What a senior recovers of a baseline's drift: percent moved back, and two of Spearman's ρ."""

    moved_back: float
    of_top: float
    of_frequent: float


def drift_baseline(runs: Runs) -> str | None:
    """The first senior that has drifted at all: the one whose drift others may move back."""
    return next((name for name, run in runs.items() if mean_metric(run, "kl") > 0), None)


def drift_table(label: str, runs: Runs, top: int = drift.TOP) -> PaperTable:
    """Divergence from the junior, and what each senior recovers of the baseline's drift.

    top: how many of the baseline's most displaced tokens count. Of pooled runs, numbers are means:
    over the runs, and over all pairs with the baseline's runs. Source: section 4.4 of the paper.
    The paper's p value of rho is smaller than 500 tokens can give; rho is shown over both, the most
    displaced tokens and the junior's frequent ones.
    """
    baseline = drift_baseline(runs)
    texts = [number(mean_metric(run, "kl"), 4) for run in runs.values()]
    rows = []
    for (senior, run), text, is_best in zip(runs.items(), texts, best(texts, False), strict=True):
        moved = number(mean_metric(run, "mean_absolute_log_ratio"), 4)
        cells = [Cell(senior), Cell(text, bold=is_best), Cell(moved)]
        if baseline is None or senior == baseline or mean_metric(run, "kl") == 0:
            rows.append((*cells, Cell("–"), Cell("–"), Cell("–")))
            continue
        found = np.mean(
            [
                _recovered(first, other, top)
                for first, other in product(runs[baseline].each, run.each)
            ],
            axis=0,
        )
        cells += [Cell(number(float(v), d)) for v, d in zip(found, (1, 2, 2), strict=True)]
        rows.append(tuple(cells))
    first = next(iter(runs.values())).each[0]
    written, junior = read_counts(first)
    frequent = int((junior >= first.settings["frequent"]).sum())
    looked_at = min(top, len(written))
    return PaperTable(
        label.replace(" ", "-"),
        f"Drift of the token distribution ({label.removeprefix('drift').strip()})",
        (
            "Model",
            "KL (nats, ↓)",
            "mean |log-ratio| (↓)",
            f"top {looked_at} of {baseline or 'none'} moved back (%)",
            f"ρ, top {looked_at}",
            f"ρ, {frequent} frequent",
        ),
        tuple(rows),
    )


def over_emitted_tables(label: str, runs: Runs) -> Iterator[PaperTable]:
    """The tokens that each senior over-emits most, and how often every model wrote them.

    Pooled runs stand one by one; there is no table where nobody over-emits. Source: appendix B.1 of
    the paper.
    """
    alone = {one.senior: one for run in runs.values() for one in run.each}
    counts = {name: read_counts(run) for name, run in alone.items()}
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    for senior, run in alone.items():
        listed = run.content["metrics"].get("over_emitted", [])[:_LISTED]
        if listed and rows:
            rules.append(len(rows))
        for i, one in enumerate(listed):
            token = int(one["token"])
            rows.append(
                (
                    Cell(senior if i == 0 else ""),
                    Cell(_shown(str(one["piece"]))),
                    Cell(number(float(one["log_ratio"]), 2)),
                    Cell(str(int(one["junior"]))),
                    *(Cell(str(int(ours[token])), bold=n == senior)
                      for n, (ours, _) in counts.items()),
                )
            )  # fmt: skip
    if rows:
        junior = next(iter(runs.values())).junior
        yield PaperTable(
            f"over-emitted-{label.replace(' ', '-')}",
            f"Tokens most over-emitted relative to {junior}: how often each model wrote them",
            ("Over-emitted by", "Token", "log-ratio", f"{junior}", *alone),
            tuple(rows),
            tuple(rules),
            2,
        )


def _recovered(baseline: Summary, other: Summary, top: int) -> _Recovered:
    settings = baseline.settings
    base, junior = read_counts(baseline)
    displacement = drift.log_ratio(base, junior, settings["smoothing"])
    shift = drift.log_ratio(read_counts(other)[0], base, settings["smoothing"])
    most = drift.most_displaced(displacement, top)
    often = np.flatnonzero(junior >= settings["frequent"])
    of_top = drift.recovery(displacement[most], shift[most]) if len(most) >= 3 else None
    of_often = drift.recovery(displacement[often], shift[often]) if len(often) >= 3 else None
    return _Recovered(
        math.nan if of_top is None else 100 * of_top.share_moved_back,
        math.nan if of_top is None else of_top.spearman,
        math.nan if of_often is None else of_often.spearman,
    )


def _shown(piece: str) -> str:
    return "".join(_SHOWN.get(letter, letter) for letter in piece)
