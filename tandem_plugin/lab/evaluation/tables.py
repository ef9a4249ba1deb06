"""The paper's tables from a comparison: the columns of each, by their headings and cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.drift import TOP, mean_recovery, read_counts
from tandem_plugin.lab.evaluation.measures import (
    Measure,
    mean_metric,
    measure_at,
    measured,
    measures,
    shown_measures,
)
from tandem_plugin.lab.evaluation.rendering import (
    Cell,
    PaperTable,
    best,
    number,
    probability,
    signed,
)
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.significance import (
    FEWEST_UNITS,
    Direction,
    TTest,
    paired_test,
    seed_test,
    unit_error,
    unit_means,
    unit_test,
)

__all__ = ["drift_tables", "paper_tables"]

Runs: TypeAlias = Mapping[str, Summary]
"""The runs of one label by senior."""

_Floats: TypeAlias = NDArray[np.float64]

_AVERAGE = "Avg."
_DELTA = "Δ"
_DASH = "–"
_KL = Measure("KL", 4, False, unit="nats")
_TITLES = {
    "solo": "Solo reasoning capability",
    "handoff": "Handoff robustness",
    "legibility": "Junior legibility of the senior's responses",
}
_SEEDS_NOTE = (
    "Welch's t-tests on each training seed's macro average: would other seeds show the same "
    "difference on these problems? Methods with one seed are omitted."
)
_LISTED = 10
"""Over-emitted tokens of each senior in a table."""

_WHITE_SPACE = str.maketrans({"Ġ": "␣", "▁": "␣", "Ċ": "\\n", "ĉ": "\\t", "č": "\\r"})
"""How the bytes of white space in a piece of a vocabulary are shown."""


class _Column(NamedTuple):
    heading: str
    cells: Sequence[Cell | str]


_Section: TypeAlias = list[_Column]
"""Rows of a table that belong together: columns of one length."""


def paper_tables(comparison: Comparison, k: int | None = None, top: int = TOP) -> list[PaperTable]:
    """All tables that the results allow, in the order of the paper's sections.

    k: of pass@k in the tables of one k; None takes 8, or the largest there is. top: how many of the
    baseline's most displaced tokens recovery is about.

    The last senior is the one that is claimed to be better than each of the others.
    """
    axes = ("solo", "handoff", "legibility")
    tables = [_axis_table(comparison, label, runs) for label, runs in comparison.of(*axes)]
    tables += [_share_table(label, runs) for label, runs in comparison.of("handoff")]
    tables += [_truncated_table(label, runs) for label, runs in comparison.of("solo", "handoff")]
    for label, runs in comparison.of("drift"):
        tables += [*drift_tables(label, runs, top), _over_emitted_table(label, runs)]
    tables += _junior_tables(comparison, k)
    tables.append(_summary_table(comparison, k))
    tables += [
        _repeats_table(comparison, k),
        _significance_table(comparison),
        _unit_tests_table(comparison) if comparison.units else _seed_tests_table(comparison),
    ]
    return [table for table in tables if table.rows]


def drift_tables(label: str, runs: Runs, top: int) -> list[PaperTable]:
    """Divergence, and recovery where there is any; top: how many tokens recovery is about."""
    recovery = _recovery_table(label, runs, top)
    return [_drift_table(label, runs), *([recovery] if recovery.rows else [])]


def _table(
    name: str, title: str, sections: Iterable[_Section], text_columns: int = 1, note: str = ""
) -> PaperTable:
    """A table of sections with a rule between them; those without rows are left out."""
    filled = [section for section in sections if section[0].cells]
    rows = [
        tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
        for section in filled
        for row in zip(*(column.cells for column in section), strict=True)
    ]
    return PaperTable(
        name.replace(" ", "-"),
        title,
        tuple(column.heading for column in filled[0]) if filled else (),
        tuple(rows),
        tuple(accumulate(len(section[0].cells) for section in filled[:-1])),
        text_columns,
        note,
    )


def _first(text: str, rows: int) -> list[str]:
    """A text in the first of so many rows alone."""
    return [text, *[""] * (rows - 1)]


# Tables by benchmark: each senior's numbers, and the last one's difference from each other one.


def _axis_table(comparison: Comparison, label: str, runs: Runs) -> PaperTable:
    """Metric, model, benchmarks and average of one kind of run. Source: sections 4.2 to 4.5."""
    first = next(iter(runs.values()))
    sections = []
    for chosen in measures(first):
        columns = _senior_columns(runs, *_by_benchmark(comparison, runs, chosen), chosen)
        sections.append(
            [_Column("Metric", _first(chosen.heading, len(columns[0].cells))), *columns]
        )
    about = label.removeprefix(first.kind).strip()
    title = f"{_TITLES[first.kind]} ({about})" if about else _TITLES[first.kind]
    if first.kind == "legibility" and comparison.over != "problems":
        title += ", over all positions"
    sizes = ", ".join(f"{name} {len(rows):,}" for name, rows in first.problems.items())
    return _table(label, title, sections, 2, f"Problems: {sizes}.")


def _by_benchmark(comparison: Comparison, runs: Runs, chosen: Measure) -> tuple[_Floats, _Floats]:
    """A measure's means and errors ``[seniors, benchmarks and average]``.

    Benchmarks are in the order of the first senior's: others may have been given them in another.
    """
    benchmarks = list(next(iter(runs.values())).problems)
    values = [comparison.measured(run)[chosen] for run in runs.values()]
    means = [[*(one.means[b] for b in benchmarks), one.macro] for one in values]
    errors = [[*(one.errors[b] for b in benchmarks), one.macro_error] for one in values]
    return np.array(means), np.array(errors)


def _senior_columns(
    runs: Runs, means: _Floats, errors: _Floats | None, chosen: Measure
) -> _Section:
    """Names and benchmarks: a row for each senior, then the last one's differences.

    means, errors: ``[seniors, benchmarks and average]``; None gives no errors.
    """
    *others, _ = seniors = list(runs)
    deltas = [_DELTA if len(others) == 1 else f"{_DELTA} to {other}" for other in others]
    columns = [_Column("Model", [*seniors, *deltas])]
    for j, name in enumerate([*next(iter(runs.values())).problems, _AVERAGE]):
        cells = _measure_cells(means[:, j], None if errors is None else errors[:, j], chosen)
        cells += [_delta(float(d), chosen) for d in means[-1, j] - means[:-1, j]]
        columns.append(_Column(name, cells))
    return columns


def _measure_cells(
    values: Iterable[float], errors: Iterable[float] | None, chosen: Measure
) -> list[Cell]:
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
    for label, runs in comparison.of("handoff", "legibility"):
        first = next(iter(runs.values()))
        junior = first.junior or ""
        key = label.removesuffix(junior).strip(), tuple(first.problems)
        groups.setdefault(key, {})[junior] = runs
    names: list[str] = []
    for (name, _), juniors in groups.items():
        if len(juniors) > 1:
            names.append(name)
            nth = f"-{names.count(name)}" if names.count(name) > 1 else ""
            sections = _junior_sections(comparison, juniors, k)
            yield _table(f"juniors-{name}{nth}", f"Seniors by junior ({name})", sections, 3)


def _junior_sections(
    comparison: Comparison, juniors: Mapping[str, Runs], k: int | None
) -> Iterator[_Section]:
    runs = next(iter(juniors.values()))
    for chosen in shown_measures(next(iter(runs.values())), k):
        parts = {
            junior: _by_benchmark(comparison, of_junior, chosen)
            for junior, of_junior in juniors.items()
        }
        sections = {
            junior: _senior_columns(juniors[junior], *part, chosen)
            for junior, part in parts.items()
        }
        # The errors of a mean over juniors are not those of one run: none are given.
        means = np.array([part[0] for part in parts.values()]).mean(axis=0)
        for i, (junior, columns) in enumerate(
            [*sections.items(), (_AVERAGE, _senior_columns(runs, means, None, chosen))]
        ):
            rows = len(columns[0].cells)
            metric = _Column("Metric", _first(chosen.heading if i == 0 else "", rows))
            yield [metric, _Column("Junior", _first(junior, rows)), *columns]


# Tables by senior: macro averages on every axis.


def _summary_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Macro averages on every axis, a row a senior. Source: section 5.2 of the paper."""
    columns = _axis_columns(comparison, k, comparison.seniors)
    section = [_Column("Method", comparison.seniors), *columns]
    return _table("summary", "Macro averages on every axis", [section])


