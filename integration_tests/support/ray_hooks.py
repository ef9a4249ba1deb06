"""Functions that RAY_RUNTIME_ENV_HOOK may name: others than tandem's in that place."""

from __future__ import annotations

from typing import Any


def keep(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """What a platform does: it adds something of its own and keeps the rest."""
    print("another hook amends the runtime environment", flush=True)
    given = runtime_env or {}
    return {**given, "env_vars": {**given.get("env_vars", {}), "ANOTHER_HOOK": "1"}}


def lose(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """What a careless one does: it makes a runtime environment of its own."""
    return {"env_vars": (runtime_env or {}).get("env_vars", {})}
