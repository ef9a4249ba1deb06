"""A pool of juniors: which junior a prompt uses, and what an engine reports about its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tandem_plugin.config import TandemConfig

__all__ = ["counters_of_engine", "counters_of_engines", "junior_of_prompt", "take_junior"]


def junior_of_prompt(juniors: Sequence[str], step: int, place: int) -> str | None:
    """The junior that all responses to a prompt are written with; None if none is configured.

    A group therefore compares what the senior wrote, not with whom. Prompts use the juniors in turn
    by their position in the step (place), starting with another one each step.
    """
    return juniors[(step + place) % len(juniors)] if juniors else None


JUNIOR = "junior"
"""The key of the junior's name in an engine's report."""


def take_junior(engine: Any, rank: int | None) -> None:
    """Assign the junior of its rank to one of a run's engines.

    engine: its arguments, whose ``additional_config``, a mapping or JSON with ``tandem`` in it,
    changes. Raises :class:`ConfigError` for invalid settings.
    """
    given = engine["additional_config"]
    given = json.loads(given) if isinstance(given, str) else given
    config = TandemConfig.from_mapping(given["tandem"])
    engine["additional_config"] = {**given, "tandem": config.of_engine(rank).settings()}


async def counters_of_engine(engine: Any, what: str) -> dict[str, Any]:
    """The counters of the first worker of an asynchronous engine, and its junior (:data:`JUNIOR`).

    what: one of the names for ``collective_rpc`` in :mod:`tandem_plugin.engine.wire_names`.
    """
    workers = await engine.collective_rpc(what)
    return {**workers[0], JUNIOR: junior_of(engine.vllm_config)}


def junior_of(vllm_config: Any) -> str:
    """The name of a tandem engine's junior."""
    return str(vllm_config.additional_config["tandem"]["junior_name"])


def counters_of_engines(engines: Sequence[Any], what: str) -> list[dict[str, Any]]:
    """The same for each engine, through ``tandem_counters`` of their Ray actors."""
    if not engines:
        return []
    import ray

    counters: list[dict[str, Any]] = ray.get([one.tandem_counters.remote(what) for one in engines])
    return counters
