"""The study's page: the tests, every difference in one table, and the price as a curve.

It is made of the rows alone; a test makes the published page again from the published rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from light.judging import (
    CHOICES,
    CONTROL,
    COUPLES,
    EXPECTED,
    HANDOFFS,
    LEVEL,
    PAPER,
    Curves,
    Found,
    complete_models,
    detectable,
    differences,
    holm,
    judge,
    power,
    reach,
)
from light.runs import METHODS
from light.study import table_lines
from tandem_plugin.lab.evaluation.significance import FEWEST_UNITS, unit_error

MEASURES = {
    "solo": "alone",
    "step-bernoulli": "`step-bernoulli`",
    "step": "`step`",
    "overlap": "overlap",
    "cross_entropy": "junior's cross-entropy",
    "entropy": "senior's entropy",
    "kl": "KL by position",
    "drift": "drift",
}
"""Accuracies as shares, entropies and divergences in nats."""
COUNTS = {"step_number": "step", "trained_tokens": "trained tokens"}
LEVELS = (0.6, 0.7, 0.8, 0.85, 0.9)
"""Accuracies alone at which the teams are compared."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """A row of each training."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def power_lines(models: int) -> list[str]:
    """What each primary comparison can find with so many models, known before the study runs."""
    if models < FEWEST_UNITS:
        return [f"{models} models are too few to test anything with."]
    rows = []
    for handoff, (mean, spread) in EXPECTED.items():
        for effect, source in ((mean, "the probes'"), (PAPER, "the paper's")):
            levels = (LEVEL / 2, LEVEL / 4)
            chances = [f"{power(effect, spread, models, level):.0%}" for level in levels]
            least = f"{100 * detectable(spread, models, LEVEL / 4):.2f}"
            size = f"{100 * effect:.2f}, {source}"
            rows.append((f"`{handoff}`", f"{100 * spread:.2f}", size, *chances, least))
    columns = (
        "Team",
        "spread assumed, points",
        "effect, points",
        "power at 5%",
        "at 2.5% (Holm)",
        "found in 80% at 2.5%",
    )
    return [f"{models} models:", "", *table_lines(columns, rows)]


def comparisons(curves: Curves) -> list[tuple[tuple[str, str], str, Found, float]]:
    """The comparisons at equal accuracy alone: (couple, handoff, what was found, p by Holm over a
    couple's handoffs). The first couple's are the primary ones."""
    found = []
    for couple in COUPLES:
        each = [judge(differences(curves, couple, "accuracy", name)) for name in HANDOFFS]
        corrected = holm([one.p for one in each])
        found += list(zip([couple] * len(each), HANDOFFS, each, corrected, strict=True))
    return found


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """All results as Markdown."""
    curves = complete_models(rows)
    numbers = list(curves)
    minutes = sum(row["seconds"] for row in rows if row["model"] in curves) / 60
    return "\n".join(
        [
            "# Results of the study",
            "",
            f"{len(curves)} models, numbers {numbers[0]} to {numbers[-1]}, each trained by "
            f"{len(METHODS)} methods: {minutes:.0f} minutes on one core. ± is the standard error "
            "over models. [How they were made and what was registered before](../README.md).",
            "",
            "## The tests",
            "",
            "At equal accuracy alone, in points of team accuracy; two-sided paired t-tests over "
            "models, p by Holm over the two handoffs.",
            "",
            *_tests(curves),
            "",
            "## Every difference",
            "",
            "The first method less the second. Accuracies are shares, entropies and divergences "
            "nats. *At equal accuracy alone* and *at equal trained tokens* both are taken where "
            "they first reach the lower of their last values; *best* is chosen by accuracy on the "
            "validation problems, a team's for tandem.",
            "",
            *difference_lines(curves),
            "",
            "## At the last step",
            "",
            *level_lines(curves),
            "",
            "## Team accuracy over accuracy alone",
            "",
            "Means over the models in which all three methods get that far; accuracy alone is of "
            "the validation problems, a team's of the others.",
            "",
            *_price(curves),
            "",
            "![Team accuracy over accuracy alone, by method](curves.svg)",
            "",
        ]
    )


