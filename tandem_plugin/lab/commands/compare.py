"""``tandem compare``: the paper's tables from the results of several seniors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.lab.commands.compare_options import (
    KOption,
    LegibilityOver,
    OverOption,
    PoolOption,
    RunOption,
    TopOption,
    checkpoints,
    pools,
)
from tandem_plugin.terminal.output import JsonOption, echo, print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.comparison import Comparison
    from tandem_plugin.lab.evaluation.rendering import PaperTable

__all__ = ["compare"]


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
