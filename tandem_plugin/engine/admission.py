"""The door of a tandem engine: what a request says about tandem is checked before it enters."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from tandem_plugin.engine.vocabularies import engine_rules, shared_vocabulary
from tandem_plugin.errors import RequestError
from tandem_plugin.request import TandemRequest
from tandem_plugin.seeds import sample_seed

__all__ = ["check_prompt", "check_request", "sample_params", "tandem_argument"]


def tandem_argument(params: Any) -> object:
    """What a request says about tandem in ``SamplingParams.extra_args``; None if nothing."""
    return (params.extra_args or {}).get("tandem")


def check_request(vllm_config: Any, params: Any) -> None:
    """Raise :class:`RequestError` for a request that this engine cannot honour."""
    if not hasattr(params, "extra_args"):
        return
    engine_rules(vllm_config).for_request(tandem_argument(params))


def check_prompt(vllm_config: Any, token_ids: Sequence[int] | None) -> None:
    """Raise :class:`RequestError` for a prompt with token ids that not both models have."""
    shared = shared_vocabulary(vllm_config)
    if token_ids and max(token_ids) >= shared:
        raise RequestError(
            f"The prompt holds token id {max(token_ids)}, but senior and junior share only the ids "
            f"below {shared}."
        )


def sample_params(params: Any, index: int) -> Any:
    """The parameters of sample ``index`` of a request with n > 1: its tandem seed is its own.

    Returns ``params`` itself where it does not ask for tandem.
    """
    request = TandemRequest.parse(tandem_argument(params))
    if request is None:
        return params
    request = replace(request, seed=sample_seed(request.seed, index))
    own = copy(params)
    own.extra_args = {**params.extra_args, "tandem": request.to_wire()}
    return own
