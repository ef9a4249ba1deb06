"""``tandem compare``: the paper's tables from the results of several seniors."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.terminal.output import JsonOption, echo, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.comparison import Comparison
    from tandem_plugin.lab.evaluation.rendering import PaperTable

__all__ = [
    "KOption",
    "LegibilityOver",
    "OverOption",
    "PoolOption",
    "RunOption",
    "TopOption",
    "checkpoints",
    "compare",
    "pools",
]


class LegibilityOver(str, Enum):
    """What a benchmark's cross-entropy and overlap are means over."""

    PROBLEMS = "problems"
    POSITIONS = "positions"


KOption = Annotated[
    int | None,
    typer.Option("--k", min=1, help="The k of tables with one pass@k. Default: 8, or fewer."),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pool",
        metavar="NAME=SENIOR,SENIOR",
        help="Seniors that one method trained with several seeds, as one in tables: a problem's "
        "number is the mean over them. May be given several times.",
    ),
]
TopOption = Annotated[
    int,
    typer.Option(
        "--top", min=3, help="How many of the baseline's most displaced tokens recovery is about."
    ),
]
RunOption = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        metavar="NAME=SENIOR@STEP,SENIOR@STEP",
        help="Seniors, or pools, that are checkpoints of one training run, and their steps. Given "
        "for two runs or more, tables show them at matched steps and at matched accuracy alone.",
    ),
]
OverOption = Annotated[
    LegibilityOver,
    typer.Option(
        "--legibility-over",
        help="What a benchmark's cross-entropy and overlap are means over: problems, each the "
        "mean over its positions, or positions, all of them at once.",
    ),
]


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="The results of two seniors or more: their folders under the --out of `tandem "
            "eval`. The last is tested against each of the others; drift is relative to the first."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="A folder to write tables.md and tables.tex to.")
    ] = None,
    k: KOption = None,
    despite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="A setting in which the results may differ, such as sampling.seed. May be given "
            "several times.",
        ),
    ] = None,
    pool: PoolOption = None,
    run: RunOption = None,
    over: OverOption = LegibilityOver.PROBLEMS,
    top: TopOption = 500,
    resamples: Annotated[
        int, typer.Option(min=2, help="Bootstrap resamples for standard errors.")
    ] = 10_000,
    json: JsonOption = False,
) -> None:
    """Print the paper's tables: pass@k, handoff, legibility, drift, significance.

    Better values are bold, ± is one bootstrap standard error over problems, and stars are paired
    one-sided t-tests. Results that were made with other settings are refused.
    """
    from tandem_plugin.files import InputFiles, write_file
    from tandem_plugin.lab.evaluation.comparison import compare as compared
    from tandem_plugin.lab.evaluation.rendering import latex, markdown
    from tandem_plugin.lab.evaluation.results import result_files
    from tandem_plugin.lab.evaluation.tables import TableOptions, paper_tables
    from tandem_plugin.progress import waiting

    chosen = TableOptions(k, top, checkpoints(run))
    with waiting("compare"):
        comparison = compared(results, despite or (), resamples, pools(pool), over.value)
        tables = paper_tables(comparison, chosen)
    files: dict[str, str] = {}
    if out is not None:
        read = [file for folder in results for file in result_files(folder)]
        InputFiles(results=read).check_outputs(out / "tables.md", out / "tables.tex")
        notes = "".join(f"- {sentence}\n" for sentence in comparison.missing)
        texts = {
            "tables.md": "\n".join(markdown(table) for table in tables) + (notes and f"\n{notes}"),
            "tables.tex": "\n".join(latex(table) for table in tables),
        }
        for name, text in texts.items():
            write_file(out / name, text)
            files[name] = str(out / name)
    if json:
        print_json(_as_json(comparison, tables, files))
    else:
        _print(comparison, tables, files)


def _as_json(
    comparison: Comparison, tables: list[PaperTable], files: dict[str, str]
) -> dict[str, Any]:
    from tandem_plugin.lab.evaluation.rendering import table_json

    return {
        "seniors": list(comparison.seniors),
        "tables": [table_json(table) for table in tables],
        "notes": list(comparison.missing),
        "files": files,
    }


def _print(comparison: Comparison, tables: list[PaperTable], files: dict[str, str]) -> None:

    from tandem_plugin.lab.evaluation.rendering import rich_table

    console = table_console()
    for table in tables:
        console.print(rich_table(table))
    for sentence in comparison.missing:
        echo(sentence, err=True)
    for name in files.values():
        echo(f"Wrote {name}.", err=True)


def pools(given: list[str] | None) -> dict[str, list[str]]:
    """The members of each pool; raises :class:`EvaluationError` for another form."""
    from tandem_plugin.errors import EvaluationError
    from tandem_plugin.lab.evaluation.benchmark import checked_name

    found: dict[str, list[str]] = {}
    for one in given or ():
        name, _, members = one.partition("=")
        listed = members.split(",")
        if not name or not all(listed):
            raise EvaluationError("TP993", one=one)
        if checked_name(name, "pool") in found:
            raise EvaluationError("TP952", name=name)
        found[name] = listed
    return found


def checkpoints(given: list[str] | None) -> dict[str, dict[int, str]]:
    """Each training run's seniors by step; raises :class:`EvaluationError` for another form."""
    from tandem_plugin.errors import EvaluationError

    found: dict[str, dict[int, str]] = {}
    for one in given or ():
        name, _, members = one.partition("=")
        by_step: dict[int, str] = {}
        for member in members.split(","):
            senior, _, step = member.rpartition("@")
            if not (name and senior and step.isascii() and step.isdigit() and len(step) < 16):
                raise EvaluationError("TP994", one=one)
            if by_step.setdefault(int(step), senior) != senior:
                raise EvaluationError("TP995", one=one, step=int(step))
        if name in found:
            raise EvaluationError("TP955", name=name)
        found[name] = by_step
    if len(found) == 1:
        raise EvaluationError("TP996", found=next(iter(found)))
    return found
