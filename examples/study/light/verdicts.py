"""What the study in three worlds makes of its rows: its choice, its tests, its tables, its power.

Seniors are the units. Everything about the registered tests was written, and committed, before the
first row. What came later: accuracy alone among the differences, the correlations within a senior,
the picture of the predictors, and :mod:`light.explored`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

from light.grpo import GRPO, HALF, TANDEM
from light.judging import holm, reach
from light.study import table_lines
from light.worlds import (
    ARMS,
    CHOICE,
    COEFFICIENTS,
    HANDOVER,
    KL,
    LEVEL,
    PLACES,
    QUARTER,
    RARE,
    SECOND,
    SELF,
    SOME,
    Unit,
    arm_name,
)

Row: TypeAlias = Mapping[str, Any]
Table: TypeAlias = Mapping[int, Mapping[str, Mapping[str, float]]]
"""Of each complete unit of a world, by number, what each arm measures at equal accuracy alone."""

MARGIN = 0.01
"""Within which *continued* counts as equal."""
WORLDS = (SELF, RARE, SOME)
TAUGHT = "as taught"


@dataclass(frozen=True, slots=True)
class Primary:
    """A test of *continued*: of one arm less another in a world, or that both are equal.

    assumed: the pilots' mean difference and its standard deviation between seniors, in points.
    """

    world: str
    other: str
    is_equivalence: bool
    assumed: tuple[float, float]
    planned: int
    """Seniors."""

    @property
    def name(self) -> str:
        """What is tested."""
        relation = f"within {100 * MARGIN:g} point of" if self.is_equivalence else "less"
        return f"{self.world}: {TANDEM.name} {relation} {self.other}"


PRIMARIES = (
    Primary(SELF.name, GRPO.name, True, (0.2, 0.65), 16),
    Primary(RARE.name, GRPO.name, False, (32.9, 2.4), 10),
    Primary(SOME.name, GRPO.name, False, (0.0, 0.4), 10),
    Primary(RARE.name, KL, False, (2.0, 1.5), 10),
    Primary(SOME.name, KL, False, (12.4, 1.6), 10),
)
COMPARED = ("alone", "continued", "read", "recovered", "team", "overlap", "kl", "drift", "step")
PREDICTORS = ("overlap", "cross_entropy", "kl", "drift")


def at_level(row: Row) -> dict[str, float]:
    """A row's measures where its validation accuracy first is :data:`LEVEL`: interpolated between
    its two checkpoints, or its last one where it has one alone or stays below."""
    points, reached = row["points"], bool(row.get("reached"))
    between = reached and len(points) > 1
    measures = reach(points, "validation", LEVEL) if between else points[-1]
    return {**measures, "reached": float(reached)}


def complete(rows: Sequence[Row], world: str) -> Table:
    """The units of a world with every arm, in order, up to the first that lacks one."""
    found, names, kept = measured_arms(rows, world), {TAUGHT, *map(arm_name, ARMS)}, {}
    for number in sorted(found.keys() - {unit.number for unit in CHOICE}):
        if not names <= found[number].keys():
            break
        kept[number] = found[number]
    return kept


def measured_arms(rows: Sequence[Row], world: str) -> dict[int, dict[str, dict[str, float]]]:
    """Of each unit of a world, what each arm that it has measures at equal accuracy alone."""
    found: dict[int, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["world"] == world:
            found.setdefault(row["unit"], {})[row["arm"]] = at_level(row)
    return found


def chosen_coefficient(rows: Sequence[Row], units: Sequence[Unit]) -> float:
    """The coefficient of KL-Reg that is continued best at equal accuracy alone, on the mean over
    these units and their worlds; one that does not reach the level everywhere is out.

    Raises ValueError if a row is missing or all are out.
    """
    means = {}
    for coefficient in COEFFICIENTS:
        name = f"{KL} {coefficient:g}"
        found = {(row["unit"], row["world"]): row for row in rows if row["arm"] == name}
        places = [(unit.number, world.name) for unit in units for world in unit.worlds]
        if missing := [place for place in places if place not in found]:
            raise ValueError(f"The choice lacks {name} of {missing}.")
        each = [found[place] for place in places]
        if all(row["reached"] for row in each):
            means[coefficient] = float(np.mean([at_level(row)["continued"] for row in each]))
    if not means:
        raise ValueError("No coefficient reaches the level in every unit of the choice.")
    return max(means, key=lambda coefficient: means[coefficient])


def differences(table: Table, arm: str, other: str, measure: str) -> np.ndarray:
    """Of each senior, the first arm less the second: float64 ``[seniors]``."""
    return np.array([arms[arm][measure] - arms[other][measure] for arms in table.values()])


def sign_flip(values: np.ndarray, greater: bool = False) -> float:
    """The exact p of a mean under random signs: two-sided, or of a mean above 0."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(values))))
    means, found = signs @ values, values.sum()
    if not greater:
        means, found = np.abs(means), abs(found)
    return float(np.mean(means >= found - 1e-12))


