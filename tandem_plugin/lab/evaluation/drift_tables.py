"""Tables of drift: divergence, and the tokens that seniors over-emit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tandem_plugin.lab.evaluation.drift_run import read_counts
from tandem_plugin.lab.evaluation.measures import mean_metric
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, best, number
from tandem_plugin.lab.evaluation.results import Summary

__all__ = ["drift_baseline", "drift_table", "over_emitted_tables"]

Runs = Mapping[str, Summary]

_LISTED = 10
"""Over-emitted tokens of each senior in a table."""

_SHOWN = {"Ġ": "␣", "▁": "␣", "Ċ": "\\n", "ĉ": "\\t", "č": "\\r"}
"""How the bytes of white space in a piece of a vocabulary are shown."""


def drift_baseline(runs: Runs) -> str | None:
    """The first senior that has drifted at all: the one whose drift others may move back."""
    return next((name for name, run in runs.items() if mean_metric(run, "kl") > 0), None)


def drift_table(label: str, runs: Runs) -> PaperTable:
    """Divergence from the junior; of pooled runs, the mean. Source: section 4.4 of the paper."""
    junior = label.removeprefix("drift").strip()
    texts = [number(mean_metric(run, "kl"), 4) for run in runs.values()]
    rows: list[tuple[Cell, ...]] = []
    for (senior, run), text, is_best in zip(runs.items(), texts, best(texts, False), strict=True):
        moved = number(mean_metric(run, "mean_absolute_log_ratio"), 4)
        rows.append((Cell(senior), Cell(text, bold=is_best), Cell(moved)))
    return PaperTable(
        label.replace(" ", "-"),
        f"Drift of the token distribution ({junior})",
        ("Model", "KL (nats, ↓)", "mean |log-ratio| (↓)"),
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


def _shown(piece: str) -> str:
    return "".join(_SHOWN.get(letter, letter) for letter in piece)
