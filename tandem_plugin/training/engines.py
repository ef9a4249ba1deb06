"""What a trainer's engines are given, each its junior, and what they tell of their counters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tandem_plugin.config import TandemConfig

__all__ = ["JUNIOR", "additional_config", "junior_of", "told_by", "told_by_all"]

JUNIOR = "junior"
"""Under which name an engine's junior stands among what it tells."""


def additional_config(given: Any, rank: int | None) -> dict[str, Any]:
    """The ``additional_config`` of one of a run's engines, with the junior of its rank.

    given: the run's, a mapping or JSON with ``tandem`` in it. Raises :class:`ConfigError` for
    settings that are wrong.
    """
    given = json.loads(given) if isinstance(given, str) else given
    config = TandemConfig.from_mapping(given["tandem"])
    return {**given, "tandem": config.of_engine(rank).settings()}


async def told_by(engine: Any, what: str) -> dict[str, Any]:
    """What the first worker of an asynchronous engine of vLLM's tells when it is asked for it.

    Beside it stands the engine's junior, under :data:`JUNIOR`.

    what: one of the names for ``collective_rpc`` in :mod:`tandem_plugin.engine.names`.
    """
    workers = await engine.collective_rpc(what)
    return {**workers[0], JUNIOR: junior_of(engine.vllm_config)}


def junior_of(vllm_config: Any) -> str:
    """What a tandem engine's junior is called."""
    return str(vllm_config.additional_config["tandem"]["junior_name"])


def told_by_all(engines: Sequence[Any], what: str) -> list[dict[str, Any]]:
    """The same of each engine, from the handles of the Ray actors that hold them.

    Their method ``tandem_told`` returns :func:`told_by` of their engine.
    """
    import ray

    told: list[dict[str, Any]] = ray.get([one.tandem_told.remote(what) for one in engines])
    return told