def _axis_columns(comparison: Comparison, k: int | None, seniors: Sequence[str]) -> _Section:
    """Every axis, with a cell for each of these seniors, the best of them bold."""
    columns = []
    for label, runs in comparison.of("solo", "handoff", "legibility"):
        for chosen in shown_measures(next(iter(runs.values())), k):
            values = [comparison.measured(runs[senior])[chosen] for senior in seniors]
            errors = [one.macro_error for one in values]
            cells = _measure_cells([one.macro for one in values], errors, chosen)
            columns.append(_Column(f"{label}: {chosen.heading}", cells))
    for label, runs in comparison.of("drift"):
        kl = [mean_metric(runs[senior], "kl") for senior in seniors]
        columns.append(_Column(f"{label}: {_KL.heading}", _measure_cells(kl, None, _KL)))
    return columns


# The senior's share, and drift.


def _share_table(label: str, runs: Runs) -> PaperTable:
    """The senior's share of team responses: mean, and standard deviation over responses.

    Of pooled runs both are means over the runs; no rows where no share is known. Source: appendix
    B.3 of the paper.
    """
    benchmarks = list(next(iter(runs.values())).problems)
    cells = {senior: [_share_cell(run, b) for b in benchmarks] for senior, run in runs.items()}
    known = {senior: row for senior, row in cells.items() if any(c.text != _DASH for c in row)}
    section = [
        _Column("Model", list(known)),
        *(_Column(b, [row[j] for row in known.values()]) for j, b in enumerate(benchmarks)),
    ]
    about = label.removeprefix("handoff").strip()
    title = f"The senior's share of team responses, % of tokens ± one standard deviation ({about})"
    return _table(f"senior-share-{about}", title, [section])


