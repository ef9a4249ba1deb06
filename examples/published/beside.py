"""The paper's numbers beside those of `tandem eval`, as Markdown: beside.py RESULTS [OVER]."""

from __future__ import annotations

import sys
from pathlib import Path

from tandem_plugin.lab.evaluation.measures import Over, measured
from tandem_plugin.lab.evaluation.results import find_summaries

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


def beside(results: Path, over: Over) -> str:
    """The table: paper, then found; the release hands over by text, in the place of ``step``."""
    found: dict[tuple[str, str, str, str], str] = {}
    for summary in find_summaries(results):
        if summary.kind == "drift":
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
    return "\n".join(lines)


if __name__ == "__main__":
    print(beside(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "positions"))