def equivalence(values: np.ndarray) -> float:
    """The p of two one-sided sign-flip tests, that the mean is within :data:`MARGIN` of 0."""
    return max(sign_flip(MARGIN - values, True), sign_flip(values + MARGIN, True))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a primary found."""

    primary: Primary
    values: np.ndarray
    p: float


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Of every primary whose world has two complete seniors."""
    made = []
    for primary in PRIMARIES:
        values = differences(complete(rows, primary.world), TANDEM.name, primary.other, "continued")
        if len(values) > 1:
            p = equivalence(values) if primary.is_equivalence else sign_flip(values)
            made.append(Verdict(primary, values, p))
    return made


def power(spread: float, draws: int = 1000, seed: int = 1) -> list[float]:
    """How often each primary is found at 5% by Holm over all, with the pilots' means and
    ``spread`` times their standard deviations; in the self-pair, if there is no difference."""
    rng, found = np.random.default_rng(seed), np.zeros(len(PRIMARIES))
    for _ in range(draws):
        ps = []
        for primary in PRIMARIES:
            mean, deviation = primary.assumed
            mean = 0.0 if primary.is_equivalence else mean
            values = rng.normal(mean / 100, spread * deviation / 100, primary.planned)
            ps.append(equivalence(values) if primary.is_equivalence else sign_flip(values))
        found += np.array(holm(ps)) < 0.05
    return list(found / draws)


def power_lines() -> list[str]:
    """The table of the registration."""
    chances = zip(power(1.0), power(2.0), strict=True)
    cells = [
        (
            primary.name,
            str(primary.planned),
            f"{primary.assumed[0]:.1f} ± {primary.assumed[1]:.1f}",
            *(f"{chance:.0%}" for chance in both),
        )
        for primary, both in zip(PRIMARIES, chances, strict=True)
    ]
    columns = ("Primary", "seniors", "pilots: mean ± s.d.", "power", "with twice the s.d.")
    return table_lines(columns, cells)


def page(rows: Sequence[Row]) -> str:
    """All results as Markdown."""
    seniors = {world.name: len(complete(rows, world.name)) for world in WORLDS}
    counts = ", ".join(f"{count} in {name}" for name, count in seniors.items())
    asked = {primary.world: primary.planned for primary in PRIMARIES}
    is_complete = all(seniors[name] == count for name, count in asked.items())
    registered = " and ".join(f"{count} in {name}" for name, count in asked.items())
    claims = "as registered" if is_complete else f"of {registered}: no claim is made yet"
    parts = [
        f"# Three worlds: {'results' if is_complete else 'results so far'}",
        "",
        f"Complete seniors: {counts}, {claims}. Points at equal accuracy alone (0.90 of the "
        "validation problems), ± is the standard error over seniors. [What was registered, and how "
        "to resume](../../WORLDS.md); [what it means](../../../../docs/results.md).",
        "",
        "## The primary tests",
        "",
        *_verdict_lines(verdicts(rows)),
        "",
        "## Every arm",
        "",
        *_arm_lines(rows),
        "",
        "## Tandem less every other arm",
        "",
        *_difference_lines(rows),
        "",
        "## By place",
        "",
        *_place_lines(rows),
        "",
        "## What predicts *continued*",
        "",
        "Spearman's correlation with *continued* over arms and seniors of a world, as registered; "
        "and, not registered, over the arms of each senior, its mean over seniors.",
        "",
        *_predictor_lines(rows),
        "",
        "![*Continued* over each measure, a point for each arm of each senior](predictors.svg)",
        "",
    ]
    return "\n".join(parts)


