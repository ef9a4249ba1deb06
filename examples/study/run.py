"""The study: the paper's claims in its own setting, a senior and its frozen self, on toy models.

Every method from every taught model, each in a small process of its own, without a GPU::

    python examples/study/run.py [--out runs/study] [--quick]

Stop it as you like: the same command resumes, and repeats no training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from light.judging import power_lines
from light.notes import StudyError, check_settings
from light.page import write_page
from light.runs import default_workers, run_trainings
from light.size import QUICK, WHOLE, LightSize
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from tandem_plugin.progress import ShownProgress


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="a folder")
    parser.add_argument("--workers", type=int, default=default_workers(), help="processes")
    parser.add_argument("--quick", action="store_true", help="the smallest: nothing is learnt")
    options = parser.parse_args(arguments)
    console = Console()
    try:
        page = run(
            options.out.resolve(), QUICK if options.quick else WHOLE, options.workers, console
        )
    except StudyError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; the same command resumes it.")
        return 130
    console.print(f"The tables are in {page}.", highlight=False)
    return 0


def run(out: Path, size: LightSize, workers: int, console: Console) -> Path:
    """Train, measure and write the page, whose path is returned; says first what it can tell."""
    said = "\n".join(power_lines(size))
    if console.is_terminal:
        console.print(Markdown(said))
    else:  # a log file has room for whole lines
        console.out(said, highlight=False)
    _train(out, size, workers, console)
    return write_page(out, size)


def _train(out: Path, size: LightSize, workers: int, console: Console) -> None:
    """Train and measure, with a note of every training and progress to be seen."""
    out.mkdir(parents=True, exist_ok=True)
    check_settings(out / "study.json", size.settings())
    with ShownProgress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=False,
    ) as bar:  # fmt: skip
        task = bar.add_task("The study", total=None)

        def on_done(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)
            if not console.is_terminal:
                console.print(f"{done} of {total}: {name}.", highlight=False, markup=False)

        run_trainings(out, size, workers, on_done)


if __name__ == "__main__":
    sys.exit(main())
