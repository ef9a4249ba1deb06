"""The curves of the study: how accuracy and legibility move while seniors are trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from light.table import Found

__all__ = ["draw_curves"]

_PANELS = {
    "solo": "alone, pass@1",
    "step": "team under step, pass@1",
    "cross_entropy": "junior's cross-entropy, nats",
    "kl": "drift, KL in nats",
}


def draw_curves(found: Found, exposure: str, folder: Path) -> Path:
    """One figure a junior, SVG: mean and standard error over runs by step; returns its path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{exposure.replace('%', '-percent')}.svg"
    figure, axes = pyplot.subplots(1, len(_PANELS), figsize=(4 * len(_PANELS), 3.2))
    for axis, (measure, title) in zip(axes, _PANELS.items(), strict=True):
        for method in found.size.methods(exposure):
            curves = [found.curve(one, exposure) for one in found.runs(exposure, method.name)]
            values = np.array([[point[measure] for point in curve] for curve in curves])
            steps = [point["step_number"] for point in curves[0]]
            mean = values.mean(axis=0)
            error = (
                values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0 * mean
            )
            (line,) = axis.plot(steps, mean, label=method.name)
            axis.fill_between(steps, mean - error, mean + error, alpha=0.2, color=line.get_color())
        axis.set_title(title)
        axis.set_xlabel("step")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path
