"""Builds the paper's tables from a comparison, as headings and cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tandem_plugin.lab.evaluation.comparison import Comparison, of_handovers
from tandem_plugin.lab.evaluation.drift import TOP, Recovery, mean_recovery, read_counts, seed_null
from tandem_plugin.lab.evaluation.handover_kl import KIND, halves_by_kl
from tandem_plugin.lab.evaluation.measures import (
    Measure,
    mean_metric,
    measured,
    measures,
    shown_measures,
)
from tandem_plugin.lab.evaluation.rendering import (
    DASH,
    Cell,
    PaperTable,
    best,
    number,
    probability,
)
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.significance import (
    FEWEST_UNITS,
    TTest,
    holm,
    paired_test,
    seed_test,
    stars,
    unit_error,
    unit_means,
    unit_test,
)

Runs: TypeAlias = Mapping[str, Summary]
"""The runs of one label by senior."""

_Column: TypeAlias = tuple[str, Sequence[Cell | str]]
"""Heading and cells."""

_Section: TypeAlias = list[_Column]
"""A group of table rows, as columns of equal length."""

_AVERAGE = "Avg."
_DELTA = "Δ"
_HOLM = "p, corrected"
_COUNT_NOTE = (
    "{count} tests: if nothing differed, {chance:.2g} of them would be expected to have p < 0.05. "
    "The corrected p is Holm's for all of them, and the stars are of it; k of one run are not "
    "independent."
)
_KL = Measure("KL", 4, False, unit="nats")
_TITLES = {
    "solo": "Solo reasoning capability",
    "handoff": "Handoff robustness",
    "legibility": "Junior legibility of the senior's responses",
}
_SHARE_TITLE = "The senior's share of team responses, % of tokens ± one standard deviation"
_UNGRADED = ("no_answer", "timeout", "error")
_SEEDS_NOTE = (
    "Welch's t-tests on each training seed's macro average: would other seeds show the same "
    "difference on these problems? Methods with one seed are omitted."
)
_NOISE_NOTE = (
    "The noise is what two halves of the junior's own responses differ by, of half as many tokens "
    "each: about twice what two whole samples of one model would. A KL below it shows no drift."
)
_WHAT = {"senior": "continued", "junior": "recovered"}
"""What is measured, by who began."""
_HANDOVER_NOTE = (
    "Continued: the junior finishes what the senior began. Recovered: the senior finishes what the "
    "junior began. A team's accuracy mixes both; only the first speaks of a senior that others can "
    "follow. Places are in tokens unless a run's name says otherwise. The mean is over places, and "
    "± over problems."
)
_HANDOVER_KL_NOTE = (
    "Low is below the median of all these seniors' handovers. Correlation is Spearman's, of KL and "
    "being continued: near 0, KL does not say where the junior can go on. A penalty on KL does "
    "nothing at the handovers with a low KL that are not continued. ± is over problems."
)
_OVER_NOTE = (
    "Of the tokens that the senior wrote often enough to count as frequent. Between two halves of "
    "the junior's own responses the largest log-ratio of such tokens is {noise}: read nothing into "
    "smaller ones."
)
_RECOVERY_NOTE = (
    "Measured as in the paper, a second sample of the baseline also moves most tokens back: both "
    "ratios contain the baseline's noise, with opposite signs (null, on halves of its responses). "
    "Cross-fitted, tokens are chosen on one half and moved from the other, which removes that "
    "noise. It is not 50 % and 0 for every model that recovers nothing: a second training of the "
    "baseline, whose drift is not the same token by token, differs from them too, and only it (a "
    "pool with several seeds of the baseline) shows by how much. How far a model has drifted is "
    "what KL says."
)
_NO_NULL = (
    "These runs have no halves to compare, since they have an odd number of samples per problem or "
    "an earlier version made them: they cannot tell drift or recovery from noise. Run `tandem eval "
    "solo` with an even --samples, and `tandem eval drift` again."
)
_UNITS_NOTE = (
    "Paired t-tests on each unit's mean over its seeds: would another unit show the same "
    "difference on these problems?"
)


def paper_tables(comparison: Comparison, k: int | None = None) -> list[PaperTable]:
    """All tables that the results allow, in the order of the paper's sections.

    k: of pass@k in the tables with one k; None means 8, or the largest available. The last senior
    is claimed to be better than each of the others.
    """
    axes = ("solo", "handoff", "legibility")
    tables = [_axis_table(comparison, label, runs) for label, runs in comparison.of(*axes)]
    tables += [_handover_table(comparison), _handover_kl_table(comparison)]
    for label, runs in comparison.of("handoff"):
        about = label.removeprefix("handoff").strip()
        name, title = f"senior-share-{about}", f"{_SHARE_TITLE} ({about})"
        tables.append(_metrics_table(name, title, runs, _share_cell))
    for label, runs in comparison.of("solo", "handoff"):
        for name, title, cell in (
            ("truncated", "Responses truncated at the token limit, %", _truncated_cell),
            ("ungraded", "Responses without an answer that could be graded, %", _ungraded_cell),
        ):
            tables.append(_metrics_table(f"{name}-{label}", f"{title} ({label})", runs, cell))
    for label, runs in comparison.of("drift"):
        tables += [_drift_table(label, runs), _over_emitted_table(label, runs)]
        tables.append(_recovery_table(label, runs))
    tables += [
        _summary_table(comparison, k),
        _repeats_table(comparison, k),
        _significance_table(comparison),
        _method_tests_table(comparison),
    ]
    return [table for table in tables if table.rows]


def _table(
    name: str, title: str, sections: Iterable[_Section], text_columns: int = 1, note: str = ""
) -> PaperTable:
    """A table of sections, without empty sections."""
    filled = [section for section in sections if section[0][1]]
    rows = [
        tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
        for section in filled
        for row in zip(*(cells for _, cells in section), strict=True)
    ]
    return PaperTable(
        name.replace(" ", "-"),
        title,
        tuple(heading for heading, _ in filled[0]) if filled else (),
        tuple(rows),
        text_columns,
        note,
    )


def _first(text: str, rows: int) -> list[str]:
    """A text in the first of several rows."""
    return [text, *[""] * (rows - 1)]


# Tables by benchmark: each senior's numbers, and the last one's difference from each other one.


def _axis_table(comparison: Comparison, label: str, runs: Runs) -> PaperTable:
    """Metric, model, benchmarks and average of one kind of run. Source: sections 4.2 to 4.5."""
    first = next(iter(runs.values()))
    sections = [_axis_section(comparison, runs, chosen) for chosen in measures(first)]
    about = label.removeprefix(first.kind).strip()
    title = f"{_TITLES[first.kind]} ({about})" if about else _TITLES[first.kind]
    if first.kind == "legibility" and comparison.over != "problems":
        title += f", over all {comparison.over}"
    sizes = ", ".join(f"{name} {len(rows):,}" for name, rows in first.problems.items())
    return _table(label, title, sections, 2, f"Problems: {sizes}.")


def _axis_section(comparison: Comparison, runs: Runs, chosen: Measure) -> _Section:
    """A row for each senior, then the last one's differences.

    Benchmarks are in the order of the first senior's.
    """
    *compared, _ = seniors = list(runs)
    values = [measured(run, over=comparison.over)[chosen] for run in runs.values()]
    deltas = [_DELTA if len(compared) == 1 else f"{_DELTA} to {senior}" for senior in compared]
    models = [*seniors, *deltas]
    section: _Section = [("Metric", _first(chosen.heading, len(models))), ("Model", models)]
    for name in next(iter(runs.values())).problems:
        means, errors = [v.means[name] for v in values], [v.errors[name] for v in values]
        section.append((name, _compared_cells(means, errors, chosen)))
    macros, errors = [v.macro for v in values], [v.macro_error for v in values]
    return [*section, (_AVERAGE, _compared_cells(macros, errors, chosen))]


def _handover_table(comparison: Comparison) -> PaperTable:
    """pass@1 after one handover: by place, and the mean over places, in each direction.

    Source: H_t in appendix C of the paper, which does not measure it.
    """
    sections: list[_Section] = []
    for name, junior, by_place in _handover_runs(comparison):
        shown = {f"{name} after {place}": runs for place, runs in by_place.items()}
        if len(by_place) > 1:
            shown[f"{name}, mean"] = _mean_over(by_place)
        for heading, runs in shown.items():
            section = _axis_section(comparison, runs, _first_pass(runs))
            (_, metrics), *columns = section
            headings = [*_first(f"{heading}: {metrics[0]}", len(metrics))]
            sections.append(
                [("Handover", headings), ("Junior", _first(junior, len(metrics))), *columns]
            )
    title = "Continued by the junior, and recovered by the senior, after one handover"
    return _table("handovers", title, sections, 3, _HANDOVER_NOTE)


def _handover_kl_table(comparison: Comparison) -> PaperTable:
    """Continued, by KL at the handover. Source: appendix C of the paper, which does not measure it.

    The handovers after all places count together.
    """
    sections: list[_Section] = []
    for (junior, _), labels in of_handovers(comparison, KIND).items():
        seniors = {
            senior: [comparison.runs[label][senior] for label in labels.values()]
            for senior in comparison.seniors
        }
        halves = halves_by_kl(seniors)
        medians = [number(half.median, 4) for half in halves.values()]
        low = [_share_of_handovers(half.low) for half in halves.values()]
        high = [_share_of_handovers(half.high) for half in halves.values()]
        sections.append(
            [
                ("Junior", _first(junior, len(halves))),
                ("Model", list(halves)),
                ("median KL (nats)", medians),
                ("low KL: continued, %", low),
                ("high KL: continued, %", high),
                (
                    "low KL and not continued, % of handovers",
                    [number(100 * half.unseen, 1) for half in halves.values()],
                ),
                ("correlation", [number(half.correlation, 2, "+") for half in halves.values()]),
            ]
        )
    title = "Continued by the junior, by KL(senior || junior) at the handover"
    return _table("handover-kl", title, sections, 2, _HANDOVER_KL_NOTE)


def _share_of_handovers(share: tuple[float, float]) -> Cell:
    """A share and its error, in percent."""
    mean, error = (number(100 * value, 1) for value in share)
    return Cell(mean, "" if DASH in (mean, error) else error)


def _handover_runs(comparison: Comparison) -> Iterator[tuple[str, str, dict[int, Runs]]]:
    """(what is measured, junior, runs by place), for each junior and direction."""
    for (junior, first), labels in of_handovers(comparison).items():
        yield (
            _WHAT[first],
            junior,
            {place: comparison.runs[label] for place, label in labels.items()},
        )


def _with_means(comparison: Comparison, *kinds: str) -> Iterator[tuple[str, Runs]]:
    """The runs of these kinds; in place of handovers after several places, their mean."""
    places = of_handovers(comparison).values()
    several = {label for labels in places if len(labels) > 1 for label in labels.values()}
    yield from ((label, runs) for label, runs in comparison.of(*kinds) if label not in several)
    for name, junior, by_place in _handover_runs(comparison):
        if len(by_place) > 1:
            yield f"{name} {junior}", _mean_over(by_place)


def _mean_over(by_place: Mapping[int, Runs]) -> Runs:
    """Runs with each problem's mean over places as its numbers."""
    first, *later = by_place.values()
    return {
        senior: replace(
            run, repeats=(*run.each, *(repeat for runs in later for repeat in runs[senior].each))
        )
        for senior, run in first.items()
    }


