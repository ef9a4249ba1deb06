"""Test hook: the authorship loses its last entry on its way from the agent loop to the trainer."""

from typing import Any

from tandem_plugin.training.authorship_wire import Facts

_to_wire = Facts.to_wire


def _cut(self: Facts) -> dict[str, Any]:
    wire = _to_wire(self)
    return {**wire, "length": wire["length"] - 1}


Facts.to_wire = _cut  # type: ignore[method-assign]
