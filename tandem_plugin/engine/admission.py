"""The door of a tandem engine: what a request says about tandem is checked before it enters."""

from __future__ import annotations

from typing import Any

from tandem_plugin.engine.vocabularies import engine_rules
from tandem_plugin.errors import RequestError

__all__ = ["check_request", "tandem_argument"]


def tandem_argument(params: Any) -> object:
    """What a request says about tandem in ``SamplingParams.extra_args``; None if nothing."""
    return (params.extra_args or {}).get("tandem")


def check_request(vllm_config: Any, params: Any) -> None:
    """Raise :class:`RequestError` for a request that this engine cannot honour."""
    if not hasattr(params, "extra_args"):
        return
    chosen = engine_rules(vllm_config).for_request(tandem_argument(params))
    if chosen is not None and params.n > 1:
        raise RequestError(
            f"n={params.n} with one tandem seed would give every sample the same authors. Send one "
            "request a sample, each with its own seed."
        )