def _first_pass(runs: Runs) -> Measure:
    """pass@1 by this package's grader."""
    return next(measure for measure in measures(next(iter(runs.values()))) if measure.k == 1)


def _compared_cells(means: Sequence[float], errors: Sequence[float], chosen: Measure) -> list[Cell]:
    """One measure of all seniors, and the last one's differences, bold if it is better."""
    cells = _measure_cells(means, errors, chosen)
    for mean in means[:-1]:
        difference = means[-1] - mean
        text = number(chosen.scale * difference, chosen.decimals, "+")
        is_better = float(text) != 0 and (difference > 0) is chosen.higher_is_better
        cells.append(Cell(text, bold=is_better))
    return cells


def _measure_cells(
    values: Sequence[float], errors: Sequence[float] | None, chosen: Measure
) -> list[Cell]:
    """One measure of several seniors, the best one bold."""
    texts = [number(chosen.scale * value, chosen.decimals) for value in values]
    spreads = [""] * len(texts)
    if errors is not None:
        spreads = [number(chosen.scale * error, chosen.decimals) for error in errors]
    marks = [False] * len(texts)
    if chosen.higher_is_better is not None:
        marks = best(texts, chosen.higher_is_better)
    return [Cell(*cell) for cell in zip(texts, spreads, marks, strict=True)]


