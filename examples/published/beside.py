"""The paper's numbers beside those of `tandem eval`, as Markdown: beside.py RESULTS [OVER]."""

from __future__ import annotations

import sys
from pathlib import Path

from tandem_plugin.lab.evaluation.drift import mean_recovery
from tandem_plugin.lab.evaluation.measures import Over, mean_metric, measured
from tandem_plugin.lab.evaluation.results import Summary, find_summaries

PAPER = {
    # (run, measure, benchmark): (GRPO, tandem). The tables of sections 4.5 and 5.2, the text of
    # section 4.3, and the table of appendix B.3.
    ("solo", "pass@8", "average"): (56.0, 55.2),
    ("handoff step base", "pass@1", "AIME"): (24.7, 29.3),
    ("handoff step base", "pass@8", "AIME"): (37.8, 44.4),
    ("handoff step base", "pass@8", "average"): (52.7, 55.8),
    ("handoff step-bernoulli base", "pass@8", "AMC"): (78.5, 80.2),
    ("handoff step-bernoulli base", "pass@8", "AIME"): (38.9, 42.2),
    ("handoff step-bernoulli base", "pass@8", "Minerva"): (44.5, 44.9),
    ("handoff step-bernoulli base", "pass@8", "average"): (54.0, 55.8),
    ("legibility base", "Cross-entropy", "AMC"): (0.125, 0.113),
    ("legibility base", "Cross-entropy", "AIME"): (0.154, 0.156),
    ("legibility base", "Cross-entropy", "Minerva"): (0.117, 0.097),
    ("legibility base", "Cross-entropy", "average"): (0.132, 0.122),
    ("legibility base", "Distribution overlap", "AMC"): (0.961, 0.973),
    ("legibility base", "Distribution overlap", "AIME"): (0.957, 0.970),
    ("legibility base", "Distribution overlap", "Minerva"): (0.963, 0.976),
    ("legibility base", "Distribution overlap", "average"): (0.960, 0.973),
}
PAPER_KL = (0.026, 0.022)
"""Section 4.4, likewise: of the marginal distributions of tokens, in nats."""
PAPER_RECOVERY = {"top 500 moved back (%)": 87, "ρ, top 500": -0.58}
"""Section 4.4, of tandem alone: its drift is measured against GRPO's."""


def beside(results: Path, over: Over) -> str:
    """The table: paper, then found; the release hands over by text, in the place of ``step``."""
    found: dict[tuple[str, str, str, str], str] = {}
    drifts: dict[str, Summary] = {}
    for summary in find_summaries(results):
        if summary.kind == "drift":
            drifts[summary.senior] = summary
            continue
        run = summary.label.replace("step-text", "step")
        for measure, values in measured(summary, over=over).items():
            means = {**values.means, "average": values.macro}
            errors = {**values.errors, "average": values.macro_error}
            for benchmark, mean in means.items():
                numbers = (measure.scale * one for one in (mean, errors[benchmark]))
                shown = " ± ".join(f"{number:.{measure.decimals}f}" for number in numbers)
                found[summary.senior, run, measure.name, benchmark] = shown
    lines = [
        "| Run | Measure | Benchmark | GRPO, paper | GRPO | tandem, paper | tandem |",
        "|---|---|---|---|---|---|---|",
    ]
    for (run, measure_name, benchmark), stated in PAPER.items():
        cells = [run, measure_name, benchmark]
        for senior, number in zip(("GRPO", "tandem"), stated, strict=True):
            cells += [str(number), found.get((senior, run, measure_name, benchmark), "not run")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines + _drift_lines(drifts))


def _drift_lines(drifts: dict[str, Summary]) -> list[str]:
    """Divergence, and what tandem recovers of GRPO's: with the null, which the paper leaves out."""
    cells = ["drift base", "KL", "all"]
    for senior, number in zip(("GRPO", "tandem"), PAPER_KL, strict=True):
        kl = f"{mean_metric(drifts[senior], 'kl'):.3f}" if senior in drifts else "not run"
        cells += [str(number), kl]
    rows = [cells]
    both = [drifts[senior] for senior in ("GRPO", "tandem") if senior in drifts]
    recovery = mean_recovery(*both) if len(both) == 2 else None
    for place, (measure, stated) in enumerate(PAPER_RECOVERY.items()):
        shown = "not run"
        if recovery:
            scale = 1 if place else 100
            values = {
                "": recovery.measured,
                "null ": recovery.null,
                "cross-fitted ": recovery.crossed,
            }
            shown = ", ".join(
                f"{name}{scale * numbers[place]:.2f}" for name, numbers in values.items() if numbers
            )
        rows.append(["drift base", measure, "all", "", "", str(stated), shown])
    return [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    print(beside(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "positions"))
