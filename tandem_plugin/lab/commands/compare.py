"""``tandem compare`` and ``tandem report``: the paper's tables and figures of several seniors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tandem_plugin.lab.commands.options import OverOption
from tandem_plugin.terminal.output import JsonOption, echo, print_json, table_console

KOption = Annotated[
    int | None,
    typer.Option("--k", min=1, help="The k for tables with a single pass@k. Default: 8, or fewer."),
]
PoolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pool",
        metavar="NAME=SENIOR,SENIOR",
        help="Seniors trained by one method with several seeds, shown as one in "
        "tables: a problem's value is the mean over them. Can be repeated.",
    ),
]
UnitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="NAME=SENIOR,SENIOR",
        help="Seniors that share a starting checkpoint (or another random effect), "
        "treated as one unit: pools are tested, and standard errors computed, "
        "over units instead of seeds. Can be repeated.",
    ),
]


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="The results of two or more seniors: their folders under the --out of "
            "`tandem eval`. The last is tested against each of the others; drift is "
            "relative to the first."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder for tables.md.")
    ] = None,
    k: KOption = None,
    despite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="A setting in which the results may differ, such as sampling.seed. Can "
            "be repeated.",
        ),
    ] = None,
    pool: PoolOption = None,
    unit: UnitOption = None,
    over: OverOption = "problems",
    json: JsonOption = False,
) -> None:
    """Print the paper's tables: pass@k, handoff, legibility, drift, significance.

    Better values are bold, ± is one bootstrap standard error over problems, and stars mark paired
    one-sided t-tests. Results made with different settings are rejected. A pipe or file gets
    Markdown.
    """
    from rich.markdown import Markdown

    from tandem_plugin.files import write_file
    from tandem_plugin.lab.evaluation import comparison as compared
    from tandem_plugin.lab.evaluation.rendering import markdown, table_json
    from tandem_plugin.lab.evaluation.tables import paper_tables
    from tandem_plugin.progress import waiting

    pools, units = _groups("pool", pool), _groups("unit", unit)
    with _packages(), waiting("compare"):
        seniors = compared.read_seniors(results)
        comparison = compared.compare(seniors, despite or (), pools, over, units)
        tables = paper_tables(comparison, k)
    text = "\n".join(map(markdown, tables))
    if out is not None:
        notes = "".join(f"- {sentence}\n" for sentence in comparison.notes)
        write_file(out / "tables.md", text + (notes and f"\n{notes}"))
    if json:
        files = {} if out is None else {"tables.md": str(out / "tables.md")}
        rows = [table_json(table) for table in tables]
        print_json(
            {
                "seniors": comparison.seniors,
                "tables": rows,
                "notes": comparison.notes,
                "files": files,
            }
        )
        return
    console = table_console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        echo(text)
    for sentence in comparison.notes:
        echo(sentence, err=True)
    if out is not None:
        echo(f"Wrote {out / 'tables.md'}.", err=True)


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="The --out of `tandem eval`: the juniors' own models come first in tables, "
            "then the others by name. Or the folders of seniors, in the order of tables."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output folder. Default: report in the first folder."),
    ] = None,
    k: KOption = None,
    pool: PoolOption = None,
    unit: UnitOption = None,
    over: OverOption = "problems",
    training: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="The rollouts of a training, or its run's folder: reward, length and wall clock "
            "by step become a figure. Can be repeated.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page, and each figure as a PNG file.

    Contains handoff and legibility by senior, drift, and the tables of `tandem compare`. The page
    makes no network requests and contains no scripts.
    """
    from tandem_plugin.progress import waiting

    place = out or results[0] / "report"
    pools, units = _groups("pool", pool), _groups("unit", unit)
    with _packages(), waiting("report"):
        from tandem_plugin.lab.evaluation.report import build_report

        written = build_report(results, place, k, pools, over, units, _trainings(training))
    if json:
        print_json(written)
        return
    page, figures, tables = written["page"], len(written["figures"]), written["tables"]
    echo(f"Wrote {page}: {figures} figures and {tables} tables.")
    for sentence in written["notes"]:
        echo(sentence, err=True)


@contextmanager
def _packages() -> Iterator[None]:
    """Raise :class:`EvaluationError` if a package for tests or figures is missing."""
    from tandem_plugin.errors import EvaluationError

    try:
        yield
    except ModuleNotFoundError as error:
        raise EvaluationError("command-needs-package", package=error.name) from error


def _trainings(options: list[str] | None) -> dict[str, Path]:
    """The folders of trainings by name; raises :class:`EvaluationError` for other forms."""
    from tandem_plugin.errors import EvaluationError
    from tandem_plugin.lab.evaluation.inputs import named_path

    folders = [named_path(option) for option in options or ()]
    for name, _ in folders:
        if [used_name for used_name, _ in folders].count(name) > 1:
            raise EvaluationError("option-name-used-twice", option="--training", name=name)
    return {name: Path(folder) for name, folder in folders}


def _groups(option: str, groupings: list[str] | None) -> dict[str, list[str]]:
    """The members of each pool or unit; raises :class:`EvaluationError` for other forms."""
    from tandem_plugin.errors import EvaluationError
    from tandem_plugin.lab.evaluation.inputs import checked_name

    groups: dict[str, list[str]] = {}
    for grouping in groupings or ():
        name, _, members = grouping.partition("=")
        listed = members.split(",")
        if not name or not all(listed):
            raise EvaluationError("option-not-group", option=option, one=grouping)
        if checked_name(name, option) in groups:
            raise EvaluationError("option-name-twice", option=option, name=name)
        groups[name] = listed
    return groups
