"""verl's router of requests, for a run with a pool of juniors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from tandem_plugin.errors import EngineError

__all__ = ["RouterByJunior"]


class RouterByJunior(GlobalRequestLoadBalancer):  # type: ignore[misc]
    """Sends a request for a junior to the engines that have it: verl's routing among these.

    So an interrupted response goes on with its junior, whichever engines came and went.
    """

    _inflight_requests: dict[str, int]

    def __init__(self, servers: dict[str, Any], _: Any = None) -> None:
        super().__init__({})
        self._juniors: dict[str, str] = {}
        self.add_servers(servers)

    def add_servers(self, servers: dict[str, Any]) -> None:
        juniors = ray.get([server.tandem_junior.remote() for server in servers.values()])
        self._juniors |= zip(servers, juniors, strict=True)
        super().add_servers(servers)

    def require_acquire_fields(self) -> list[str]:
        return ["sampling_params"]

    def acquire_server(self, request_id: str, sampling_params: Any = None) -> tuple[str, Any]:
        """A server for the request; raise :class:`EngineError` where none has its junior."""
        asked = ((sampling_params or {}).get("extra_args") or {}).get("tandem")
        junior = asked.get("junior") if isinstance(asked, Mapping) else None
        everyone = self._inflight_requests
        own = {one: n for one, n in everyone.items() if junior in (None, self._juniors[one])}
        if everyone and not own:
            raise EngineError(
                f"No rollout engine with the junior {junior!r} is left to write a response, or to "
                "go on with one. Give the run as many engines that stay as it has juniors."
            )
        try:
            self._inflight_requests = own  # from which verl's chooses
            return super().acquire_server(request_id)  # type: ignore[no-any-return]
        finally:
            self._inflight_requests = everyone | own
