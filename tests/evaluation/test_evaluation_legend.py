"""The legend below a report's figures."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tandem_plugin.lab.evaluation.report.figures import legend, styles

NAMES = ["junior", "taught", "GRPO", "KL-Reg-0.05", "TRL", "a-senior-of-a-long-name", "another"]


@pytest.mark.parametrize("width", [3.5, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_legend_is_as_wide_as_its_figure_at_most(width: float, count: int) -> None:
    figure = Figure((width, 3), layout="constrained")
    figure.subplots().plot([0, 1])
    canvas = FigureCanvasAgg(figure)
    legend(figure, {name: styles(NAMES, {})[name] for name in NAMES[:count]})
    canvas.draw()
    box = figure.legends[0].get_window_extent(canvas.get_renderer())
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert len(figure.legends[0].get_texts()) == count
