"""All benchmarks, one after the other: ``python benchmarks/run.py --out runs/benchmarks``.

Each leaves ``<out>/<name>.json``, complete after every case, and ``<out>/tables.md`` is written
again whenever one ends. Started again, it goes on where it stopped. ``--speculative`` takes that
of the speculative mode, which needs vLLM 0.29, and has a table of its own. ``--docs`` measures
nothing: it writes the tables of ``<out>`` into docs/performance.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import lockstep
import replay_throughput
import selection
import speculative
from command import DEFAULT_OUT
from page import PageError, read_results, tables, write_page
from rich.console import Console
from rich.markup import escape

__all__ = ["BENCHMARKS", "SPECULATIVE", "main"]

BENCHMARKS: tuple[ModuleType, ...] = (lockstep, selection, replay_throughput)
SPECULATIVE: tuple[ModuleType, ...] = (speculative,)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmarks, or writes the page; returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    out = options.out.resolve()
    place, chosen = "benchmarks", BENCHMARKS
    if options.speculative:
        place, chosen = "speculative", SPECULATIVE
    try:
        if options.docs:
            write_page(PAGE, place, tables(chosen, read_results(out, chosen, whole=True)))
            console.print(f"Wrote {PAGE}")
            return 0
        return _run(chosen, out, options.only, options.quick, console)
    except PageError as error:
        console.print(f"[red]{escape(str(error))}[/red]")
        return 1


def _run(
    benchmarks: Sequence[ModuleType],
    out: Path,
    only: Sequence[str],
    quick: bool,
    console: Console,
) -> int:
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for benchmark in benchmarks:
        name: str = benchmark.NAME
        if only and name not in only:
            continue
        console.rule(name)
        script = Path(__file__).with_name(f"{name}.py")
        command = [sys.executable, str(script), "--out", str(out)]
        if subprocess.run([*command, "--quick"] if quick else command).returncode:
            failed.append(name)
            continue
        page = tables(benchmarks, read_results(out, benchmarks))
        (out / "tables.md").write_text(page, encoding="utf-8")
    if failed:
        console.print(f"[red]Failed: {', '.join(failed)}. The errors are above.[/red]")
        return 1
    console.print((out / "tables.md").read_text(encoding="utf-8"), markup=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run all benchmarks, or write their page.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where results go")
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it runs")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[benchmark.NAME for benchmark in (*BENCHMARKS, *SPECULATIVE)],
        help="this benchmark alone; may be given more than once",
    )
    parser.add_argument(
        "--speculative", action="store_true", help="that of the speculative mode: vLLM from 0.29"
    )
    parser.add_argument(
        "--docs", action="store_true", help=f"write the results into docs/{PAGE.name}"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
