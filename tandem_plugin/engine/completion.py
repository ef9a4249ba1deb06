"""One call of the engine: its tandem parameters, and its outputs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from vllm import SamplingParams
from vllm.outputs import CompletionOutput

from tandem_plugin.authorship import Authorship, Span
from tandem_plugin.engine.token_scores import sample_name
from tandem_plugin.engine.wire import TOKEN_LOG_NAME
from tandem_plugin.errors import RequestError
from tandem_plugin.request import OFF
from tandem_plugin.rules import ResolvedRequest, TandemRules
from tandem_plugin.seeds import derive_seed, sample_seed
from tandem_plugin.spans import SENIOR, AuthoredText, TokenBytes, authored_text, coloured, writers

TandemParams: TypeAlias = int | str | Mapping[str, Any] | None
"""A tandem seed; a mapping such as ``{"seed": 7, "p": 0.3}``; ``"off"``; None for the defaults."""


class SeedSource:
    """Seeds for requests without one: random, or derived from a base seed.

    seed: the base of a sequence that is the same in every run; None draws from the system.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._given = 0

    def next(self) -> int:
        """A tandem seed that has not been used before."""
        if self._seed is None:
            return secrets.randbits(63)
        self._given += 1
        return derive_seed(self._seed, "request", self._given - 1)


def resolve_requests(
    rules: TandemRules,
    tandem_params: TandemParams | Sequence[TandemParams],
    prompts: int,
    seeds: SeedSource,
) -> list[ResolvedRequest | None]:
    """The resolved request of each of ``prompts`` prompts; None if the senior answers alone.

    One value applies to all prompts: the first uses its seed as is, and the others get seeds
    derived from it and their position, so prompts do not share draws. Raises :class:`RequestError`
    for parameters that the rules cannot honour, or the wrong number of them.
    """
    if isinstance(tandem_params, Sequence) and not isinstance(tandem_params, str):
        if len(tandem_params) != prompts:
            raise RequestError(
                "prompt-params-count-differs", params=len(tandem_params), prompts=prompts
            )
        return [_resolved(rules, params, 0, seeds) for params in tandem_params]
    return [_resolved(rules, tandem_params, place, seeds) for place in range(prompts)]


def _resolved(
    rules: TandemRules, tandem_params: TandemParams, place: int, seeds: SeedSource
) -> ResolvedRequest | None:
    if tandem_params == OFF:
        return rules.for_request(OFF)
    if tandem_params is None:
        tandem_params = {}
    if not isinstance(tandem_params, Mapping):
        tandem_params = {"seed": tandem_params}
    if tandem_params.get("schedule") == OFF:
        return rules.for_request(tandem_params)
    seeded = (
        dict(tandem_params) if "seed" in tandem_params else {**tandem_params, "seed": seeds.next()}
    )
    resolved = rules.for_request(seeded)
    if resolved is None or place == 0 or "seed" not in tandem_params:
        return resolved
    return replace(resolved, seed=derive_seed(resolved.seed, "prompt", place))


@dataclass(frozen=True, slots=True)
class SentRequest:
    """The resolved tandem parameters of a request."""

    resolved: ResolvedRequest | None
    """None if the senior answers alone."""
    name: str | None
    """The name under which its tokens' scores are kept; None if they are not kept."""
    samples: int

    @property
    def names(self) -> list[str]:
        """Of each of its samples."""
        if self.name is None:
            return []
        if self.samples == 1:
            return [self.name]
        return [sample_name(self.name, index) for index in range(self.samples)]


NOTHING = SentRequest(None, None, 1)
"""For an unknown request."""


def with_tandem(params: SamplingParams, request: SentRequest) -> SamplingParams:
    """Sampling parameters that carry the request to the engine."""
    wire = "off" if request.resolved is None else request.resolved.request().to_wire()
    params = params.clone()
    params.extra_args = {**(params.extra_args or {}), "tandem": wire}
    if request.name is not None:
        params.extra_args[TOKEN_LOG_NAME] = request.name
    return params


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
        """The response's spans in order, each with its text."""
        if self.authorship is None:
            return None
        pairs = zip(self.authorship.spans, self.authored.span_texts, strict=True)
        return tuple(replace(span, text=text) for span, text in pairs)

    def _repr_html_(self) -> str:
        """The response in its authors' colours, as a notebook shows it."""
        return coloured(self.authored)


def signed_completion(
    completion: CompletionOutput,
    prompt_ids: Sequence[int],
    request: SentRequest,
    token_bytes: TokenBytes,
    scores: Mapping[str, NDArray[np.float32]],
) -> TandemCompletion:
    """An output with its authorship, by replay of its request.

    prompt_ids: the tokens that were sent as the prompt. scores: by the name of a sample, float32
    ``[length, 3]``: senior's log p, junior's log p, and overlap of each token.
    """
    values = {field.name: getattr(completion, field.name) for field in fields(completion)}
    ids = list(completion.token_ids)
    if request.resolved is None:
        authored = authored_text(ids, [SENIOR] * len(ids), token_bytes)
        return TandemCompletion(**values, authored=authored)
    rule, seed = request.resolved.rule, sample_seed(request.resolved.seed, completion.index)
    authorship = rule.replay_rest(request.resolved.prefix(prompt_ids), ids, seed)
    columns = scores[request.names[completion.index]].T if request.names else [None] * 3
    return TandemCompletion(
        **values,
        authorship=authorship,
        tandem_seed=seed,
        tandem_fingerprint=rule.fingerprint,
        tandem_schedule=rule.settings(),
        senior_logprobs=columns[0],
        junior_logprobs=columns[1],
        overlaps=columns[2],
        authored=authored_text(ids, writers(authorship.tolist(), rule.settings()), token_bytes),
    )
