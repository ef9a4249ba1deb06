"""The study: what tandem training does to a senior that has something to drift into.

Two parts, on two CPU cores without a GPU and without a network. The light one trains many seeds of
every method in small processes; the real one trains one seed of each with verl's own trainer, and
evaluates it by `tandem eval`, `compare` and `report`::

    python examples/study/run.py [--out runs/study] [--quick]

The same command goes on after a kill.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import light.size
import real.size
from light.run import run_light, train_light
from light.runs import default_workers
from real.demo import TrainingError
from real.run import run_real
from rich.console import Console
from rich.markup import escape
from stages import Stages, StudyError, check_settings
from summary import write_summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study; returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    sizes = (
        (light.size.QUICK, real.size.QUICK)
        if options.quick
        else (light.size.WHOLE, real.size.WHOLE)
    )
    try:
        run(options.out.resolve(), *sizes, options.workers, console)
    except (StudyError, TrainingError) as error:
        console.print(f"[red]The study stopped.[/red] {escape(str(error))}", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("The study was interrupted; the same command goes on with it.")
        return 130
    return 0


def run(
    out: Path,
    light_size: light.size.LightSize,
    real_size: real.size.RealSize,
    workers: int,
    console: Console,
) -> None:
    """The whole study, its files under ``out``."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    settings = {"light": light_size.settings(), "real": real_size.settings()}
    check_settings(out / "study.json", settings)
    stages = Stages(out, console)
    light_out, same = out / "light", out / "light-at-real-budget"
    stages.run("light", lambda: _light(light_out, light_size, workers, console))
    budget = replace(
        light_size,
        exposures=(real_size.exposure,),
        swept="",
        pairs=1,
        seeds=(real_size.training.seed,),
        training=real_size.light(),
        evaluate_every=real_size.training.steps,
    )
    stages.run("light at the real budget", lambda: train_light(same, budget, workers, console))
    run_real(out / "real", real_size, light_size, light_out, stages)
    written = write_summary(out, light_size, budget, real_size, stages.seconds)
    console.print(
        f"Done in {(time.monotonic() - began) / 60:.1f} minutes. The tables are in {written}, the "
        f"real part's figures in {out / 'real' / 'report' / 'index.html'}.",
        highlight=False,
    )


def _light(out: Path, size: light.size.LightSize, workers: int, console: Console) -> None:
    run_light(out, size, workers, console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="folder for all files")
    parser.add_argument("--workers", type=int, default=default_workers(), help="processes")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the smallest: it runs through, and learns nothing",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
