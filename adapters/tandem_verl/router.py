"""verl's request router, for a run with a pool of juniors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from tandem_plugin.errors import EngineError

__all__ = ["RouterByJunior"]


class RouterByJunior(GlobalRequestLoadBalancer):  # type: ignore[misc]
    """Sends a request for a junior to an engine with that junior, using verl's routing among these.

    An interrupted response therefore continues with its junior, whichever engines came and went.
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
        everyone = self._inflight_requests
        asked = ((sampling_params or {}).get("extra_args") or {}).get("tandem")
        junior = asked.get("junior") if isinstance(asked, Mapping) else None
        own = [one for one in everyone if junior in (None, self._juniors[one])]
        if everyone and not own:
            raise EngineError("TP430", junior=junior)
        try:
            self._inflight_requests = {one: everyone[one] for one in own}  # for verl's choice
            return super().acquire_server(request_id)  # type: ignore[no-any-return]
        finally:
            self._inflight_requests = everyone | self._inflight_requests