def _share_cell(run: Summary, benchmark: str) -> Cell:
    shares = [
        one.content.get("metrics", {}).get(benchmark, {}).get("senior_share") or {}
        for one in run.each
    ]
    means = [share["mean"] for share in shares if share.get("mean") is not None]
    spreads = [s["standard_deviation"] for s in shares if s.get("standard_deviation") is not None]
    if len(means) < len(shares):
        return Cell(_DASH)
    text = number(100 * float(np.mean(means)), 1)
    if len(spreads) < len(shares):
        return Cell(text)
    return Cell(text, number(100 * float(np.mean(spreads)), 1))


def _truncated_table(label: str, runs: Runs) -> PaperTable:
    """How many responses met the limit of tokens: a confound of accuracy, more so of teams.

    Of pooled runs the mean; no rows where a run does not say it.
    """
    metrics = {s: [one.content.get("metrics", {}) for one in r.each] for s, r in runs.items()}
    benchmarks = list(next(iter(runs.values())).problems)
    known = [
        senior
        for senior, each in metrics.items()
        if all("truncated" in one.get(name, {}) for one in each for name in benchmarks)
    ]
    section = [_Column("Model", known)]
    for name in benchmarks:
        rates = [float(np.mean([m[name]["truncated"] for m in metrics[s]])) for s in known]
        section.append(_Column(name, [number(100 * rate, 1) for rate in rates]))
    title = f"Responses truncated at the token limit, % ({label})"
    return _table(f"truncated-{label}", title, [section])


