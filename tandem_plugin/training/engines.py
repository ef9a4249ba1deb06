"""What a trainer's engines are given, each its junior, and what they tell of their counters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError

__all__ = [
    "JUNIOR",
    "having_the_junior",
    "junior_of",
    "take_junior",
    "told_by",
    "told_by_all",
]

JUNIOR = "junior"
"""Under which name an engine's junior stands among what it tells."""


def take_junior(engine: Any, rank: int | None) -> None:
    """Let one of a run's engines have the junior of its rank.

    engine: its arguments, whose ``additional_config``, a mapping or JSON with ``tandem`` in it,
    changes. Raises :class:`ConfigError` for settings that are wrong.
    """
    given = engine["additional_config"]
    given = json.loads(given) if isinstance(given, str) else given
    config = TandemConfig.from_mapping(given["tandem"])
    engine["additional_config"] = {**given, "tandem": config.of_engine(rank).settings()}


def having_the_junior(params: Mapping[str, Any] | None, juniors: Mapping[str, str]) -> list[str]:
    """The engines that can write what a request with these sampling parameters asks for.

    juniors: that of each engine, by its name. A request that names no junior may go to any. Raises
    :class:`EngineError` where there are engines, and none has its junior.
    """
    asked = ((params or {}).get("extra_args") or {}).get("tandem")
    junior = asked.get("junior") if isinstance(asked, Mapping) else None
    own = [engine for engine, its in juniors.items() if junior in (None, its)]
    if juniors and not own:
        raise EngineError(
            f"No rollout engine with the junior {junior!r} is left to write a response, or to go "
            "on with one. Give the run as many engines that stay as it has juniors."
        )
    return own


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
