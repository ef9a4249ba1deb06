"""What every benchmark's own command line has in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from machine import describe_machine
from results import Results
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from tandem_plugin.progress import ShownProgress

__all__ = ["DEFAULT_OUT", "progress_bar", "run_benchmark"]

DEFAULT_OUT = Path("runs/benchmarks")


def run_benchmark(name: str, purpose: str, measure: Callable[[Results, bool], None]) -> None:
    """Read ``--out`` and ``--quick``, measure what is missing, and leave ``<out>/<name>.json``."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where results go")
    parser.add_argument(
        "--quick", action="store_true", help="small and short: shows that it runs, not how fast"
    )
    options = parser.parse_args()
    quick = bool(options.quick)
    command = f"python benchmarks/{name}.py" + (" --quick" if quick else "")
    header = {
        "benchmark": name,
        "command": command,
        "quick": quick,
        "machine": describe_machine(),
    }
    results = Results(options.out.resolve(), name, header)
    measure(results, quick)
    Console().print(f"{results.path}", highlight=False, soft_wrap=True)


def progress_bar() -> ShownProgress:
    """Progress over cases or rounds."""
    return ShownProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(),
        transient=False,
    )