def _drift_table(label: str, runs: Runs) -> PaperTable:
    """Divergence from the junior; of pooled runs, the mean. Source: section 4.4 of the paper."""
    junior = label.removeprefix("drift").strip()
    moved = [mean_metric(run, "mean_absolute_log_ratio") for run in runs.values()]
    kl = [mean_metric(run, "kl") for run in runs.values()]
    section = [
        _Column("Model", list(runs)),
        _Column(_KL.heading, _measure_cells(kl, None, _KL)),
        _Column("mean |log-ratio| (↓)", [number(value, 4) for value in moved]),
    ]
    return _table(label, f"Drift of the token distribution ({junior})", [section])


def _recovery_table(label: str, runs: Runs, top: int) -> PaperTable:
    """What each senior recovers of the drift of the first one that has drifted at all.

    No rows where nobody has drifted, or only one senior has. Source: section 4.4 of the paper,
    whose p value of rho is smaller than 500 tokens can give.
    """
    drifted = {senior: run for senior, run in runs.items() if mean_metric(run, "kl") > 0}
    baseline = next(iter(drifted), "")
    sections = [
        _recovery_section(drifted[baseline], senior, run, top)
        for senior, run in drifted.items()
        if senior != baseline
    ]
    about = label.removeprefix("drift").strip()
    title = f"Recovery of {baseline}'s drift from {about}"
    return _table(f"recovery-{label}", title, sections, 2)


def _recovery_section(baseline: Summary, senior: str, run: Summary, top: int) -> _Section:
    junior = read_counts(baseline.each[0])[1]
    top = min(top, len(junior))
    frequent = int((junior >= baseline.settings["frequent"]).sum())
    recovered = mean_recovery(baseline, run, top)
    rows = {
        f"top {top} moved back (%)": number(100 * recovered.moved_back, 1),
        f"ρ, top {top}": number(recovered.spearman_top, 2),
        f"ρ, {frequent} frequent": number(recovered.spearman_frequent, 2),
    }
    return [
        _Column("Model", _first(senior, len(rows))),
        _Column("Measure", list(rows)),
        _Column("measured", list(rows.values())),
    ]


def _over_emitted_table(label: str, runs: Runs) -> PaperTable:
    """The tokens that each senior over-emits most, and how often every model wrote them.

    Pooled runs stand one by one; no rows where nobody over-emits. Source: appendix B.1 of the
    paper.
    """
    alone = {one.senior: one for run in runs.values() for one in run.each}
    counts = {senior: read_counts(run)[0] for senior, run in alone.items()}
    junior = next(iter(runs.values())).junior
    sections = []
    for senior, run in alone.items():
        listed = run.content["metrics"].get("over_emitted", [])[:_LISTED]
        tokens = [int(one["token"]) for one in listed]
        pieces = [str(one["piece"]).translate(_WHITE_SPACE) for one in listed]
        written = [
            _Column(name, [Cell(str(int(count[t])), bold=name == senior) for t in tokens])
            for name, count in counts.items()
        ]
        sections.append(
            [
                _Column("Over-emitted by", _first(senior, len(listed)) if listed else []),
                _Column("Token", pieces),
                _Column("log-ratio", [number(float(one["log_ratio"]), 2) for one in listed]),
                _Column(f"{junior}", [str(int(one["junior"])) for one in listed]),
                *written,
            ]
        )
    title = f"Tokens most over-emitted relative to {junior}: how often each model wrote them"
    return _table(f"over-emitted-{label}", title, sections, 2)


# Tests, paired over problems and over training seeds.


