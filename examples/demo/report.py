"""What a run leaves to look at: a table, curves, one coloured response, before and after."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from evaluate import SENIOR_ALONE, TEAM
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tandem_plugin import Vocabulary
from tandem_plugin.spans import TokenBytes, authored_text

matplotlib.use("Agg")
from matplotlib import pyplot as plt

TRAINING_REWARD = "critic/score/mean"
RESPONSE_LENGTH = "response_length/mean"
SENIOR_SHARE = "tandem/senior_share"
SPANS = "tandem/spans_per_response"
JUNIOR_CROSS_ENTROPY = "tandem/junior_cross_entropy"
OVERLAP = "tandem/overlap"
PROBABILITY_GAP = "training/rollout_probs_diff_max"

# What a tandem rollout holds beside verl's own fields.
TOKEN_IDS, AUTHORSHIP, SEED = "response_ids", "authorship", "tandem_seed"

SENIOR_STYLE, JUNIOR_STYLE = "bold cyan", "yellow"

Metrics = Mapping[str, Any]
Rollout = dict[str, Any]


class ReportError(RuntimeError):
    """A tandem run without the fields that show it was one."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One quantity over steps: (step, value) in order."""

    name: str
    points: tuple[tuple[int, float], ...]

    @property
    def first(self) -> float:
        return self.points[0][1]

    @property
    def last(self) -> float:
        return self.points[-1][1]


def curve(records: Iterable[tuple[int, Metrics]], key: str, name: str) -> Curve:
    """The values of one metric at the steps that have it."""
    return Curve(name, tuple((step, float(m[key])) for step, m in records if key in m))


def evaluation_curves(evaluations: Sequence[tuple[int, Mapping[str, float]]]) -> list[Curve]:
    """Pass rates on the evaluation problems, one curve for each way of writing the responses."""
    authors = dict.fromkeys(name for _, rates in evaluations for name in rates)
    return [curve(evaluations, name, name) for name in authors]


def check_tandem(records: Sequence[tuple[int, Metrics]], rollouts: Sequence[Rollout]) -> None:
    """Refuses a run that was asked for in tandem and does not show it.

    Raises:
        ReportError: a tandem metric or field is missing.
    """
    for key in (SENIOR_SHARE, SPANS, JUNIOR_CROSS_ENTROPY):
        if not any(key in metrics for _, metrics in records):
            raise ReportError(
                f"The run logged no {key}: it did not train in tandem. Check that tandem-plugin "
                "is installed in the environment of the run, or ask for --solo."
            )
    for key in (TOKEN_IDS, AUTHORSHIP, SEED):
        if not rollouts or any(key not in rollout for rollout in rollouts):
            raise ReportError(
                f"A rollout of the run has no {key!r}, so it cannot be shown who wrote which "
                "token. Check that tandem-plugin is installed in the environment of the run, or "
                "ask for --solo."
            )


def gather_rollouts(folder: Path, target: Path) -> list[Rollout]:
    """Joins verl's ``{step}.jsonl`` files into ``target``, in the order of steps."""
    files = sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem))
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [json.loads(line) for line in lines]


def steps_table(
    records: Sequence[tuple[int, Metrics]],
    evaluations: Sequence[tuple[int, Mapping[str, float]]],
    rows: int = 16,
) -> Table:
    """Reward, length and tandem metrics at about ``rows`` of the steps and at each evaluation."""
    columns = [
        curve(records, TRAINING_REWARD, "reward"),
        curve(records, RESPONSE_LENGTH, "length"),
        curve(records, SENIOR_SHARE, "senior share"),
        curve(records, SPANS, "spans"),
        curve(records, JUNIOR_CROSS_ENTROPY, "junior's nats"),
        curve(records, OVERLAP, "overlap"),
        *evaluation_curves(evaluations),
    ]
    columns = [column for column in columns if column.points]
    table = Table(title="Training, by step")
    table.add_column("step", justify="right")
    for column in columns:
        table.add_column(column.name, justify="right")
    values = [dict(column.points) for column in columns]
    evaluated = {step for step, _ in evaluations}
    steps = sorted(evaluated | {step for step, _ in records})
    stride = max(1, math.ceil(len(steps) / rows))
    for step in steps:
        if step in evaluated or step == 1 or step % stride == 0:
            cells = [f"{value[step]:.3f}" if step in value else "" for value in values]
            table.add_row(str(step), *cells)
    return table


