"""What the study in three worlds makes of its rows: its choice, its tests, its tables, its power.

Seniors are the units. Everything here but the picture of the predictors was written, and committed,
before the first row.
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
SECONDARIES = ("continued", "read", "recovered", "team", "overlap", "kl", "drift", "step")
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
    found: dict[int, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["world"] == world:
            found.setdefault(row["unit"], {})[row["arm"]] = at_level(row)
    names, kept = {TAUGHT, *map(arm_name, ARMS)}, {}
    for number in sorted(found.keys() - {unit.number for unit in CHOICE}):
        if not names <= found[number].keys():
            break
        kept[number] = found[number]
    return kept


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
    counts = ", ".join(f"{len(complete(rows, world.name))} in {world.name}" for world in WORLDS)
    parts = [
        "# Three worlds: results so far",
        "",
        f"Complete seniors: {counts}. The registration asks for 16, 10 and 10; below that, no "
        "claim is made. Points at equal accuracy alone (0.90 of the validation problems), ± is "
        "the standard error over seniors. [What was registered, and how to resume](../WORLDS.md).",
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
        "Spearman's correlation with *continued* over arms and seniors of a world.",
        "",
        *_predictor_lines(rows),
        "",
        "![*Continued* over each measure, a point for each arm of each senior](predictors.svg)",
        "",
    ]
    return "\n".join(parts)


def _verdict_lines(found: Sequence[Verdict]) -> list[str]:
    cells = []
    for verdict, corrected in zip(found, holm([one.p for one in found]), strict=True):
        values = 100 * verdict.values
        kept = np.delete(values, np.abs(values).argmax())
        cells.append(
            (
                verdict.primary.name,
                f"{len(values)} of {verdict.primary.planned}",
                _mean(values),
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
    columns = ("World", "difference", *(titles[name] for name in SECONDARIES))
    return table_lines(columns, cells, words=(0, 1))


def _compared(table: Table, world: str, arm: str, other: str) -> tuple[str, ...]:
    found = {name: differences(table, arm, other, name) for name in SECONDARIES}
    shares = [_mean(100 * found[name]) for name in SECONDARIES[:5]]
    nats = [_mean(found[name], ".3f") for name in SECONDARIES[5:7]]
    return world, f"{arm} - {other}", *shares, *nats, _mean(found["step"], ".0f")


def _mean(values: np.ndarray, digits: str = ".1f") -> str:
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
    for world in WORLDS:
        points = [
            arms[arm_name(arm)] for arms in complete(rows, world.name).values() for arm in ARMS
        ]
        if not points:
            continue
        continued = [at["continued"] for at in points]
        found = [
            float(stats.spearmanr([at[name] for at in points], continued).statistic)
            for name in PREDICTORS
        ]
        cells.append((world.name, str(len(points)), *(f"{one:+.2f}" for one in found)))
    return table_lines(("World", "points", *PREDICTORS), cells)


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
