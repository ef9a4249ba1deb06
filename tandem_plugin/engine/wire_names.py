"""Names that cross processes: what vLLM is told in one of them and looks up in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "AUTHORS_PROCESSOR",
    "COMPOSITE",
    "PREFIX",
    "RPC_DRAFT_STATS",
    "RPC_MEASURES",
    "RPC_TOKEN_SCORES",
    "SPECULATIVE_PREFIX",
    "TOKEN_LOG_NAME",
    "asks_for_tandem",
    "without_prefix",
]


PREFIX = "Tandem"
"""Begins the name of an architecture in tandem: ``TandemQwen3ForCausalLM``."""

SPECULATIVE_PREFIX = PREFIX + "Speculative"
"""The same in the speculative mode."""

COMPOSITE = "tandem_plugin.engine.composite"
"""The module that has each architecture's class, of both modes, under its name."""

AUTHORS_PROCESSOR = "tandem_plugin.engine.runners.v1.processor:AuthorsLogitsProcessor"
"""The binding to Model Runner V1: vLLM loads it in the worker."""

RPC_DRAFT_STATS = "tandem_draft_stats"
"""What ``collective_rpc`` asks the workers of a speculative engine for: their counters."""

RPC_MEASURES = "tandem_measures"
"""What ``collective_rpc`` asks the workers of an engine for: what they have measured."""

RPC_TOKEN_SCORES = "tandem_token_scores"
"""The same for the tokens of requests, by the names that these were given."""

TOKEN_LOG_NAME = "tandem_token_log"
"""In a request's ``extra_args``: the name under which its tokens' scores are kept."""


def without_prefix(architecture: str) -> str:
    """An architecture's plain name, from that of its tandem form as well."""
    return architecture.removeprefix(SPECULATIVE_PREFIX).removeprefix(PREFIX)


def asks_for_tandem(additional_config: Any) -> bool:
    """Whether an engine's ``additional_config`` asks for tandem.

    vLLM takes any object there, and other plugins put theirs.
    """
    return isinstance(additional_config, Mapping) and "tandem" in additional_config