def _tests(curves: Curves) -> list[str]:
    cells = []
    for (one, two), handoff, found, corrected in comparisons(curves):
        name = f"{one} - {two}" + (" (control)" if (one, two) == CONTROL else "")
        interval = f"{100 * found.low:+.2f} to {100 * found.high:+.2f}"
        ps = f"{found.p:.2g}", f"{corrected:.2g}"
        cells.append((name, f"`{handoff}`", points(found), interval, *ps))
    columns = ("Difference", "team", "points", "95% interval", "p", "p, Holm")
    return table_lines(columns, cells, words=(0, 1))


def points(found: Found) -> str:
    """A difference of accuracies in points."""
    return f"{100 * found.mean:+.2f} ± {100 * found.error:.2f}"


def difference_lines(curves: Curves) -> list[str]:
    """A table of every difference at every choice of checkpoints."""
    cells = []
    for one, two in COUPLES:
        for choice, title in CHOICES.items():
            found = [judge(differences(curves, (one, two), choice, name)) for name in MEASURES]
            steps = differences(curves, (one, two), choice, "step_number").mean()
            numbers = [f"{each.mean:+.4f} ± {each.error:.4f}" for each in found]
            cells.append((f"{one} - {two}", title, *numbers, f"{steps:+.0f}"))
    columns = ("Difference", "at", *MEASURES.values(), "steps")
    return table_lines(columns, cells, words=(0, 1))


def level_lines(curves: Curves) -> list[str]:
    """A table of each method's measures at its last step."""
    last = {one.name: [of_model[one.name][-1] for of_model in curves.values()] for one in METHODS}
    taught = [of_model[METHODS[0].name][0] for of_model in curves.values()]
    cells = []
    for name, found in {"as taught": taught, **last}.items():
        numbers = [_mean([at[measure] for at in found], ".3f") for measure in MEASURES]
        tokens = np.mean([at["trained_tokens"] for at in found]) / 1e6
        cells.append((name, *numbers, f"{tokens:.2f}"))
    return table_lines(("", *MEASURES.values(), "million tokens trained"), cells)


def _mean(values: Sequence[float], digits: str) -> str:
    return f"{np.mean(values):{digits}} ± {unit_error(values):{digits}}"


def _price(curves: Curves) -> list[str]:
    cells = []
    for level in LEVELS:
        kept = [
            of_model
            for of_model in curves.values()
            if all(max(at["validation"] for at in curve) >= level for curve in of_model.values())
        ]
        if len(kept) < 2:
            continue
        at = {
            one.name: [reach(of_model[one.name], "validation", level) for of_model in kept]
            for one in METHODS
        }
        row = [f"{level:.2f}", str(len(kept))]
        for handoff in HANDOFFS:
            row += [_mean([one[handoff] for one in at[name]], ".3f") for name in at]
        row += [f"{np.mean([one['step_number'] for one in at[name]]):.0f}" for name in at]
        cells.append(row)
    names = [one.name for one in METHODS]
    teams = [f"`{handoff}`, {name}" for handoff in HANDOFFS for name in names]
    return table_lines(("alone", "models", *teams, *(f"step, {name}" for name in names)), cells)


def draw_curves(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Team accuracy over accuracy alone, both of the test problems: means over models by step."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    curves = complete_models(rows)
    with rc_context({"svg.hashsalt": "study", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        panels = figure.subplots(1, len(HANDOFFS), sharey=True)
        for axes, handoff in zip(panels, HANDOFFS, strict=True):
            for one in METHODS:
                drawn = [of_model[one.name] for of_model in curves.values()]
                alone, team = (
                    np.mean([[at[name] for at in curve] for curve in drawn], axis=0)
                    for name in ("solo", handoff)
                )
                axes.plot(alone, team, marker="o", markersize=3, label=one.name)
            axes.set(title=handoff, xlabel="accuracy alone")
            axes.grid(alpha=0.3)
        panels[0].set_ylabel("accuracy of the team")
        panels[0].legend()
        figure.savefig(path, metadata={"Date": None})


def write_page(out: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write ``rows.jsonl``, ``study.md`` and its figure; returns the page's path."""
    write_rows(out / "rows.jsonl", rows)
    draw_curves(rows, out / "curves.svg")
    path = out / "study.md"
    path.write_text(page(rows), encoding="utf-8")
    return path