def summary_lines(rows: Sequence[Row]) -> list[str]:
    """All three worlds in one table, for the pages of results: what tandem changes."""
    cells = []
    for world in WORLDS:
        table = complete(rows, world.name)
        arms = (GRPO.name, KL, TANDEM.name)
        means = [
            f"{100 * np.mean([measured[arm]['continued'] for measured in table.values()]):.1f}"
            for arm in arms
        ]
        steps = [
            f"{np.mean([measured[arm]['step'] for measured in table.values()]):.0f}" for arm in arms
        ]
        gains = [
            signed_mean(100 * differences(table, TANDEM.name, other, "continued"))
            for other in (GRPO.name, KL)
        ]
        mended = signed_mean(100 * differences(table, TANDEM.name, GRPO.name, "recovered"))
        name = f"{world.name} ({len(table)})"
        cells.append((name, *means, *gains, mended, " / ".join(steps)))
    columns = (
        "World (seniors)",
        "*continued*, %: GRPO",
        "KL-Reg",
        "tandem",
        "tandem - GRPO",
        "tandem - KL-Reg",
        "*recovered*: tandem - GRPO",
        "steps: GRPO / KL-Reg / tandem",
    )
    return table_lines(columns, cells)


def _verdict_lines(found: Sequence[Verdict]) -> list[str]:
    cells = []
    for verdict, corrected in zip(found, holm([one.p for one in found]), strict=True):
        values = 100 * verdict.values
        kept = np.delete(values, np.abs(values).argmax())
        cells.append(
            (
                verdict.primary.name,
                f"{len(values)} of {verdict.primary.planned}",
                signed_mean(values),
                f"{np.median(values):+.1f}",
                f"{stats.trim_mean(values, 0.2):+.1f}",
                f"{kept.mean():+.1f}",
                f"{verdict.p:.2g}",
                f"{corrected:.2g}",
            )
        )
    columns = (
        "*Continued*, points",
        "seniors",
        "mean",
        "median",
        "trimmed mean",
        "without the largest",
        "p",
        "p, Holm",
    )
    return table_lines(columns, cells)


def _arm_lines(rows: Sequence[Row]) -> list[str]:
    cells = []
    for world in WORLDS:
        table = complete(rows, world.name)
        if not table:
            continue
        for arm in (TAUGHT, *map(arm_name, ARMS)):
            each = [arms[arm] for arms in table.values()]
            numbers = [f"{100 * np.mean([at[name] for at in each]):.1f}" for name in _SHARES]
            nats = [f"{np.mean([at[name] for at in each]):.3f}" for name in _NATS]
            step = f"{np.mean([at['step'] for at in each]):.0f}"
            reached = f"{sum(at['reached'] for at in each):.0f}"
            cells.append((f"{world.name} ({len(table)})", arm, *numbers, *nats, step, reached))
    columns = ("World (seniors)", "arm", *_SHARES.values(), *_NATS.values(), "step", "reached 0.90")
    return table_lines(columns, cells, words=(0, 1))


_SHARES = {
    "alone": "alone",
    "continued": "*continued*",
    "read": "by another reader",
    "recovered": "*recovered*",
    "team": "team, `step`",
    "jargon": "second notation, %",
    "overlap": "overlap, %",
}
_NATS = {"cross_entropy": "junior's cross-entropy", "kl": "KL by position", "drift": "drift"}


def _difference_lines(rows: Sequence[Row]) -> list[str]:
    cells = []
    for world in WORLDS:
        table = complete(rows, world.name)
        if len(table) < 2:
            continue
        for other in (GRPO.name, HALF.name, KL, HANDOVER.name, QUARTER.name):
            cells.append(_compared(table, world.name, TANDEM.name, other))
        cells.append(_compared(table, world.name, SECOND.name, GRPO.name))
    titles = {**_SHARES, **_NATS, "step": "steps"}
    columns = ("World", "difference", *(titles[name] for name in COMPARED))
    return table_lines(columns, cells, words=(0, 1))


