"""The paper's tables from a comparison: which rows and columns each has, and what its cells say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation import drift
from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.drift_run import mean_recovery, read_counts
from tandem_plugin.lab.evaluation.measures import (
    Measure,
    Measured,
    mean_metric,
    measure_at,
    measured,
    measures,
    shown_measures,
)
from tandem_plugin.lab.evaluation.rendering import (
    Cell,
    PaperTable,
    Row,
    best,
    number,
    probability,
    signed,
)
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.significance import (
    Direction,
    TTest,
    paired_test,
    seed_test,
)

__all__ = ["Checkpoints", "TableOptions", "drift_tables", "paper_tables"]

Runs: TypeAlias = Mapping[str, Summary]
"""The runs of one label by senior."""

Checkpoints: TypeAlias = Mapping[str, Mapping[int, str]]
"""By training run: its seniors by their training step."""

_Rows: TypeAlias = list[Row]
_Floats: TypeAlias = NDArray[np.float64]

_AVERAGE = "Avg."
_DELTA = "Δ"
_KL = Measure("KL", 4, False, unit="nats")
_TITLES = {
    "solo": "Solo reasoning capability",
    "handoff": "Handoff robustness",
    "legibility": "Junior legibility of the senior's responses",
}
_SEEDS_NOTE = (
    "Welch's t-tests on each training seed's macro average: would other seeds differ alike, on "
    "these problems? Methods of one seed are left out."
)
_LISTED = 10
"""Over-emitted tokens of each senior in a table."""

_WHITE_SPACE = str.maketrans({"Ġ": "␣", "▁": "␣", "Ċ": "\\n", "ĉ": "\\t", "č": "\\r"})
"""How the bytes of white space in a piece of a vocabulary are shown."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What can be chosen of the tables."""

    k: int | None = None
    """Of pass@k in the tables of one k; None takes 8, or the largest there is."""
    top: int = drift.TOP
    """How many of the baseline's most displaced tokens recovery is about."""
    checkpoints: Checkpoints = field(default_factory=dict)
    """Training runs of which several checkpoints are compared."""


def paper_tables(comparison: Comparison, options: TableOptions) -> list[PaperTable]:
    """All tables that the results allow, in the order of the paper's sections.

    The last senior is the one that is claimed to be better than each of the others. Raises
    :class:`EvaluationError` for checkpoints that are not compared.
    """
    tables = [
        _axis_table(comparison, label, runs)
        for kind in ("solo", "handoff", "legibility")
        for label, runs in comparison.of_kind(kind)
    ]
    tables += [_share_table(label, runs) for label, runs in comparison.of_kind("handoff")]
    for label, runs in comparison.of_kind("drift"):
        tables += [*drift_tables(label, runs, options.top), _over_emitted_table(label, runs)]
    tables += _junior_tables(comparison, options.k)
    tables.append(_summary_table(comparison, options.k))
    tables += _matched_tables(comparison, options.checkpoints, options.k)
    tables += [
        _repeats_table(comparison, options.k),
        _significance_table(comparison),
        _seed_tests_table(comparison),
    ]
    return [table for table in tables if table.rows]


def drift_tables(label: str, runs: Runs, top: int) -> list[PaperTable]:
    """Divergence, and recovery where there is any; top: how many tokens recovery is about."""
    recovery = _recovery_table(label, runs, top)
    return [_drift_table(label, runs), *([recovery] if recovery.rows else [])]


def _table(
    name: str,
    title: str,
    columns: Sequence[str],
    sections: Iterable[_Rows],
    text_columns: int = 1,
    note: str = "",
) -> PaperTable:
    """A table of sections with a rule between them; empty ones are left out."""
    filled = [rows for rows in sections if rows]
    return PaperTable(
        name.replace(" ", "-"),
        title,
        tuple(columns),
        tuple(row for rows in filled for row in rows),
        tuple(accumulate(len(rows) for rows in filled[:-1])),
        text_columns,
        note,
    )


