"""What a run leaves to look at: curves, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

TRAINING_REWARD = "critic/score/mean"
JUNIOR_CROSS_ENTROPY = "tandem/junior_cross_entropy"
OVERLAP = "tandem/overlap"

Records = Sequence[tuple[int, Mapping[str, Any]]]
"""(step, metrics) in order; of evaluations, the pass rates by who answers."""


class ReportError(RuntimeError):
    """A tandem run without the metrics that show it was one."""


def curve(records: Iterable[tuple[int, Mapping[str, Any]]], key: str) -> dict[int, float]:
    """One metric by step, at the steps that have it."""
    return {step: float(metrics[key]) for step, metrics in records if key in metrics}


def check_tandem(records: Records) -> None:
    """Refuses a run that was asked for in tandem and does not show it.

    Raises:
        ReportError: a tandem metric is missing.
    """
    for key in ("tandem/senior_share", "tandem/spans_per_response", JUNIOR_CROSS_ENTROPY):
        if not curve(records, key):
            raise ReportError(
                f"The run logged no {key}: it did not train in tandem. Check that tandem-plugin "
                "is installed in the environment of the run, or ask for --solo."
            )


def draw_curves(records: Records, evaluations: Records, path: Path) -> None:
    """Reward, pass rates of evaluations and the junior's cross-entropy over steps, as a PNG."""
    read = curve(records, JUNIOR_CROSS_ENTROPY)
    figure, panels = plt.subplots(
        2 if read else 1, figsize=(7, 6), layout="constrained", sharex=True, squeeze=False
    )
    axes = panels[0, 0]
    training = curve(records, TRAINING_REWARD)
    axes.plot(training.keys(), training.values(), color="0.6", label="training reward")
    for authors in evaluations[0][1]:
        rates = curve(evaluations, authors)
        axes.plot(rates.keys(), rates.values(), marker="o", label=f"evaluation, {authors}")
    axes.set(ylabel="mean reward", ylim=(0, 1))
    if read:
        name = "the junior's cross-entropy on the senior's tokens"
        panels[1, 0].plot(read.keys(), read.values(), color="tab:purple", label=name)
        panels[1, 0].set(ylabel="nats per token", ylim=(0, None))
    for axes in panels[:, 0]:
        axes.grid(alpha=0.3)
        axes.legend()
    panels[-1, 0].set_xlabel("step")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def sentences(records: Records, evaluations: Records) -> list[str]:
    """What changed: the pass rates, and how well the junior predicts what the senior writes.

    The latter are means over a third of the steps at either end, since a step measures some of its
    tokens.
    """
    lines = []
    gap = curve(records, "training/rollout_probs_diff_max")
    if gap:
        lines.append(
            "Engine and trainer agree on every trained token's probability to within "
            f"{max(gap.values()):.1e}."
        )
    (_, before), *_, (_, after) = evaluations
    lines += [
        f"{authors}: {rate:.1%} of the evaluation problems solved before, {after[authors]:.1%} "
        f"after ({100 * (after[authors] - rate):+.1f} points)."
        for authors, rate in before.items()
    ]
    for key, name in (
        (JUNIOR_CROSS_ENTROPY, "The junior's cross-entropy (nats) on what the senior writes"),
        (OVERLAP, "The overlap of both models where the senior writes"),
    ):
        values = list(curve(records, key).values())
        if values:
            few = max(1, len(values) // 3)
            first, last = sum(values[:few]) / few, sum(values[-few:]) / few
            lines.append(f"{name}: {first:.3f} in the first steps, {last:.3f} in the last.")
    return lines
