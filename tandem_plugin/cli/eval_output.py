"""What `tandem eval` says of the runs that it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tandem_plugin.cli.output import print_json

__all__ = ["report"]


def report(written: Sequence[Path], json: bool) -> None:
    """Print the headline numbers of each run; written: the paths of their summaries."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tandem_plugin.evaluation.results import read_summary
    from tandem_plugin.evaluation.tables import headline

    found = [read_summary(path) for path in written]
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
                ]
            }
        )
        return
    table = Table("senior", "run", "result", box=None, pad_edge=False)
    for one in found:
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in headline(one).items())
        table.add_row(Text(one.senior), Text(one.label), numbers)
    Console(highlight=False).print(table)
