"""Prints the training step with the best validation accuracy, which is the checkpoint evaluated.

As in the paper (section 5.1), by each run's own validation: the team's, where the team answered.
The first step of several best ones::

    python examples/study/best_step.py train.log
"""

from __future__ import annotations

import sys
from pathlib import Path

from tandem_plugin.errors import TandemError
from tandem_plugin.evaluation.report.training_log import read_training_log


def best_step(log: Path) -> int:
    """The step; raises :class:`TandemError` for a log without validation after a step."""
    curves = read_training_log(log.parent.name, log).curves
    found = curves.get("team_accuracy") or curves.get("accuracy") or ()
    validated = [(accuracy, -step) for step, accuracy in found if step > 0]
    if not validated:
        raise TandemError(f"The log {str(log)!r} has no validation: train with trainer.test_freq.")
    return -max(validated)[1]


if __name__ == "__main__":
    try:
        print(best_step(Path(sys.argv[1])))
    except TandemError as error:
        sys.exit(str(error))
