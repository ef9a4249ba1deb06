"""The benchmarks of a CPU: ``make bench``, or ``python benchmarks/run.py --part lockstep``.

They make their models as they start and need no GPU. ``--list`` says what the parts are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import handoffs
import lockstep
import replay_throughput
import selection
from parts import Part, main

PARTS = [
    Part(module.__name__, purpose, module.measure, module.table)
    for module, purpose in (
        (lockstep, "lockstep decoding against the senior alone"),
        (selection, "the cost of schedule and author selection per step"),
        (handoffs, "steps under handoffs that the text decides, against the word schedule"),
        (replay_throughput, "replay on one core"),
    )
]

if __name__ == "__main__":
    script = Path(__file__).resolve()
    sys.exit(main(script, str(__doc__).splitlines()[0], PARTS, gpu=False))