def _share_cell(metrics: Sequence[Mapping[str, Any]]) -> Cell:
    """The senior's share of team responses: mean, and standard deviation over responses.

    For pooled runs, both are means over the runs. Source: appendix B.3 of the paper.
    """
    shares = [run_metrics.get("senior_share") or {} for run_metrics in metrics]
    mean = _mean_percentage([share.get("mean") for share in shares])
    spread = _mean_percentage([share.get("standard_deviation") for share in shares])
    return Cell(mean, "" if DASH in (mean, spread) else spread)


def _truncated_cell(metrics: Sequence[Mapping[str, Any]]) -> Cell:
    """The share of truncated responses, a confounder of accuracy, especially for teams."""
    return Cell(_mean_percentage([run_metrics.get("truncated") for run_metrics in metrics]))


def _ungraded_cell(metrics: Sequence[Mapping[str, Any]]) -> Cell:
    """The share of undecided responses: the most that a more lenient grader could add."""
    shares = []
    for run_metrics in metrics:
        outcomes: Mapping[str, int] = run_metrics.get("outcomes", {})
        total = sum(outcomes.values())
        ungraded = sum(outcomes.get(name, 0) for name in _UNGRADED)
        shares.append(ungraded / total if total else None)
    return Cell(_mean_percentage(shares))


