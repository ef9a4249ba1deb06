"""Test hook: the authorship loses its last entry on its way from the agent loop to the trainer."""

from typing import Any

from tandem_plugin.training.authorship_wire import ResponseAuthorship

_to_wire = ResponseAuthorship.to_wire


def _cut(self: ResponseAuthorship) -> dict[str, Any]:
    wire = _to_wire(self)
    return {**wire, "length": wire["length"] - 1}


ResponseAuthorship.to_wire = _cut  # type: ignore[method-assign]
