"""What requests of ``TandemLLM`` asked for, from when they enter until their outputs are signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from vllm import RequestOutput, SamplingParams
from vllm.outputs import CompletionOutput

from tandem_plugin.engine.completion import Signature
from tandem_plugin.engine.measures.token_scores import sample_name
from tandem_plugin.engine.names import TOKEN_LOG_NAME
from tandem_plugin.rules import ResolvedRequest
from tandem_plugin.seeds import sample_seed

__all__ = ["NOTHING", "Asked", "signature_of", "with_tandem"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asked for."""

    resolved: ResolvedRequest | None
    """None where the senior answers alone."""
    name: str | None
    """Under which the scores of its tokens are kept; None where nobody keeps them."""
    samples: int

    @property
    def names(self) -> list[str]:
        """Of each of its samples."""
        if self.name is None:
            return []
        if self.samples == 1:
            return [self.name]
        return [sample_name(self.name, index) for index in range(self.samples)]


NOTHING = Asked(None, None, 1)
"""Of a request that is not known."""


def with_tandem(params: SamplingParams, asked: Asked) -> SamplingParams:
    """Sampling parameters that say so to the engine."""
    wire = "off" if asked.resolved is None else asked.resolved.request().to_wire()
    params = params.clone()
    params.extra_args = {**(params.extra_args or {}), "tandem": wire}
    if asked.name is not None:
        params.extra_args[TOKEN_LOG_NAME] = asked.name
    return params


def signature_of(
    output: RequestOutput,
    completion: CompletionOutput,
    asked: Asked,
    scores: Mapping[str, NDArray[np.float32]],
) -> Signature | None:
    """Who wrote a response; None for the senior alone."""
    if asked.resolved is None:
        return None
    rule, seed = asked.resolved.rule, sample_seed(asked.resolved.seed, completion.index)
    prefix = asked.resolved.prefix(output.prompt_token_ids)
    return Signature(
        rule.replay_rest(prefix, completion.token_ids, seed),
        seed,
        rule.fingerprint,
        rule.settings(),
        scores[asked.names[completion.index]] if asked.names else None,
    )
