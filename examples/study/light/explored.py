"""What the study in three worlds explores beside its registered tests: tables and a picture.

Written when rows of the tests existed; no row of it decides a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from light.grpo import GRPO, TANDEM, Method
from light.study import table_lines
from light.verdicts import Row, Table, differences, measured_arms, sign_flip, signed_mean
from light.worlds import (
    CHOICE,
    COEFFICIENTS,
    EXPLORED,
    HALF_ALONE,
    KL,
    OTHERS,
    QUARTER,
    RARE,
    SOME,
    World,
    arm_name,
)

EXPOSURES: tuple[World, ...] = tuple(
    sorted((RARE, SOME, *OTHERS), key=lambda world: float(world.seen or 0))
)
OWN_BEST = Method(f"{KL} 0.1", kl=0.1)
"""What the choice's seniors found best in the world with 5%; in the one with 1% it is the arm's."""


def explored(rows: Sequence[Row]) -> str:
    """What follows the registered results on their page, as Markdown."""
    parts = [
        "## Explored: the share that the senior writes alone",
        "",
        "The seniors that have all three arms, at equal accuracy alone.",
        "",
        *_alone_lines(rows),
        "",
        "## Explored: how much of the second notation the junior has seen",
        "",
        "The seniors of 511 to 513 that have both arms, at equal accuracy alone.",
        "",
        *_exposure_lines(rows),
        "",
        "![*Continued*, and the second notation, over what the junior has seen](exposure.svg)",
        "",
        "## Explored: each world's own best coefficient of KL-Reg",
        "",
        "*Continued* at equal accuracy alone on the seniors of the choice; in brackets, where a "
        "training did not reach it. The arm has one coefficient for all worlds.",
        "",
        *_choice_lines(rows),
        "",
        f"Tandem less {OWN_BEST.name} in the world with 5%, over the seniors that have both:",
        "",
        *_own_best_lines(rows),
        "",
    ]
    return "\n".join(parts)


def having(rows: Sequence[Row], world: World, arms: Sequence[Method | str]) -> Table:
    """The units of a world that have all of these arms, in order."""
    names = set(map(arm_name, arms))
    found = measured_arms(rows, world.name)
    return {number: found[number] for number in sorted(found) if names <= found[number].keys()}


def _alone_lines(rows: Sequence[Row]) -> list[str]:
    cells, arms = [], (TANDEM, QUARTER, HALF_ALONE)
    for world in (RARE, SOME):
        table = having(rows, world, arms)
        for arm in arms if table else ():
            each = [measured[arm.name] for measured in table.values()]
            numbers = [
                f"{100 * np.mean([at[name] for at in each]):.1f}"
                for name in ("alone", "continued", "recovered", "jargon")
            ]
            steps = f"{np.mean([at['step'] for at in each]):.0f}"
            reached = f"{sum(at['reached'] for at in each):.0f}"
            cells.append((f"{world.name} ({len(table)})", arm.name, *numbers, steps, reached))
    columns = ("alone", "*continued*", "*recovered*", "second notation, %", "step", "reached 0.90")
    return table_lines(("World (seniors)", "arm", *columns), cells, words=(0, 1))


def exposure(rows: Sequence[Row]) -> dict[World, Table]:
    """By world, of the least to the most that a junior has seen: its explored seniors with GRPO and
    tandem."""
    explored = {unit.number for unit in EXPLORED}
    tables = {world: having(rows, world, (GRPO, TANDEM)) for world in EXPOSURES}
    return {
        world: {number: arms for number, arms in table.items() if number in explored}
        for world, table in tables.items()
    }


def _exposure_lines(rows: Sequence[Row]) -> list[str]:
    cells = []
    for world, table in exposure(rows).items():
        if not table:
            continue
        numbers = [
            f"{100 * np.mean([arms[arm.name][name] for arms in table.values()]):.1f}"
            for name in ("continued", "recovered", "jargon")
            for arm in (GRPO, TANDEM)
        ]
        gains = 100 * differences(table, TANDEM.name, GRPO.name, "continued")
        span = f"{gains.min():+.1f} to {gains.max():+.1f}"
        cells.append((world.name, str(len(table)), *numbers, span))
    measures = ("*continued*", "*recovered*", "second notation, %")
    columns = [f"{name}: {arm.name}" for name in measures for arm in (GRPO, TANDEM)]
    return table_lines(
        ("Junior", "seniors", *columns, "*continued*, tandem - GRPO: least to most"), cells
    )


def _choice_lines(rows: Sequence[Row]) -> list[str]:
    names = [f"{KL} {coefficient:g}" for coefficient in COEFFICIENTS]
    cells = []
    for world in (RARE, SOME):
        found = measured_arms(rows, world.name)
        for unit in CHOICE:
            arms = found.get(unit.number, {})
            if set(names) <= arms.keys():
                numbers = [
                    f"{100 * arms[name]['continued']:.1f}"
                    if arms[name]["reached"]
                    else f"({100 * arms[name]['continued']:.1f})"
                    for name in names
                ]
                cells.append((world.name, str(unit.number), *numbers))
    return table_lines(("World", "senior", *names), cells)


def _own_best_lines(rows: Sequence[Row]) -> list[str]:
    table = having(rows, SOME, (TANDEM, OWN_BEST))
    if len(table) < 2:
        return ["Not run yet."]
    values = 100 * differences(table, TANDEM.name, OWN_BEST.name, "continued")
    steps = differences(table, TANDEM.name, OWN_BEST.name, "step")
    recovered = 100 * differences(table, TANDEM.name, OWN_BEST.name, "recovered")
    columns = ("seniors", "*continued*", "median", "p, uncorrected", "*recovered*", "steps")
    cells = (
        str(len(table)),
        signed_mean(values),
        f"{np.median(values):+.1f}",
        f"{sign_flip(values):.2g}",
        signed_mean(recovered),
        signed_mean(steps, ".0f"),
    )
    return table_lines(columns, [cells], words=())


def draw_exposure(rows: Sequence[Row], path: Path) -> None:
    """*Continued*, and the share of the second notation, over what the junior has seen, as SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    tables = {world: table for world, table in exposure(rows).items() if table}
    names = [world.name.removesuffix(" seen") for world in tables]
    with rc_context({"svg.hashsalt": "worlds", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        titles = {"continued": "continued by the junior, %", "jargon": "second notation, %"}
        for axes, (name, title) in zip(panels, titles.items(), strict=True):
            for colour, arm in enumerate((GRPO, TANDEM)):
                each = [
                    [100 * arms[arm.name][name] for arms in table.values()]
                    for table in tables.values()
                ]
                axes.plot([np.mean(values) for values in each], color=f"C{colour}", label=arm.name)
                for place, values in enumerate(each):
                    axes.plot([place] * len(values), values, "o", color=f"C{colour}", alpha=0.5)
            axes.set_xticks(range(len(names)), names)
            axes.set(title=title, xlabel="of the second notation that the junior has seen")
            axes.grid(alpha=0.3)
        panels[0].legend()
        figure.savefig(path, metadata={"Date": None})