def _headed(heading: Sequence[str], rows: Iterable[Row]) -> _Rows:
    """Rows with these cells before the first, and empty ones before the others."""
    empty = [""] * len(heading)
    return [(*map(Cell, heading if i == 0 else empty), *row) for i, row in enumerate(rows)]


# Tables by benchmark: each senior's numbers, and the last one's difference from each other one.


def _axis_table(comparison: Comparison, label: str, runs: Runs) -> PaperTable:
    """Metric, model, benchmarks and average of one kind of run. Source: sections 4.2 to 4.5."""
    first = next(iter(runs.values()))
    benchmarks = list(first.problems)
    sections = [
        _headed([chosen.heading], _senior_rows(*_by_benchmark(comparison, runs, chosen), chosen))
        for chosen in measures(first)
    ]
    about = label.removeprefix(first.kind).strip()
    title = f"{_TITLES[first.kind]} ({about})" if about else _TITLES[first.kind]
    if first.kind == "legibility" and comparison.over == "positions":
        title += ", over all positions"
    sizes = ", ".join(f"{name} {len(rows):,}" for name, rows in first.problems.items())
    columns = ("Metric", "Model", *benchmarks, _AVERAGE)
    return _table(label, title, columns, sections, 2, f"Problems: {sizes}.")


def _by_benchmark(
    comparison: Comparison, runs: Runs, chosen: Measure
) -> tuple[list[str], _Floats, _Floats]:
    """Seniors, and a measure's means and errors ``[seniors, benchmarks and average]``.

    Benchmarks are in the order of the first senior's: others may have been given them in another.
    """
    benchmarks = list(next(iter(runs.values())).problems)
    found = {senior: comparison.measured(run)[chosen] for senior, run in runs.items()}
    means = [[*(one.means[b] for b in benchmarks), one.macro] for one in found.values()]
    errors = [[*(one.errors[b] for b in benchmarks), one.macro_error] for one in found.values()]
    return list(found), np.array(means), np.array(errors)


def _senior_rows(
    seniors: Sequence[str], means: _Floats, errors: _Floats | None, chosen: Measure
) -> _Rows:
    """A row for each senior, the best of a column bold, then the last one's differences.

    means, errors: ``[seniors, columns]``; None gives no errors.
    """
    columns = [
        _column(means[:, j], None if errors is None else errors[:, j], chosen)
        for j in range(means.shape[1])
    ]
    rows: _Rows = [
        (Cell(senior), *(cells[i] for cells in columns)) for i, senior in enumerate(seniors)
    ]
    others = seniors[:-1]
    for i, other in enumerate(others):
        name = _DELTA if len(others) == 1 else f"{_DELTA} to {other}"
        rows.append((Cell(name), *(_delta(float(d), chosen) for d in means[-1] - means[i])))
    return rows


def _column(values: Iterable[float], errors: Iterable[float] | None, chosen: Measure) -> list[Cell]:
    """One measure of several seniors, the best one bold."""
    texts = [number(chosen.scale * value, chosen.decimals) for value in values]
    spreads = [""] * len(texts)
    if errors is not None:
        spreads = [number(chosen.scale * error, chosen.decimals) for error in errors]
    marks = best(texts, chosen.higher_is_better)
    return [Cell(*cell) for cell in zip(texts, spreads, marks, strict=True)]


def _delta(difference: float, chosen: Measure) -> Cell:
    """A difference of a measure, bold where it is better."""
    text = signed(chosen.scale * difference, chosen.decimals)
    is_better = float(text) != 0 and (difference > 0) == chosen.higher_is_better
    return Cell(text, bold=is_better)


