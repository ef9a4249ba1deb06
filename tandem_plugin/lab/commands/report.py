"""``tandem report``: one page of an evaluation's figures, tables and responses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem_plugin.lab.commands.compare import (
    KOption,
    LegibilityOver,
    OverOption,
    PoolOption,
    RunOption,
    TopOption,
    checkpoints,
    pools,
)
from tandem_plugin.terminal.output import JsonOption, echo, print_json

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.training_log import TrainingLog

__all__ = ["report"]


def report(
    results: Annotated[Path, typer.Argument(help="The --out of `tandem eval`.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to write; default: RESULTS/report."),
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A senior; given once for each, in the order of tables and legends: the last is "
            "tested against the others, the first that drifted is the baseline of recovery. "
            "Default: the juniors' own models, then as `tandem eval` was given them.",
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A training log: verl's metrics file or printed log, or OpenRLHF's printed log. "
            "May be given several times.",
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Problems of each benchmark whose responses are shown.")
    ] = 2,
    k: KOption = None,
    pool: PoolOption = None,
    run: RunOption = None,
    over: OverOption = LegibilityOver.PROBLEMS,
    top: TopOption = 500,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Tandem evaluation",
    json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page, and each figure as PNG beside it.

    Accuracy by step, handoff and legibility by senior, drift, the paper's tables, a verdict, and
    responses coloured by author. The page makes no request of any network and holds no script.
    """
    from tandem_plugin.errors import EvaluationError
    from tandem_plugin.lab.evaluation.tables import TableOptions
    from tandem_plugin.progress import waiting

    try:
        from tandem_plugin.lab.evaluation.report.build import build_report
    except ImportError as error:
        raise EvaluationError("TP981", error=error) from error
    chosen = TableOptions(k, top, checkpoints(run))
    logs = [_log(given) for given in log or ()]
    try:
        with waiting("report"):
            written = build_report(
                results,
                out or results / "report",
                title=title,
                order=order or (),
                logs=logs,
                samples=samples,
                options=chosen,
                pools=pools(pool),
                over=over.value,
            )
    except ModuleNotFoundError as error:
        raise EvaluationError("TP982", package=error.name) from error
    result = {
        "page": str(written.page),
        "figures": list(written.figures),
        "tables": written.tables,
        "responses": written.samples,
        "verdict": list(written.verdict),
        "notes": list(written.notes),
    }
    if json:
        print_json(result)
        return
    echo(
        f"Wrote {written.page}: {len(written.figures)} figures, {written.tables} tables, "
        f"{written.samples} responses."
    )
    for sentence in written.verdict:
        echo(sentence)
    for sentence in written.notes:
        echo(sentence, err=True)


def _log(given: str) -> TrainingLog:
    from tandem_plugin.errors import EvaluationError
    from tandem_plugin.lab.evaluation.training_log import read_training_log

    name, equals, file = given.partition("=")
    if not equals or not name or not file:
        raise EvaluationError("TP983", given=given)
    return read_training_log(name, Path(file))
