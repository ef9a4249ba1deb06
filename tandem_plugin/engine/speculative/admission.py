"""What a request cannot ask of a speculative engine: refused at the door, never ignored."""

from __future__ import annotations

from typing import Any

import torch

from tandem_plugin.errors import RequestError

__all__ = ["check_sampling"]

_UNDRAFTED: dict[str, Any] = {
    "bad_words": None,
    "structured_outputs": None,
    "thinking_token_budget": None,
}
"""Parameters that follow the tokens so far, each with the value that asks for nothing."""

_PENALTIES: dict[str, Any] = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}


def check_sampling(params: Any, *, in_tandem: bool, head_dtype: torch.dtype) -> None:
    """Raise :class:`RequestError` for sampling parameters that drafting cannot honour exactly.

    in_tandem: whether the request is; the senior alone is checked by vLLM's own rules. head_dtype:
    the engine's, in which vLLM keeps what drafts were sampled from. Beside these, vLLM itself
    refuses ``min_p`` and ``logit_bias`` where tokens are drafted.
    """
    if getattr(params, "logprob_token_ids", None):
        raise RequestError("TP023")
    if not in_tandem:
        return
    for name, nothing in _PENALTIES.items():
        asked = getattr(params, name, nothing)
        if asked != nothing and head_dtype != torch.float32:
            raise RequestError("TP024", name=name, asked=asked, head_dtype=head_dtype)
    for name, nothing in _UNDRAFTED.items():
        asked = getattr(params, name, nothing)
        if asked != nothing and asked != []:
            raise RequestError("TP025", name=name, asked=asked)
