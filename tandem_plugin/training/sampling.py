"""Sampling options that change the distribution from the one that the trainer computes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tandem_plugin.errors import shown

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "temperature": (),  # another than the trainer's
    "top_k": (0, -1),
    "top_p": (1,),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "min_tokens": (0,),
    "thinking_token_budget": (),
    "logit_bias": ({},),
    "allowed_token_ids": (),
    "bad_words": ([], ()),
    "structured_outputs": (),
    "trace_decode_token_ids": (),
    "logits_processors": ([], ()),
}
"""The options, by vLLM's names, and the values other than None with which each has no effect."""


def changed_sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a run's options that change the distribution.

    options: by the trainer's names, which end with vLLM's after a dot: ``rollout.top_k``.
    """
    return {
        name: value
        for name, value in options.items()
        if value is not None and value not in NEUTRAL.get(name.rpartition(".")[2], (value,))
    }


def warn_of_changed_sampling(options: Mapping[str, Any]) -> None:
    """Write one warning that names these options to the log, if they change the distribution."""
    changed = changed_sampling(options)
    if not changed:
        return
    listed = ", ".join(f"{name}={shown(value)}" for name, value in changed.items())
    print(
        f"WARNING: {listed}: tokens are sampled from another distribution than the one whose log "
        "probabilities the trainer computes. Importance ratios, KL terms and gradients are biased: "
        "without an update, the ratios' mean was 2.15 with top_k=3 and 0.69 with top_p=0.5, "
        "instead of 1. Only the trainer's own temperature is part of both.",
        file=sys.stderr,
        flush=True,
    )
