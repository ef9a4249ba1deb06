"""The paper's numbers beside those of `tandem eval`, as Markdown: beside.py RESULTS [OVER]."""

from __future__ import annotations

import sys
from itertools import zip_longest
from pathlib import Path

from tandem_plugin.lab.evaluation.drift import mean_recovery
from tandem_plugin.lab.evaluation.measures import Over, mean_metric, measured
from tandem_plugin.lab.evaluation.results import Summary, find_summaries
from tandem_plugin.lab.evaluation.significance import paired_test

PAPER: dict[tuple[str, str, str], tuple[float, ...]] = {
    # (run, measure, benchmark): (GRPO, tandem), and KL-Reg where the paper has it. The tables of
    # sections 4.5 and 5.2, the text of section 4.3, and the tables of appendices B.2 and B.3.
    ("solo", "pass@8", "average"): (56.0, 55.2, 56.0),
    ("handoff step base", "pass@1", "AIME"): (24.7, 29.3),
    ("handoff step base", "pass@8", "AIME"): (37.8, 44.4),
    ("handoff step base", "pass@8", "average"): (52.7, 55.8, 52.9),
    ("handoff step Qwen3-4B", "pass@4", "AMC"): (74.1, 76.6),
    ("handoff step Qwen3-4B", "pass@4", "AIME"): (34.2, 40.0),
    ("handoff step Qwen3-4B", "pass@4", "Minerva"): (39.6, 39.8),
    ("handoff step-bernoulli base", "pass@8", "AMC"): (78.5, 80.2),
    ("handoff step-bernoulli base", "pass@8", "AIME"): (38.9, 42.2),
    ("handoff step-bernoulli base", "pass@8", "Minerva"): (44.5, 44.9),
    ("handoff step-bernoulli base", "pass@8", "average"): (54.0, 55.8),
    ("legibility base", "Cross-entropy", "AMC"): (0.125, 0.113),
    ("legibility base", "Cross-entropy", "AIME"): (0.154, 0.156),
    ("legibility base", "Cross-entropy", "Minerva"): (0.117, 0.097),
    ("legibility base", "Cross-entropy", "average"): (0.132, 0.122, 0.127),
    ("legibility base", "Distribution overlap", "AMC"): (0.961, 0.973),
    ("legibility base", "Distribution overlap", "AIME"): (0.957, 0.970),
    ("legibility base", "Distribution overlap", "Minerva"): (0.963, 0.976),
    ("legibility base", "Distribution overlap", "average"): (0.960, 0.973, 0.960),
}
SENIORS = ("GRPO", "tandem", "KL-Reg")
PAPER_TESTS = {
    # (run, measure, other): (difference, in points or as it is, and p) of tandem over another, one
    # sided and paired over problems. Table of section 5.3.
    **{
        ("handoff step base", f"pass@{k}", other): stated
        for other, each in {
            "GRPO": ((1.42, "0.005"), (1.72, "0.004"), (1.88, "0.010"), (2.07, "0.034")),
            "KL-Reg": ((1.01, "0.043"), (1.24, "0.029"), (1.62, "0.017"), (2.07, "0.016")),
        }.items()
        for k, stated in zip((1, 2, 4, 8), each, strict=True)
    },
    ("legibility base", "Cross-entropy", "GRPO"): (-0.0146, "<1e-20"),
    ("legibility base", "Cross-entropy", "KL-Reg"): (-0.0114, "<1e-24"),
    ("legibility base", "Distribution overlap", "GRPO"): (0.0147, "<1e-139"),
    ("legibility base", "Distribution overlap", "KL-Reg"): (0.0110, "<1e-113"),
}
PAPER_KL = (0.026, 0.022)
"""Section 4.4, likewise: of the marginal distributions of tokens, in nats."""
PAPER_RECOVERY = {"top 500 moved back (%)": 87, "ρ, top 500": -0.58}
"""Section 4.4, of tandem alone: its drift is measured against GRPO's."""


def beside(results: Path, over: Over) -> str:
    """The table: paper, then found; the release hands over by text, in the place of ``step``."""
    found: dict[tuple[str, str, str, str], str] = {}
    drifts: dict[str, Summary] = {}
    runs: dict[tuple[str, str], Summary] = {}
    for summary in find_summaries(results):
        if summary.kind == "drift":
            drifts[summary.senior] = summary
            continue
        run = summary.label.replace("step-text", "step")
        runs[summary.senior, run] = summary
        for measure, values in measured(summary, over=over).items():
            means = {**values.means, "average": values.macro}
            errors = {**values.errors, "average": values.macro_error}
            for benchmark, mean in means.items():
                numbers = (measure.scale * one for one in (mean, errors[benchmark]))
                shown = " ± ".join(f"{number:.{measure.decimals}f}" for number in numbers)
                found[summary.senior, run, measure.name, benchmark] = shown
    columns = [f"{name}{what}" for name in SENIORS for what in (", paper", "")]
    lines = [f"| Run | Measure | Benchmark | {' | '.join(columns)} |", "|---" * 9 + "|"]
    for (run, measure_name, benchmark), stated in PAPER.items():
        cells = [run, measure_name, benchmark]
        for senior, number in zip_longest(SENIORS, stated, fillvalue=""):
            missing = "not run" if number else ""
            place = (str(senior), run, measure_name, benchmark)
            cells += [str(number), found.get(place, missing)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *_drift_lines(drifts), "", *_test_lines(runs, over)])


def _test_lines(runs: dict[tuple[str, str], Summary], over: Over) -> list[str]:
    """The paper's twelve tests of tandem over another senior, and ours."""
    lines = [
        "| Run | Measure | tandem less | paper | p, paper | difference | p |",
        "|---" * 7 + "|",
    ]
    for (run, name, other), (stated, p) in PAPER_TESTS.items():
        cells = [run, name, other, f"{stated:+g}", p, "not run", ""]
        both = [runs.get((senior, run)) for senior in ("tandem", other)]
        each = [measured(one, over=over) for one in both if one is not None]
        chosen = next((one for one in each[0] if one.name == name), None) if each else None
        if chosen is not None and len(each) == 2 and chosen in each[1]:
            pooled = [values[chosen].pooled for values in each]
            test = paired_test(*pooled, chosen.direction)
            difference = chosen.scale * test.difference
            cells[5:] = [f"{difference:+.{chosen.decimals + 1}f}", f"{test.p:.2g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


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
    rows = [[*row, "", ""] for row in rows]
    return [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    print(beside(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "positions"))