def _metrics_table(
    name: str, title: str, runs: Runs, cell: Callable[[Sequence[Mapping[str, Any]]], Cell]
) -> PaperTable:
    """A cell of each benchmark's metrics, given those of all repeats; only seniors with any."""
    benchmarks = list(next(iter(runs.values())).problems)
    rows: dict[str, list[Cell]] = {}
    for senior, run in runs.items():
        metrics = [repeat.content.get("metrics", {}) for repeat in run.each]
        cells = [cell([run_metrics.get(b, {}) for run_metrics in metrics]) for b in benchmarks]
        if any(entry.text != DASH for entry in cells):
            rows[senior] = cells
    section: _Section = [("Model", list(rows))]
    section += [(b, [row[j] for row in rows.values()]) for j, b in enumerate(benchmarks)]
    return _table(name, title, [section])


def _mean_percentage(values: Sequence[float | None]) -> str:
    """A dash if any is missing."""
    numbers = [value for value in values if value is not None]
    return DASH if len(numbers) < len(values) else number(100 * float(np.mean(numbers)), 1)


# Tables by senior: macro averages on every axis, and drift.


def _summary_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Macro averages on every axis, a row per senior. Source: section 5.2 of the paper."""
    seniors = comparison.seniors
    section: _Section = [("Method", seniors)]
    for label, runs in _with_means(comparison, "solo", "handoff", "legibility"):
        for chosen in shown_measures(next(iter(runs.values())), k):
            values = [measured(runs[senior], over=comparison.over)[chosen] for senior in seniors]
            errors = [value.macro_error for value in values]
            cells = _measure_cells([value.macro for value in values], errors, chosen)
            section.append((f"{label}: {chosen.heading}", cells))
    for label, runs in comparison.of("drift"):
        kl = [mean_metric(runs[senior], "kl") for senior in seniors]
        section.append((f"{label}: {_KL.heading}", _measure_cells(kl, None, _KL)))
    return _table("summary", "Macro averages on every axis", [section])


def _drift_table(label: str, runs: Runs) -> PaperTable:
    """Divergence from the junior; the mean for pooled runs. Source: section 4.4 of the paper."""
    junior = label.removeprefix("drift").strip()
    moved = [mean_metric(run, "mean_absolute_log_ratio") for run in runs.values()]
    kl = [mean_metric(run, "kl") for run in runs.values()]
    noise = [_noise_of(run) for run in runs.values()]
    section: _Section = [
        ("Model", list(runs)),
        (_KL.heading, _measure_cells(kl, None, _KL)),
        ("noise: KL of the junior's halves", [number(value, 4) for value in noise]),
        ("mean |log-ratio| (↓)", [number(value, 4) for value in moved]),
    ]
    note = _NO_NULL if np.isnan(noise).any() else _NOISE_NOTE
    return _table(label, f"Drift of the token distribution ({junior})", [section], note=note)


def _noise_of(run: Summary) -> float:
    """The divergence of one model from itself; NaN if a run does not have it."""
    noises = [repeat.content["metrics"].get("kl_of_juniors_halves") for repeat in run.each]
    return float("nan") if None in noises else float(np.mean(noises))


def _over_emitted_table(label: str, runs: Runs) -> PaperTable:
    """The tokens that each senior over-emits most. Source: appendix B.1 of the paper.

    No rows for results of earlier versions, which do not have them.
    """
    sections: list[_Section] = []
    noise = []
    for run in (repeat for pooled in runs.values() for repeat in pooled.each):
        tokens = run.content["metrics"].get("over_emitted") or []
        noise.append(run.content["metrics"].get("over_emitted_by_noise"))
        sections.append(
            [
                ("Model", _first(run.senior, len(tokens)) if tokens else []),
                ("Token", [token.get("text") or f"id {token['token']}" for token in tokens]),
                ("log-ratio", [number(token["log_ratio"], 2, "+") for token in tokens]),
                ("senior wrote", [f"{token['senior']:,}" for token in tokens]),
                ("junior wrote", [f"{token['junior']:,}" for token in tokens]),
            ]
        )
    title = f"Tokens that each senior writes most above the junior ({label.partition(' ')[2]})"
    levels = [level for level in noise if level is not None]
    note = _OVER_NOTE.format(noise=number(max(levels), 2)) if levels else _NO_NULL
    return _table(f"over-emitted-{label}", title, sections, 2, note)


def _recovery_table(label: str, runs: Runs) -> PaperTable:
    """Each senior's recovery of the drift of the first senior that has drifted.

    No rows unless at least two seniors have drifted. Source: section 4.4 of the paper, whose p
    value of rho is smaller than 500 tokens can give.
    """
    drifted = {senior: run for senior, run in runs.items() if mean_metric(run, "kl") > 0}
    baseline = next(iter(drifted), "")
    recoveries = {
        senior: mean_recovery(drifted[baseline], run)
        for senior, run in drifted.items()
        if senior != baseline
    }
    sections = [_recovery_section(drifted[baseline], *pair) for pair in recoveries.items()]
    note = _RECOVERY_NOTE if all(recovery.null for recovery in recoveries.values()) else _NO_NULL
    about = label.removeprefix("drift").strip()
    title = f"Recovery of {baseline}'s drift from {about}"
    return _table(f"recovery-{label}", title, sections, 2, note)


def _recovery_section(baseline: Summary, senior: str, recovery: Recovery) -> _Section:
    _, junior = read_counts(baseline.each[0])
    top = min(TOP, len(junior.whole))
    frequent = int((junior.whole >= baseline.settings["frequent"]).sum())
    seeds = seed_null(baseline)

    def cells(values: tuple[float, float, float] | None) -> list[str]:
        if values is None:
            return [DASH] * 3
        moved_back, *rhos = values
        return [number(100 * moved_back, 1), *(number(rho, 2) for rho in rhos)]

    return [
        ("Model", _first(senior, 3)),
        ("Measure", [f"top {top} moved back (%)", f"ρ, top {top}", f"ρ, {frequent} frequent"]),
        ("measured", cells(recovery.measured)),
        ("null: the baseline against itself", cells(recovery.null)),
        ("cross-fitted", cells(recovery.crossed)),
        *((("cross-fitted: another seed of the baseline", cells(seeds)),) if seeds else ()),
    ]


# Tests, paired over problems and over training seeds.


class _Test(NamedTuple):
    """A test of whether one senior is better than the other in one measure of one run."""

    label: str
    claimed: str
    other: str
    chosen: Measure
    result: TTest
    scale: float = 1.0
    """Of the difference."""
    error: float = float("nan")
    """Of the difference, over units."""

    def cells(self) -> dict[str, Cell]:
        """Its cells by their headings."""
        sign = ">" if self.chosen.higher_is_better else "<"
        decimals = self.chosen.decimals + 1
        return {
            "Run": Cell(self.label),
            "Comparison": Cell(f"{self.claimed} {sign} {self.other}"),
            "Metric": Cell(self.chosen.heading),
            _DELTA: Cell(number(self.scale * self.result.difference, decimals, "+")),
            "s.e.": Cell(number(self.error, decimals)),
            "t": Cell(number(self.result.t, 2, "+")),
            "d.f.": Cell(number(self.result.degrees, 1)),
            "p": Cell(probability(self.result.p)),
        }


def _tests_table(
    name: str, title: str, tests: Iterable[_Test], numbers: Sequence[str], note: str = ""
) -> PaperTable:
    """A section for all k of a run together, and one for each other measure.

    numbers: the headings after those that identify the test. Corrected for the number of the
    table's tests, as the note states.
    """
    groups: dict[tuple[str, str], list[dict[str, Cell]]] = {}
    tests = list(tests)
    corrected = holm([test.result.p for test in tests])
    for test, p in zip(tests, corrected, strict=True):
        measure = "" if test.chosen.k is not None else test.chosen.name
        cells = test.cells() | {_HOLM: Cell(probability(p), stars=stars(p))}
        groups.setdefault((test.label, measure), []).append(cells)
    headings = ("Run", "Comparison", "Metric", *numbers, _HOLM)
    count = sum(not np.isnan(p) for p in corrected)
    note = f"{note} {_COUNT_NOTE.format(count=count, chance=0.05 * count)}".strip()
    sections: list[_Section] = [
        [(heading, [row[heading] for row in rows]) for heading in headings]
        for rows in groups.values()
    ]
    return _table(name, title, sections, 3, note)


def _significance_table(comparison: Comparison) -> PaperTable:
    """Paired one-sided t-tests of the last senior against each other one.

    Source: section 5.3 of the paper.
    """
    *compared, claimed = comparison.seniors
    tests = []
    for label, runs in _with_means(comparison, "handoff", "legibility"):
        numbers = {senior: measured(run, over=comparison.over) for senior, run in runs.items()}
        for chosen in _tested(measures(runs[claimed])):
            pooled = {senior: values[chosen].pooled for senior, values in numbers.items()}
            for senior in compared:
                result = paired_test(pooled[claimed], pooled[senior], chosen.direction)
                tests.append(_Test(label, claimed, senior, chosen, result, chosen.scale))
    title = "Paired one-sided t-tests on per-problem statistics"
    return _tests_table("significance", title, tests, (_DELTA, "t", "p"))


def _tested(candidates: Sequence[Measure]) -> list[Measure]:
    """The measures with a better direction."""
    return [measure for measure in candidates if measure.higher_is_better is not None]


class _Seeds(NamedTuple):
    """One measure of one run: the printed macro average of each seed, by pooled method."""

    label: str
    run: Summary
    chosen: Measure
    values: Mapping[str, Sequence[float]]
    of_units: Mapping[str, Mapping[str, float]]
    """The mean of each unit's runs, by method, for methods with units."""

    def error(self, method: str) -> float:
        """The standard error over units if given, otherwise over seeds."""
        return unit_error(list(self.of_units.get(method, {}).values()) or self.values[method])

    def test(self, claimed: str, baseline: str) -> _Test:
        """The test over units if given, otherwise over seeds."""
        tested = self.label, claimed, baseline, self.chosen
        direction = self.chosen.direction
        if not self.of_units:
            return _Test(*tested, seed_test(self.values[claimed], self.values[baseline], direction))
        ours, base = self.of_units[claimed], self.of_units[baseline]
        differences = [ours[unit] - base[unit] for unit in ours if unit in base]
        return _Test(*tested, unit_test(differences, direction), error=unit_error(differences))