def draw_curves(
    records: Sequence[tuple[int, Metrics]],
    evaluations: Sequence[tuple[int, Mapping[str, float]]],
    path: Path,
    *,
    solo: bool,
) -> None:
    """Reward, pass rates of evaluations and the junior's cross-entropy over steps, as a PNG."""
    read = curve(records, JUNIOR_CROSS_ENTROPY, "the junior's cross-entropy on the senior's tokens")
    figure, panels = plt.subplots(
        2 if read.points else 1,
        figsize=(7, 6 if read.points else 4),
        layout="constrained",
        sharex=True,
        squeeze=False,
    )
    axes, *below = panels[:, 0]
    for lower in below:
        lower.plot(*zip(*read.points, strict=True), color="tab:purple", label=read.name)
        lower.set(xlabel="step", ylabel="nats a token", ylim=(0, None))
        lower.grid(alpha=0.3)
        lower.legend()
    author = SENIOR_ALONE if solo else TEAM
    training = curve(records, TRAINING_REWARD, f"training reward, {author}")
    if training.points:
        axes.plot(*zip(*training.points, strict=True), color="0.6", label=training.name)
    for one in evaluation_curves(evaluations):
        axes.plot(*zip(*one.points, strict=True), marker="o", label=f"evaluation, {one.name}")
    axes.set(xlabel="" if below else "step", ylabel="mean reward", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def coloured_response(
    token_ids: Sequence[int], authorship: Sequence[bool], vocabulary: Vocabulary
) -> Text:
    """The response with the senior's and the junior's spans in two styles.

    ``authorship`` has one entry for each token id, true (or 1) = senior. A character that two
    authors share goes to the author who began it.
    """
    kept = [
        (token, author)
        for token, author in zip(token_ids, authorship, strict=True)
        if token not in vocabulary.special
    ]
    tokens, authors = [token for token, _ in kept], [author for _, author in kept]
    authored = authored_text(tokens, authors, TokenBytes(vocabulary))
    text = Text()
    for (author, _), said in zip(authored.spans, authored.span_texts, strict=True):
        text.append(said, SENIOR_STYLE if author else JUNIOR_STYLE)
    return text


def before_and_after(evaluations: Sequence[tuple[int, Mapping[str, float]]]) -> list[str]:
    """One sentence for each way of writing: the pass rate at the first and last evaluation."""
    return [
        f"{one.name}: {one.first:.1%} of the evaluation problems solved before, "
        f"{one.last:.1%} after ({100 * (one.last - one.first):+.1f} points)."
        for one in evaluation_curves(evaluations)
    ]


def how_it_reads(records: Sequence[tuple[int, Metrics]]) -> list[str]:
    """How well the junior predicts what the senior writes, at the first and the last steps.

    Means over a third of the steps at either end, since a step measures some of its tokens.
    """
    lines = []
    for key, name, unit in (
        (JUNIOR_CROSS_ENTROPY, "The junior's cross-entropy on what the senior writes", " nats"),
        (OVERLAP, "The overlap of both models where the senior writes", ""),
    ):
        values = [value for _, value in curve(records, key, name).points]
        if values:
            few = max(1, len(values) // 3)
            first, last = sum(values[:few]) / few, sum(values[-few:]) / few
            lines.append(f"{name}: {first:.3f}{unit} in the first steps, {last:.3f} in the last.")
    return lines


def show_response(rollouts: Sequence[Rollout], vocabulary: Vocabulary, console: Console) -> None:
    """Prints one right response of the last step: coloured when its authorship is known."""
    last = max((int(rollout["step"]) for rollout in rollouts), default=None)
    final = [rollout for rollout in rollouts if rollout["step"] == last]
    chosen = max(final, key=_worth_showing, default=None)
    if chosen is None:
        return
    console.print(Text(f"\nA response of step {last}, reward {chosen['score']:g}", style="bold"))
    if AUTHORSHIP not in chosen:
        console.print(Text(chosen["output"]))
        return
    console.print(coloured_response(chosen[TOKEN_IDS], chosen[AUTHORSHIP], vocabulary))
    console.print(Text.assemble(("senior", SENIOR_STYLE), "  ", ("junior", JUNIOR_STYLE)))


def _worth_showing(rollout: Rollout) -> tuple[float, int]:
    """Right ones first, then those in which both wrote much."""
    authorship = rollout.get(AUTHORSHIP, [])
    return float(rollout["score"]), min(sum(authorship), len(authorship) - sum(authorship))
