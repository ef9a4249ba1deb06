"""Test hook: the authorship loses its last entry on its way from the agent loop to the trainer."""

from typing import Any

from tandem_plugin.training.fields import AUTHORSHIP
from tandem_verl.agent_loop import Trajectory

_narrow = Trajectory.narrow


def _cut(self: Trajectory, output: Any, calls: Any) -> None:
    _narrow(self, output, calls)
    if AUTHORSHIP in output.extra_fields:
        output.extra_fields[AUTHORSHIP] = output.extra_fields[AUTHORSHIP][:-1]


Trajectory.narrow = _cut  # type: ignore[method-assign]
