"""What a request cannot ask of a speculative engine: refused at the door, never ignored."""

from __future__ import annotations

from typing import Any

from tandem_plugin.errors import RequestError

__all__ = ["check_sampling"]

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
    for name, asked in _changes_values(params).items():
        if asked:
            raise RequestError(
                f"{name}={asked!r} is not supported in tandem with mode='speculative': it follows "
                f"the tokens written so far, and drafts are made without it. {_INSTEAD}"
            )


def _changes_values(params: Any) -> dict[str, Any]:
    """Parameters beyond temperature and masks that need no history, where they are set."""
    repetition = params.repetition_penalty
    return {
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": repetition if repetition != 1.0 else None,
        "bad_words": params.bad_words,
        "structured_outputs": params.structured_outputs,
        "thinking_token_budget": getattr(params, "thinking_token_budget", None),
    }