def _compared(table: Table, world: str, arm: str, other: str) -> tuple[str, ...]:
    found = {name: differences(table, arm, other, name) for name in COMPARED}
    shares = [signed_mean(100 * found[name]) for name in COMPARED if name in _SHARES]
    nats = [signed_mean(found[name], ".3f") for name in COMPARED if name in _NATS]
    return world, f"{arm} - {other}", *shares, *nats, signed_mean(found["step"], ".0f")


def signed_mean(values: np.ndarray, digits: str = ".1f") -> str:
    """A mean over seniors, ± its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+{digits}} ± {error:{digits}}"


def _place_lines(rows: Sequence[Row]) -> list[str]:
    cells = []
    for world in WORLDS:
        table = complete(rows, world.name)
        for arm in map(arm_name, ARMS) if table else ():
            each = [arms[arm] for arms in table.values()]
            numbers = [
                f"{100 * np.mean([at[f'{name}_{place}'] for at in each]):.1f}"
                for name in ("continued", "recovered")
                for place in PLACES
            ]
            cells.append((world.name, arm, *numbers))
    columns = [f"*{name}* after {k}" for name in ("continued", "recovered") for k in PLACES]
    return table_lines(("World", "arm", *columns), cells, words=(0, 1))


def _predictor_lines(rows: Sequence[Row]) -> list[str]:
    cells = []
    seniors = {
        world.name: [
            [arms[arm_name(arm)] for arm in ARMS] for arms in complete(rows, world.name).values()
        ]
        for world in WORLDS
    }
    pooled = [senior for each in seniors.values() for senior in each]
    for world, each in {**seniors, "all three": pooled}.items():
        if not each:
            continue
        points = [point for senior in each for point in senior]
        over = [_rank_correlation(points, name) for name in PREDICTORS]
        within = [
            float(np.mean([_rank_correlation(senior, name) for senior in each]))
            for name in PREDICTORS
        ]
        cells.append((world, str(len(points)), *(f"{one:+.2f}" for one in (*over, *within))))
    titles = [_SHARES.get(name, _NATS.get(name, name)).removesuffix(", %") for name in PREDICTORS]
    columns = [*titles, *(f"{title}, within a senior" for title in titles)]
    return table_lines(("World", "points", *columns), cells)


def _rank_correlation(points: Sequence[Mapping[str, float]], measure: str) -> float:
    continued = [at["continued"] for at in points]
    return float(stats.spearmanr([at[measure] for at in points], continued).statistic)


def draw_predictors(rows: Sequence[Row], path: Path) -> None:
    """*Continued* over each predictor as SVG: a point for each arm of each complete senior."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    tables = {world.name: complete(rows, world.name) for world in WORLDS}
    with rc_context({"svg.hashsalt": "worlds", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 3.4), layout="constrained")
        panels = figure.subplots(1, len(PREDICTORS), sharey=True)
        for axes, name in zip(panels, PREDICTORS, strict=True):
            for colour, (world, table) in enumerate(tables.items()):
                for marker, arms in _MARKERS.items():
                    points = [measures[arm] for measures in table.values() for arm in arms]
                    axes.plot(
                        [at[name] for at in points],
                        [100 * at["continued"] for at in points],
                        marker,
                        color=f"C{colour}",
                        label=f"{world}, {arms[0]}",
                        alpha=0.7,
                        markersize=5,
                    )
            axes.set(xlabel=_NATS.get(name, name))
            axes.grid(alpha=0.3)
        panels[0].set_ylabel("continued by the junior, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(WORLDS), fontsize=7)
        figure.savefig(path, metadata={"Date": None})


_MARKERS = {
    "o": (GRPO.name, SECOND.name, HALF.name),
    "^": (TANDEM.name, QUARTER.name),
    "s": (HANDOVER.name,),
    "x": (KL,),
}
"""By the first arm's name in the legend."""
