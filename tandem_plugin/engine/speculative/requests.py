"""What a request cannot ask of a speculative engine: refused at the door, never ignored."""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import RequestError

__all__ = ["check_sampling"]

_UNDRAFTED = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "bad_words": None,
    "structured_outputs": None,
    "thinking_token_budget": None,
}
"""Parameters that follow the tokens so far, each with the value that asks for nothing."""

_INSTEAD = "Leave it out, or use an engine with mode='lockstep'."


def check_sampling(params: Any, *, in_tandem: bool) -> None:
    """Raise :class:`RequestError` for sampling parameters that drafting cannot honour exactly.

    in_tandem: whether the request is; the senior alone is checked by vLLM's own rules. Beside
    these, vLLM itself refuses ``min_p`` and ``logit_bias`` where tokens are drafted.
    """
    if getattr(params, "logprob_token_ids", None):
        raise RequestError(
            "logprob_token_ids is not supported with mode='speculative': vLLM's rejection sampler "
            f"leaves them out. {_INSTEAD}"
        )
    if not in_tandem:
        return
    for name, nothing in _UNDRAFTED.items():
        asked = getattr(params, name, nothing)
        if asked != nothing and asked is not None and asked != []:
            raise RequestError(
                f"{name}={asked!r} is not supported in tandem with mode='speculative': it follows "
                f"the tokens written so far, and drafts are made without it. {_INSTEAD}"
            )