def _seeds(comparison: Comparison) -> Iterator[_Seeds]:
    """Every measure of every run of pooled methods."""
    for label, runs in comparison.runs.items():
        pooled = {method: run for method, run in runs.items() if run.repeats}
        if not pooled:
            continue
        numbers = {
            m: [_macros(comparison, repeat) for repeat in run.each] for m, run in pooled.items()
        }
        first = next(iter(pooled.values()))
        for chosen in [_KL] if first.kind == "drift" else _tested(measures(first)):
            values = {m: [seed[chosen] for seed in seeds] for m, seeds in numbers.items()}
            units = {
                method: _of_units(comparison, run, values[method])
                for method, run in pooled.items()
                if all(repeat.senior in comparison.units for repeat in run.each)
            }
            yield _Seeds(label, first, chosen, values, units)


def _macros(comparison: Comparison, run: Summary) -> dict[Measure, float]:
    """The macro averages of one run, in the units of tables."""
    if run.kind == "drift":
        return {_KL: mean_metric(run, "kl")}
    by_measure = measured(run, 2, comparison.over)
    return {chosen: chosen.scale * values.macro for chosen, values in by_measure.items()}


def _of_units(comparison: Comparison, run: Summary, values: Sequence[float]) -> dict[str, float]:
    """The mean of each unit's runs, of the values of all of a pool's."""
    units = [comparison.units[repeat.senior] for repeat in run.each]
    return dict(zip(dict.fromkeys(units), unit_means(values, units).tolist(), strict=True))