class _Test(NamedTuple):
    """Whether one senior is better than another by one measure of one run."""

    label: str
    claimed: str
    other: str
    chosen: Measure
    result: TTest | None
    """None where there are too few problems."""
    scale: float = 1.0
    """Of the difference."""
    error: float = float("nan")
    """Of the difference, over units."""

    @property
    def section(self) -> tuple[str, str]:
        """The part of a table: all k of a run together, each other measure by itself."""
        return self.label, "" if self.chosen.k is not None else self.chosen.name

    def columns(self) -> dict[str, Cell]:
        """Its cells by their headings."""
        sign = ">" if self.chosen.higher_is_better else "<"
        named = {
            "Run": Cell(self.label),
            "Comparison": Cell(f"{self.claimed} {sign} {self.other}"),
            "Metric": Cell(self.chosen.heading),
        }
        if self.result is None:
            return named | dict.fromkeys((_DELTA, "s.e.", "t", "d.f.", "p"), Cell(_DASH))
        return named | {
            _DELTA: Cell(signed(self.scale * self.result.difference, self.chosen.decimals + 1)),
            "s.e.": Cell(number(self.error, self.chosen.decimals + 1)),
            "t": Cell(signed(self.result.t, 2)),
            "d.f.": Cell(number(self.result.degrees, 1)),
            "p": Cell(probability(self.result.p), stars=self.result.stars),
        }


def _tests_table(
    name: str, title: str, tests: Iterable[_Test], headings: Sequence[str], note: str = ""
) -> PaperTable:
    sections: dict[tuple[str, str], list[dict[str, Cell]]] = {}
    for test in tests:
        sections.setdefault(test.section, []).append(test.columns())
    columns = [
        [_Column(heading, [row[heading] for row in rows]) for heading in headings]
        for rows in sections.values()
    ]
    return _table(name, title, columns, 3, note)


def _significance_table(comparison: Comparison) -> PaperTable:
    """Paired one-sided t-tests of the last senior against each other one.

    Source: section 5.3 of the paper.
    """
    return _tests_table(
        "significance",
        "Paired one-sided t-tests on per-problem statistics",
        _paired_tests(comparison),
        ("Run", "Comparison", "Metric", _DELTA, "t", "p"),
    )


def _paired_tests(comparison: Comparison) -> Iterator[_Test]:
    *others, claimed = comparison.seniors
    for label, runs in comparison.of("handoff", "legibility"):
        for chosen in measures(runs[claimed]):
            pooled = {s: comparison.measured(run)[chosen].pooled for s, run in runs.items()}
            for other in others:
                result = None
                if len(pooled[claimed]) > 1:
                    result = paired_test(pooled[claimed], pooled[other], _direction(chosen))
                yield _Test(label, claimed, other, chosen, result, chosen.scale)


def _direction(chosen: Measure) -> Direction:
    return "greater" if chosen.higher_is_better else "less"


class _Seeds(NamedTuple):
    """One measure of one run: the macro average of each seed, by pooled method, as it is shown."""

    label: str
    run: Summary
    chosen: Measure
    values: Mapping[str, Sequence[float]]
    units: Mapping[str, Sequence[str]]
    """What each run shares with others; of methods in units alone, so empty where none are said."""

    def of_units(self, method: str) -> dict[str, float]:
        """The mean of each unit's runs."""
        units = self.units[method]
        means = unit_means(self.values[method], units).tolist()
        return dict(zip(dict.fromkeys(units), means, strict=True))


def _seeds(comparison: Comparison) -> Iterator[_Seeds]:
    """Every measure of every run of pooled methods."""
    for label, runs in comparison.runs.items():
        pooled = {method: run for method, run in runs.items() if run.repeats}
        if not pooled:
            continue
        first = next(iter(pooled.values()))
        units = {
            method: [comparison.units[one.senior] for one in run.each]
            for method, run in pooled.items()
            if all(one.senior in comparison.units for one in run.each)
        }
        if first.kind == "drift":
            kl = {m: [mean_metric(one, "kl") for one in run.each] for m, run in pooled.items()}
            yield _Seeds(label, first, _KL, kl, units)
            continue
        each = {
            method: [measured(one, 2, comparison.over) for one in run.each]
            for method, run in pooled.items()
        }
        for chosen in measures(first):
            values = {m: [chosen.scale * one[chosen].macro for one in s] for m, s in each.items()}
            yield _Seeds(label, first, chosen, values, units)


