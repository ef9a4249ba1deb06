"""Test hook: the adapter's requests were made for other rules than the engine's."""

from typing import Any

from tandem_verl.agent_loop import Trajectory

_request = Trajectory.request


def _foreign(self: Trajectory, *asked: Any) -> Any:
    request = _request(self, *asked)
    return request if isinstance(request, str) else {**request, "fingerprint": "0" * 16}


Trajectory.request = _foreign  # type: ignore[method-assign]