def _repeats_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Each pooled run's own macro averages, and their spread."""
    most = max(len(run.each) for runs in comparison.runs.values() for run in runs.values())
    sections = [
        _repeats_section(seeds, most)
        for seeds in _seeds(comparison)
        if seeds.chosen.k is None or seeds.chosen in shown_measures(seeds.run, k)
    ]
    return _table("repeats", "Macro averages of each pooled run", sections, 3)


def _repeats_section(seeds: _Seeds, most: int) -> _Section:
    """The numbers of up to ``most`` runs per method, with mean, deviation and standard error."""
    methods, decimals = list(seeds.values), seeds.chosen.decimals
    section: _Section = [
        ("Run", _first(seeds.label, len(methods))),
        ("Metric", _first(seeds.chosen.heading, len(methods))),
        ("Method", methods),
    ]
    for i in range(most):
        cells = [number(v[i], decimals) if i < len(v) else "" for v in seeds.values.values()]
        section.append((str(i + 1), cells))
    means = [float(np.mean(v)) for v in seeds.values.values()]
    spreads = [
        float(np.std(v, ddof=1)) if len(v) > 1 else float("nan") for v in seeds.values.values()
    ]
    errors = [seeds.error(method) for method in methods]
    for heading, column in (("mean", means), ("s.d.", spreads), ("s.e.", errors)):
        section.append((heading, [number(value, decimals) for value in column]))
    return section


def _method_tests_table(comparison: Comparison) -> PaperTable:
    """One-sided t-tests of the last pooled method against each other one.

    Over the given units, otherwise over training seeds. No rows unless two methods have several
    seeds, or units. The paper has one seed per method.
    """
    claimed = comparison.seniors[-1]
    tests = []
    for seeds in _seeds(comparison):
        tested = list(seeds.of_units)
        if not comparison.units:
            tested = [m for m, v in seeds.values.items() if len(v) > 1 and seeds.run.kind != "solo"]
        if claimed in tested:
            tests += [seeds.test(claimed, baseline) for baseline in tested if baseline != claimed]
    if not comparison.units:
        title = "One-sided t-tests with training seeds as units"
        headings = [_DELTA, "t", "d.f.", "p"]
        return _tests_table("significance-seeds", title, tests, headings, _SEEDS_NOTE)
    count = len(set(comparison.units.values()))
    note = _UNITS_NOTE
    if count < FEWEST_UNITS:
        note += f" {count} units are too few to generalise to another one."
    title = f"One-sided t-tests over {count} units"
    headings = [_DELTA, "s.e.", "t", "d.f.", "p"]
    return _tests_table("significance-units", title, tests, headings, note)
