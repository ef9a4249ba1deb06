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

_INSTEAD = "Leave it out, or use an engine with mode='lockstep'."


def check_sampling(params: Any, *, in_tandem: bool, head_dtype: torch.dtype) -> None:
    """Raise :class:`RequestError` for sampling parameters that drafting cannot honour exactly.

    in_tandem: whether the request is; the senior alone is checked by vLLM's own rules. head_dtype:
    the engine's, in which vLLM keeps what drafts were sampled from. Beside these, vLLM itself
    refuses ``min_p`` and ``logit_bias`` where tokens are drafted.
    """
    if getattr(params, "logprob_token_ids", None):
        raise RequestError(
            "logprob_token_ids is not supported with mode='speculative': vLLM's rejection sampler "
            f"leaves them out. {_INSTEAD}"
        )
    if not in_tandem:
        return
    for name, nothing in _PENALTIES.items():
        asked = getattr(params, name, nothing)
        if asked != nothing and head_dtype != torch.float32:
            raise RequestError(
                f"{name}={asked!r} is not supported in tandem with mode='speculative' and an "
                f"output layer in {head_dtype}: vLLM keeps what drafts were sampled from in that "
                "type, which would round what a penalty makes of it. Start the engine with "
                f"hf_overrides={{'head_dtype': 'float32'}}. {_INSTEAD}"
            )
    for name, nothing in _UNDRAFTED.items():
        asked = getattr(params, name, nothing)
        if asked != nothing and asked != []:
            raise RequestError(
                f"{name}={asked!r} is not supported in tandem with mode='speculative': it follows "
                f"the tokens written so far, and drafts are made without it. {_INSTEAD}"
            )
