"""The study: the paper's claims in its own setting, a senior and its frozen self, on toy models.

Every method from every taught model, each in a small process of its own, without a GPU::

    python examples/study/run.py [--out runs/study] [--quick]

Stop it as you like: the same command resumes, and repeats no training.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from light.judging import power_lines
from light.notes import StudyError, check_settings
from light.page import write_page
from light.runs import run_trainings
from light.size import QUICK, WHOLE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it, and says first what it can tell; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="a folder")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--quick", action="store_true", help="the smallest: nothing is learnt")
    options = parser.parse_args(arguments)
    out, size = options.out.resolve(), QUICK if options.quick else WHOLE
    print("\n".join(power_lines(size)), flush=True)
    try:
        out.mkdir(parents=True, exist_ok=True)
        check_settings(out / "study.json", size.settings())
        run_trainings(out, size, options.workers, _say)
    except StudyError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; the same command resumes it.")
        return 130
    print(f"The tables are in {write_page(out, size)}.")
    return 0


def _say(done: int, total: int, name: str) -> None:
    print(f"{done} of {total}: {name}.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
