"""What a trainer's engines tell of their counters: on the way out of each, and of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["told_by", "told_by_all"]


async def told_by(engine: Any, what: str) -> dict[str, Any]:
    """What the first worker of an asynchronous engine of vLLM's tells when it is asked for it.

    what: one of the names for ``collective_rpc`` in :mod:`tandem_plugin.engine.names`.
    """
    workers = await engine.collective_rpc(what)
    return dict(workers[0])


def told_by_all(engines: Sequence[Any], what: str) -> list[dict[str, Any]]:
    """The same of each engine, from the handles of the Ray actors that hold them.

    Their method ``tandem_told`` returns :func:`told_by` of their engine.
    """
    import ray

    told: list[dict[str, Any]] = ray.get([one.tandem_told.remote(what) for one in engines])
    return told
