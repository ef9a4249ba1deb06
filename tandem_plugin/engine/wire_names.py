"""Names that cross processes: written in one process of vLLM and looked up in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "Tandem"
"""Prefix of an architecture's name in tandem: ``TandemQwen3ForCausalLM``."""

SPECULATIVE_PREFIX = PREFIX + "Speculative"
"""The same in the speculative mode."""

COMPOSITE = "tandem_plugin.engine.composite"
"""The module that has the class of each architecture, for both modes, under its name."""

AUTHORS_PROCESSOR = "tandem_plugin.engine.runners.v1.processor:AuthorsLogitsProcessor"
"""The binding to Model Runner V1: vLLM loads it in the worker."""

RPC_DRAFT_STATS = "tandem_draft_stats"
"""The ``collective_rpc`` method for a speculative engine's draft counters."""

RPC_MEASURES = "tandem_measures"
"""The ``collective_rpc`` method for the sums that an engine's workers measured."""

RPC_TOKEN_SCORES = "tandem_token_scores"
"""The same for the scores of the tokens of requests, by request name."""

RPC_ENDS = "tandem_ends"
"""The same for the junior's token ids that end a response besides the senior's."""

TOKEN_LOG_NAME = "tandem_token_log"
"""In a request's ``extra_args``: the name under which its tokens' scores are kept."""


def without_prefix(architecture: str) -> str:
    """An architecture's plain name, from that of its tandem form as well."""
    return architecture.removeprefix(SPECULATIVE_PREFIX).removeprefix(PREFIX)


def asks_for_tandem(additional_config: Any) -> bool:
    """Whether an engine's ``additional_config`` enables tandem.

    vLLM accepts any object there, and other plugins may use it too.
    """
    return isinstance(additional_config, Mapping) and "tandem" in additional_config
