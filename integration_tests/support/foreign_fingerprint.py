"""Test hook: the adapter's requests were made for other rules than the engine's."""

from typing import Any

from tandem_plugin.training.trajectory import StartedCall

_request = StartedCall.request.fget  # type: ignore[attr-defined]


def _foreign(self: StartedCall) -> Any:
    request = _request(self)
    return request if isinstance(request, str) else {**request, "fingerprint": "0" * 16}


StartedCall.request = property(_foreign)  # type: ignore[assignment, method-assign]
