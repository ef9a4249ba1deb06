"""The study: the paper's claims in its own setting, a senior and its frozen self, on toy models.

Every method from every taught model, each in a small process of its own, without a GPU::

    python examples/study/run.py [--out runs/study] [--quick]

Stop it as you like: the same command resumes, and repeats no training.
"""

from __future__ import annotations

import sys

from light.judging import power_lines
from light.page import write_page
from light.runs import QUICK, WHOLE, run_one, teachings, trainings
from light.study import run_study, study_parser


def main() -> int:
    """Runs it, and says first what it can tell; returns the exit status."""
    parser = study_parser(__doc__, "runs/study")
    parser.add_argument("--quick", action="store_true", help="the smallest: nothing is learnt")
    options = parser.parse_args()
    out, size = options.out.resolve(), QUICK if options.quick else WHOLE
    print("\n".join(power_lines(size)), flush=True)
    status = run_study(out, size, (teachings(size), trainings(size)), run_one, options.workers)
    if status == 0:
        print(f"The tables are in {write_page(out, size)}.")
    return status


if __name__ == "__main__":
    sys.exit(main())
