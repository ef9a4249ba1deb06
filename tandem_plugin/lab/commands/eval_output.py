"""What `tandem eval` says of the runs that it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem_plugin.terminal.output import print_json, table_console

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.rendering import PaperTable
    from tandem_plugin.lab.evaluation.results import Summary

__all__ = ["report"]


def report(written: Sequence[Path], json: bool, top: int = 500) -> None:
    """Print the headline numbers of each run, and of several seniors' drift its tables.

    written: the paths of their summaries. top: how many tokens recovery is about.
    """
    from rich.table import Table
    from rich.text import Text

    from tandem_plugin.lab.evaluation.measures import headline
    from tandem_plugin.lab.evaluation.rendering import rich_table, table_json
    from tandem_plugin.lab.evaluation.results import read_summary
    from tandem_plugin.progress import waiting

    with waiting("tables"):
        found = [read_summary(path) for path in written]
        tables = _drift_tables([one for one in found if one.kind == "drift"], top)
    if json:
        print_json(
            {
                "runs": [
                    {
                        "kind": one.kind,
                        "senior": one.senior,
                        "junior": one.junior,
                        "summary": str(one.folder / "summary.json"),
                        **headline(one),
                    }
                    for one in found
                ],
                "tables": [table_json(table) for table in tables],
            }
        )
        return
    shown = Table("senior", "run", "result", box=None, pad_edge=False)
    for one in found:
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in headline(one).items())
        shown.add_row(Text(one.senior), Text(one.label), numbers)
    console = table_console()
    console.print(shown)
    for table in tables:
        console.print(rich_table(table))


def _drift_tables(runs: Sequence[Summary], top: int) -> list[PaperTable]:
    from tandem_plugin.lab.evaluation.tables import drift_tables

    if not runs:
        return []
    return drift_tables(runs[0].label, {one.senior: one for one in runs}, top)
