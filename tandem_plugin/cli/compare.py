"""``tandem compare``: the paper's tables from the results of several seniors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.cli.output import JsonOption, print_json

if TYPE_CHECKING:
    from tandem_plugin.evaluation.comparison import Comparison
    from tandem_plugin.evaluation.paper_table import PaperTable

__all__ = ["KOption", "PoolOption", "TopOption", "compare", "pools"]

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
    from tandem_plugin.evaluation.comparison import compare as compared
    from tandem_plugin.evaluation.rendering import latex, markdown
    from tandem_plugin.evaluation.results import result_files
    from tandem_plugin.evaluation.tables import paper_tables
    from tandem_plugin.files import InputFiles, write_file

    comparison = compared(results, despite or (), resamples, pools(pool))
    tables = paper_tables(comparison, k, top)
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


def pools(given: list[str] | None) -> dict[str, list[str]]:
    """The members of each pool; raises :class:`EvaluationError` for another form."""
    from tandem_plugin.errors import EvaluationError
    from tandem_plugin.evaluation.benchmark import checked_name

    found: dict[str, list[str]] = {}
    for one in given or ():
        name, _, members = one.partition("=")
        listed = members.split(",")
        if not name or not all(listed):
            raise EvaluationError(f"--pool {one} is not of the form NAME=SENIOR,SENIOR.")
        if checked_name(name, "pool") in found:
            raise EvaluationError(f"--pool {name} was given twice: give all its seniors at once.")
        found[name] = listed
    return found


def _as_json(
    comparison: Comparison, tables: list[PaperTable], files: dict[str, str]
) -> dict[str, Any]:
    return {
        "seniors": list(comparison.seniors),
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "columns": list(table.columns),
                "rows": [
                    [
                        {
                            "text": cell.text,
                            "error": cell.error,
                            "bold": cell.bold,
                            "stars": cell.stars,
                        }
                        for cell in row
                    ]
                    for row in table.rows
                ],
            }
            for table in tables
        ],
        "notes": list(comparison.missing),
        "files": files,
    }


def _print(comparison: Comparison, tables: list[PaperTable], files: dict[str, str]) -> None:
    from rich.console import Console

    from tandem_plugin.evaluation.rendering import rich_table

    console = Console(highlight=False)
    for table in tables:
        console.print(rich_table(table))
    for sentence in comparison.missing:
        typer.echo(sentence, err=True)
    for name in files.values():
        typer.echo(f"Wrote {name}.", err=True)