def _junior_tables(comparison: Comparison, k: int | None) -> Iterator[PaperTable]:
    """Team responses of each schedule and legibility, where there are several juniors.

    The last part is the mean over juniors. Source: appendix B.2 of the paper.
    """
    groups: dict[tuple[str, tuple[str, ...]], dict[str, Runs]] = {}
    for kind in ("handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            first = next(iter(runs.values()))
            junior = first.junior or ""
            key = label.removesuffix(junior).strip(), tuple(first.problems)
            groups.setdefault(key, {})[junior] = runs
    names: list[str] = []
    for (name, benchmarks), juniors in groups.items():
        if len(juniors) > 1:
            names.append(name)
            nth = f"-{names.count(name)}" if names.count(name) > 1 else ""
            yield _table(
                f"juniors-{name}{nth}",
                f"Seniors by junior ({name})",
                ("Metric", "Junior", "Model", *benchmarks, _AVERAGE),
                _junior_sections(comparison, juniors, k),
                3,
            )


def _junior_sections(
    comparison: Comparison, juniors: Mapping[str, Runs], k: int | None
) -> Iterator[_Rows]:
    first = next(iter(next(iter(juniors.values())).values()))
    for chosen in shown_measures(first, k):
        found = [_by_benchmark(comparison, runs, chosen) for runs in juniors.values()]
        parts = [_senior_rows(*one, chosen) for one in found]
        # The errors of a mean over juniors are not those of one run: none are given.
        means = np.array([one[1] for one in found]).mean(axis=0)
        parts.append(_senior_rows(found[0][0], means, None, chosen))
        for i, (junior, rows) in enumerate(zip([*juniors, _AVERAGE], parts, strict=True)):
            yield _headed([chosen.heading if i == 0 else "", junior], rows)


# Tables by senior: macro averages on every axis.


def _summary_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Macro averages on every axis, a row a senior. Source: section 5.2 of the paper."""
    columns = _axis_columns(comparison, k, comparison.seniors)
    rows = [
        (Cell(senior), *(cells[i] for _, cells in columns))
        for i, senior in enumerate(comparison.seniors)
    ]
    headings = ("Method", *(heading for heading, _ in columns))
    return _table("summary", "Macro averages on every axis", headings, [rows])


def _axis_columns(
    comparison: Comparison, k: int | None, seniors: Sequence[str]
) -> list[tuple[str, list[Cell]]]:
    """(heading, a cell for each of these seniors) of every axis, the best of them bold."""
    columns: list[tuple[str, list[Cell]]] = []
    for kind in ("solo", "handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            for chosen in shown_measures(next(iter(runs.values())), k):
                found = [comparison.measured(runs[senior])[chosen] for senior in seniors]
                errors = [one.macro_error for one in found]
                cells = _column([one.macro for one in found], errors, chosen)
                columns.append((f"{label}: {chosen.heading}", cells))
    for label, runs in comparison.of_kind("drift"):
        kl = [mean_metric(runs[senior], "kl") for senior in seniors]
        columns.append((f"{label}: {_KL.heading}", _column(kl, None, _KL)))
    return columns


class _Checkpoint(NamedTuple):
    run: str
    step: int
    senior: str


def _matched_tables(
    comparison: Comparison, checkpoints: Checkpoints, k: int | None
) -> Iterator[PaperTable]:
    """The macro averages of training runs at the same steps, and at the same accuracy alone.

    By accuracy, every checkpoint of the last run stands beside that of each other run whose pass@1
    alone is nearest, the earliest of several; how near is for the reader to see.
    """
    for run, seniors in checkpoints.items():
        for senior in seniors.values():
            if senior not in comparison.seniors:
                raise EvaluationError(
                    "TP865", run=run, senior=senior, seniors=", ".join(comparison.seniors)
                )
    accuracies = _solo_accuracies(comparison)
    by_step = _matched_by_step(checkpoints)
    by_accuracy = _matched_by_accuracy(checkpoints, accuracies)
    for name, title, groups in (
        ("matched-steps", "Checkpoints at matched steps", by_step),
        ("matched-solo", "Checkpoints at matched accuracy alone", by_accuracy),
    ):
        # Runs may begin at one checkpoint, with which there is nothing to compare.
        several = [group for group in groups if len({one.senior for one in group}) > 1]
        if several:
            yield _matched_table(comparison, name, title, several, accuracies, k)


def _matched_by_step(checkpoints: Checkpoints) -> list[list[_Checkpoint]]:
    steps = sorted({step for seniors in checkpoints.values() for step in seniors})
    return [
        [_Checkpoint(run, step, found[step]) for run, found in checkpoints.items() if step in found]
        for step in steps
    ]


def _matched_by_accuracy(
    checkpoints: Checkpoints, accuracies: Mapping[str, float]
) -> list[list[_Checkpoint]]:
    if not accuracies or len(checkpoints) < 2:
        return []
    *others, claimed = checkpoints
    groups = []
    for step, senior in sorted(checkpoints[claimed].items()):
        group = []
        for other in others:
            nearest = min(
                sorted(checkpoints[other].items()),
                key=lambda item: abs(accuracies[item[1]] - accuracies[senior]),
            )
            group.append(_Checkpoint(other, *nearest))
        groups.append([*group, _Checkpoint(claimed, step, senior)])
    return groups


def _solo_accuracies(comparison: Comparison) -> dict[str, float]:
    """pass@1 alone of every senior, from 0 to 1; empty where it was not measured."""
    for _, runs in comparison.of_kind("solo"):
        return {s: comparison.measured(run)[measure_at(run, 1)].macro for s, run in runs.items()}
    return {}


def _matched_table(
    comparison: Comparison,
    name: str,
    title: str,
    groups: Sequence[Sequence[_Checkpoint]],
    accuracies: Mapping[str, float],
    k: int | None,
) -> PaperTable:
    sections: list[_Rows] = []
    headings: list[str] = []
    for group in groups:
        columns = _axis_columns(comparison, k, [one.senior for one in group])
        if accuracies and not any(heading.startswith("solo: pass@1 (") for heading, _ in columns):
            alone = [Cell(number(100 * accuracies[one.senior], 1)) for one in group]
            columns = [("solo: pass@1 (%)", alone), *columns]
        headings = [heading for heading, _ in columns]
        sections.append(
            [
                (*map(Cell, (one.run, str(one.step), one.senior)), *(c[i] for _, c in columns))
                for i, one in enumerate(group)
            ]
        )
    return _table(name, title, ("Run", "Step", "Checkpoint", *headings), sections, 3)


# The senior's share, and drift.


def _share_table(label: str, runs: Runs) -> PaperTable:
    """The senior's share of team responses: mean, and standard deviation over responses.

    Of pooled runs both are means over the runs; no rows where no share is known. Source: appendix
    B.3 of the paper.
    """
    benchmarks = list(next(iter(runs.values())).problems)
    rows: _Rows = []
    for senior, run in runs.items():
        cells = [_share_cell(run, benchmark) for benchmark in benchmarks]
        if any(cell.text != "–" for cell in cells):
            rows.append((Cell(senior), *cells))
    about = label.removeprefix("handoff").strip()
    title = f"The senior's share of team responses, % of tokens ± one standard deviation ({about})"
    return _table(f"senior-share-{about}", title, ("Model", *benchmarks), [rows])


def _share_cell(run: Summary, benchmark: str) -> Cell:
    shares = [
        one.content.get("metrics", {}).get(benchmark, {}).get("senior_share") or {}
        for one in run.each
    ]
    means = [share["mean"] for share in shares if share.get("mean") is not None]
    spreads = [s["standard_deviation"] for s in shares if s.get("standard_deviation") is not None]
    if len(means) < len(shares):
        return Cell("–")
    text = number(100 * float(np.mean(means)), 1)
    if len(spreads) < len(shares):
        return Cell(text)
    return Cell(text, number(100 * float(np.mean(spreads)), 1))


def _drift_table(label: str, runs: Runs) -> PaperTable:
    """Divergence from the junior; of pooled runs, the mean. Source: section 4.4 of the paper."""
    junior = label.removeprefix("drift").strip()
    kl = _column([mean_metric(run, "kl") for run in runs.values()], None, _KL)
    rows: _Rows = []
    for (senior, run), cell in zip(runs.items(), kl, strict=True):
        moved = number(mean_metric(run, "mean_absolute_log_ratio"), 4)
        rows.append((Cell(senior), cell, Cell(moved)))
    title = f"Drift of the token distribution ({junior})"
    return _table(label, title, ("Model", _KL.heading, "mean |log-ratio| (↓)"), [rows])


def _recovery_table(label: str, runs: Runs, top: int) -> PaperTable:
    """What each senior recovers of the drift of the first one that has drifted at all.

    No rows where nobody has drifted, or only one senior has. Source: section 4.4 of the paper,
    whose p value of rho is smaller than 500 tokens can give.
    """
    drifted = {senior: run for senior, run in runs.items() if mean_metric(run, "kl") > 0}
    baseline = next(iter(drifted), "")
    sections = []
    for senior, run in drifted.items():
        if senior != baseline:
            sections.append(_headed([senior], _recovery_rows(drifted[baseline], run, top)))
    about = label.removeprefix("drift").strip()
    title = f"Recovery of {baseline}'s drift from {about}"
    return _table(f"recovery-{label}", title, ("Model", "Measure", "measured"), sections, 2)


def _recovery_rows(baseline: Summary, run: Summary, top: int) -> _Rows:
    junior = read_counts(baseline.each[0])[1]
    top = min(top, len(junior))
    frequent = int((junior >= baseline.settings["frequent"]).sum())
    found = mean_recovery(baseline, run, top)
    return [
        (Cell(f"top {top} moved back (%)"), Cell(number(100 * found.moved_back, 1))),
        (Cell(f"ρ, top {top}"), Cell(number(found.spearman_top, 2))),
        (Cell(f"ρ, {frequent} frequent"), Cell(number(found.spearman_frequent, 2))),
    ]


def _over_emitted_table(label: str, runs: Runs) -> PaperTable:
    """The tokens that each senior over-emits most, and how often every model wrote them.

    Pooled runs stand one by one; no rows where nobody over-emits. Source: appendix B.1 of the
    paper.
    """
    alone = {one.senior: one for run in runs.values() for one in run.each}
    counts = {senior: read_counts(run)[0] for senior, run in alone.items()}
    sections: list[_Rows] = []
    for senior, run in alone.items():
        rows: _Rows = []
        for one in run.content["metrics"].get("over_emitted", [])[:_LISTED]:
            token = int(one["token"])
            piece = str(one["piece"]).translate(_WHITE_SPACE)
            texts = piece, number(float(one["log_ratio"]), 2), str(int(one["junior"]))
            written = (Cell(str(int(c[token])), bold=s == senior) for s, c in counts.items())
            rows.append((*map(Cell, texts), *written))
        sections.append(_headed([senior], rows))
    junior = next(iter(runs.values())).junior
    title = f"Tokens most over-emitted relative to {junior}: how often each model wrote them"
    columns = ("Over-emitted by", "Token", "log-ratio", f"{junior}", *alone)
    return _table(f"over-emitted-{label}", title, columns, sections, 2)


# Tests, paired over problems and over training seeds.


def _significance_table(comparison: Comparison) -> PaperTable:
    """Paired one-sided t-tests of the last senior against each other one.

    Source: section 5.3 of the paper.
    """
    *others, claimed = comparison.seniors
    sections: dict[tuple[str, str], _Rows] = {}
    for kind in ("handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            for chosen in measures(runs[claimed]):
                rows = sections.setdefault(_section(label, chosen), [])
                found = {s: comparison.measured(run)[chosen] for s, run in runs.items()}
                for other in others:
                    test = _paired(found[claimed], found[other], chosen)
                    rows.append(_test_row(label, chosen, (claimed, other), test, chosen.scale))
    return _table(
        "significance",
        "Paired one-sided t-tests on per-problem statistics",
        ("Run", "Comparison", "Metric", _DELTA, "t", "p"),
        sections.values(),
        3,
    )


def _section(label: str, chosen: Measure) -> tuple[str, str]:
    """The part of a table of tests: all k of a run together, each other measure by itself."""
    return label, "" if chosen.k is not None else chosen.name


def _paired(claimed: Measured, other: Measured, chosen: Measure) -> TTest | None:
    """None where there are too few problems."""
    if len(claimed.pooled) < 2:
        return None
    return paired_test(claimed.pooled, other.pooled, _direction(chosen))


def _direction(chosen: Measure) -> Direction:
    return "greater" if chosen.higher_is_better else "less"


def _test_row(
    label: str, chosen: Measure, names: tuple[str, str], test: TTest | None, scale: float = 1.0
) -> Row:
    """Run, comparison, measure, difference, t and p.

    names: the senior that is claimed to be better, and the other one. scale: of the difference.
    """
    sign = ">" if chosen.higher_is_better else "<"
    named = [Cell(label), Cell(f"{names[0]} {sign} {names[1]}"), Cell(chosen.heading)]
    if test is None:
        return (*named, Cell("–"), Cell("–"), Cell("–"))
    difference = Cell(signed(scale * test.difference, chosen.decimals + 1))
    return (
        *named,
        difference,
        Cell(signed(test.t, 2)),
        Cell(probability(test.p), stars=test.stars),
    )


class _Seeds(NamedTuple):
    """One measure of one run: the macro average of each seed, by pooled method, as it is shown."""

    label: str
    run: Summary
    chosen: Measure
    values: Mapping[str, Sequence[float]]


def _seeds(comparison: Comparison) -> Iterator[_Seeds]:
    """Every measure of every run of pooled methods."""
    for label, runs in comparison.runs.items():
        pooled = {method: run for method, run in runs.items() if run.repeats}
        if not pooled:
            continue
        first = next(iter(pooled.values()))
        if first.kind == "drift":
            kl = {m: [mean_metric(one, "kl") for one in run.each] for m, run in pooled.items()}
            yield _Seeds(label, first, _KL, kl)
            continue
        each = {
            method: [measured(one, 2, comparison.over) for one in run.each]
            for method, run in pooled.items()
        }
        for chosen in measures(first):
            values = {m: [chosen.scale * one[chosen].macro for one in s] for m, s in each.items()}
            yield _Seeds(label, first, chosen, values)


def _repeats_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Each pooled run's own macro averages, and how far they lie apart."""
    most = max(len(run.each) for runs in comparison.runs.values() for run in runs.values())
    sections = []
    for one in _seeds(comparison):
        if one.chosen.k is not None and one.chosen != measure_at(one.run, k):
            continue
        rows = [
            _repeats_row(method, values, most, one.chosen.decimals)
            for method, values in one.values.items()
        ]
        sections.append(_headed([one.label, one.chosen.heading], rows))
    numbers = (str(i + 1) for i in range(most))
    columns = ("Run", "Metric", "Method", *numbers, "mean", "s.d.", "s.e.")
    return _table("repeats", "Macro averages of each pooled run", columns, sections, 3)


def _repeats_row(method: str, values: Sequence[float], most: int, decimals: int) -> Row:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    texts = [number(value, decimals) for value in values] + [""] * (most - len(values))
    for value in (float(np.mean(values)), spread, spread / len(values) ** 0.5):
        texts.append(number(value, decimals))
    return tuple(Cell(text) for text in (method, *texts))


def _seed_tests_table(comparison: Comparison) -> PaperTable:
    """One-sided t-tests of the last method against each other one, with training seeds as units.

    No rows where no two methods have several seeds. The paper has one seed a method.
    """
    claimed = comparison.seniors[-1]
    sections: dict[tuple[str, str], _Rows] = {}
    for one in _seeds(comparison):
        several = {name: found for name, found in one.values.items() if len(found) > 1}
        if one.run.kind == "solo" or claimed not in several:
            continue
        rows = sections.setdefault(_section(one.label, one.chosen), [])
        for other, values in several.items():
            if other != claimed:
                test = seed_test(several[claimed], values, _direction(one.chosen))
                *cells, p = _test_row(one.label, one.chosen, (claimed, other), test)
                rows.append((*cells, Cell(number(test.degrees, 1)), p))
    return _table(
        "significance-seeds",
        "One-sided t-tests with training seeds as units",
        ("Run", "Comparison", "Metric", _DELTA, "t", "d.f.", "p"),
        sections.values(),
        3,
        _SEEDS_NOTE,
    )
