"""The study: what training in tandem does to the senior as a partner, on toy models.

Every taught model is trained beside its frozen self by each method, without a GPU::

    python examples/study/run.py [--out runs/study] [--models 24] [--quick]

Stop it as you like: the same command resumes, and repeats no training. ``--page`` makes the page of
the models that are complete.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from light.page import power_lines, write_page, write_rows
from light.runs import QUICK, WHOLE, LightSize, Training, rows, run_one, trainings
from light.study import run_study, study_parser

MODELS = 24
"""As registered, at most."""


def keep_rows(out: Path, _: LightSize, runs: Sequence[Training]) -> None:
    """Collect the rows of all runs that are done."""
    write_rows(out / "rows.jsonl", rows(out, runs))


def main() -> int:
    """Runs it, and says first what it can tell; returns the exit status."""
    parser = study_parser(__doc__, "runs/study")
    parser.add_argument("--models", type=int, default=MODELS, help="taught, each by every method")
    parser.add_argument("--quick", action="store_true", help="the smallest: nothing is learnt")
    parser.add_argument("--page", action="store_true", help="train nothing: the page of what is")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    size = QUICK if options.quick else WHOLE
    units = trainings(size, options.models)
    status = 0
    if not options.page:
        print("\n".join(power_lines(options.models)), flush=True)
        status = run_study(out, size, units, run_one, options.workers, keep_rows)
    if status == 0:
        found = rows(out, [run for unit in units for run in unit])
        print(f"The tables are in {write_page(out, found)}.")
    return status


if __name__ == "__main__":
    sys.exit(main())
