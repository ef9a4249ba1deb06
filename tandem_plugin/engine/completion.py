"""One response of ``TandemLLM``: vLLM's own output, and who wrote what of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from vllm.outputs import CompletionOutput

from tandem_plugin.authorship import Authorship, Span
from tandem_plugin.spans import SENIOR, AuthoredText, TokenBytes, authored_text, coloured

__all__ = ["Signature", "TandemCompletion", "signed_completion"]


class Signature(NamedTuple):
    """What is known of who wrote a response."""

    authorship: Authorship
    seed: int
    fingerprint: str
    settings: dict[str, Any]
    scores: NDArray[np.float32] | None = None
    """float32 ``[length, 3]``: both models' log p of each token, the senior's first, and their
    overlap there."""


@dataclass(repr=False, eq=False)
class TandemCompletion(CompletionOutput):  # type: ignore[misc]  # vllm is untyped here
    """``vllm.CompletionOutput`` with its authors; all None for a request that is off."""

    authorship: Authorship | None = None
    tandem_seed: int | None = None
    tandem_fingerprint: str | None = None
    tandem_schedule: dict[str, Any] | None = None
    senior_logprobs: NDArray[np.float32] | None = None
    """The senior's log p of each token, whoever wrote it; None unless ``partner_logprobs`` is set.

    Of its own distribution: before temperature, nucleus, penalties and masks."""
    junior_logprobs: NDArray[np.float32] | None = None
    """The junior's, likewise."""
    overlaps: NDArray[np.float32] | None = None
    """The overlap of both distributions where each token was chosen, from 0 to 1."""
    authored: AuthoredText = field(default_factory=lambda: AuthoredText([], []))
    """The text of all tokens, special ones included, in the pieces that its authors wrote."""

    @property
    def spans(self) -> tuple[Span, ...] | None:
        """The response's spans, in order, each with what it says."""
        if self.authorship is None:
            return None
        pairs = zip(self.authorship.spans, self.authored.span_texts, strict=True)
        return tuple(replace(span, text=text) for span, text in pairs)

    def _repr_html_(self) -> str:
        """The response in its authors' colours, as a notebook shows it."""
        return coloured(self.authored)


def signed_completion(
    completion: CompletionOutput, token_bytes: TokenBytes, signature: Signature | None = None
) -> TandemCompletion:
    """An output with its signature; without one the senior wrote alone."""
    given = {one.name: getattr(completion, one.name) for one in fields(completion)}
    ids = list(completion.token_ids)
    if signature is None:
        return TandemCompletion(
            **given, authored=authored_text(ids, [SENIOR] * len(ids), token_bytes)
        )
    scores = [None] * 3 if signature.scores is None else list(signature.scores.T)
    return TandemCompletion(
        **given,
        authorship=signature.authorship,
        tandem_seed=signature.seed,
        tandem_fingerprint=signature.fingerprint,
        tandem_schedule=signature.settings,
        senior_logprobs=scores[0],
        junior_logprobs=scores[1],
        overlaps=scores[2],
        authored=authored_text(ids, signature.authorship.tolist(), token_bytes),
    )