def _repeats_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Each pooled run's own macro averages, and how far they lie apart."""
    most = max(len(run.each) for runs in comparison.runs.values() for run in runs.values())
    sections = [
        _repeats_section(one, most)
        for one in _seeds(comparison)
        if one.chosen.k is None or one.chosen == measure_at(one.run, k)
    ]
    return _table("repeats", "Macro averages of each pooled run", sections, 3)


def _repeats_section(seeds: _Seeds, most: int) -> _Section:
    """The numbers of up to ``most`` runs of each method, their mean, deviation and error."""

    def column(heading: str, value: Callable[[Sequence[float]], float]) -> _Column:
        values = [value(one) for one in seeds.values.values()]
        return _Column(heading, [number(one, seeds.chosen.decimals) for one in values])

    each = [
        [number(v[i], seeds.chosen.decimals) if i < len(v) else "" for v in seeds.values.values()]
        for i in range(most)
    ]
    return [
        _Column("Run", _first(seeds.label, len(seeds.values))),
        _Column("Metric", _first(seeds.chosen.heading, len(seeds.values))),
        _Column("Method", list(seeds.values)),
        *(_Column(str(i + 1), cells) for i, cells in enumerate(each)),
        column("mean", lambda values: float(np.mean(values))),
        column("s.d.", _spread),
        _Column("s.e.", [number(_error(seeds, m), seeds.chosen.decimals) for m in seeds.values]),
    ]


def _error(seeds: _Seeds, method: str) -> float:
    """The standard error over units where they are said, else over seeds."""
    in_units = method in seeds.units
    return unit_error(list(seeds.of_units(method).values()) if in_units else seeds.values[method])


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def _seed_tests_table(comparison: Comparison) -> PaperTable:
    """One-sided t-tests of the last method against each other one, with training seeds as units.

    No rows where no two methods have several seeds. The paper has one seed a method.
    """
    return _tests_table(
        "significance-seeds",
        "One-sided t-tests with training seeds as units",
        _seed_tests(comparison),
        ("Run", "Comparison", "Metric", _DELTA, "t", "d.f.", "p"),
        _SEEDS_NOTE,
    )


def _seed_tests(comparison: Comparison) -> Iterator[_Test]:
    claimed = comparison.seniors[-1]
    for one in _seeds(comparison):
        several = {name: values for name, values in one.values.items() if len(values) > 1}
        if one.run.kind == "solo" or claimed not in several:
            continue
        for other, values in several.items():
            if other != claimed:
                result = seed_test(several[claimed], values, _direction(one.chosen))
                yield _Test(one.label, claimed, other, one.chosen, result)


def _unit_tests_table(comparison: Comparison) -> PaperTable:
    """One-sided t-tests of the last method against each other one, with units as they were given.

    No rows where no two pools are in units.
    """
    count = len(set(comparison.units.values()))
    few = (
        f" {count} units are too few to generalise to another one." if count < FEWEST_UNITS else ""
    )
    return _tests_table(
        "significance-units",
        f"One-sided t-tests over {count} units",
        _unit_tests(comparison),
        ("Run", "Comparison", "Metric", _DELTA, "s.e.", "t", "d.f.", "p"),
        "Paired t-tests on each unit's mean over its seeds: would another unit show the same "
        f"difference on these problems?{few}",
    )


def _unit_tests(comparison: Comparison) -> Iterator[_Test]:
    claimed = comparison.seniors[-1]
    for one in _seeds(comparison):
        for other in one.units:
            if claimed not in one.units or other == claimed:
                continue
            ours, theirs = one.of_units(claimed), one.of_units(other)
            both = [ours[unit] - theirs[unit] for unit in ours if unit in theirs]
            enough = len(both) > 1
            result = unit_test(both, _direction(one.chosen)) if enough else None
            yield _Test(one.label, claimed, other, one.chosen, result, error=unit_error(both))
