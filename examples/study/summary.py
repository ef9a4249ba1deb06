"""What a study found, as one Markdown page: every table of `tandem compare`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from methods import KL_COEFFICIENT
from size import Size
from tandem_commands import TEMPERATURE, TOP_P

_POOLED = """\
Pooled: a problem's number is the mean over a method's seeds. ± is one bootstrap standard error over
problems, and t-tests are paired over problems: both say how sure the numbers of these very models
are, and not how another seed would turn out. That is what the table "Macro averages of each pooled
run" is for; two seeds say little of it.
"""


def write_summary(out: Path, size: Size, pass_rate: float, seconds: Mapping[str, float]) -> Path:
    """Writes ``study.md`` from the tables that lie under ``out``; returns its path."""
    sections = [_head(size, pass_rate)]
    if len(size.seeds) > 1:
        sections += ["# All seeds pooled", _POOLED, _tables(out, "pooled")]
    for seed in size.seeds:
        sections += [f"# Seed {seed}", _tables(out, f"seed-{seed}")]
    sections += ["# Time", _times(seconds)]
    path = out / "study.md"
    path.write_text("\n\n".join(section.strip() for section in sections) + "\n", encoding="utf-8")
    return path


def _head(size: Size, pass_rate: float) -> str:
    training = size.training
    return (
        f"{', '.join(size.methods)}, each trained with verl's GRPO from one taught model, "
        f"{len(size.seeds)} seed(s): {training.steps} steps of {training.prompts} problems with "
        f"{training.group} responses each, learning rate {training.learning_rate:g}, temperature "
        f"1. KL-Reg adds a KL loss towards that model with the coefficient {KL_COEFFICIENT}; TRL "
        "lets it write as the junior, word by word. The taught model solved "
        f"{pass_rate:.1%} of new problems at temperature 1.\n\n"
        f"Evaluated on {size.problems} held-out problems of each kind: {size.samples} responses "
        f"each alone and {size.team_samples} as a team under each schedule, at temperature "
        f"{TEMPERATURE} and top-p {TOP_P}; {size.read} of each are read for legibility."
    )


def _tables(out: Path, name: str) -> str:
    return (out / "tables" / name / "tables.md").read_text(encoding="utf-8")


def _times(seconds: Mapping[str, float]) -> str:
    rows = [f"| {name} | {taken / 60:.1f} |" for name, taken in seconds.items()]
    total = f"| all | {sum(seconds.values()) / 60:.1f} |"
    return "\n".join(["| Stage | Minutes |", "| --- | ---: |", *rows, total])
