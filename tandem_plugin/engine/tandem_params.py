"""What a user of Python gives as ``tandem=...``, resolved into one request a prompt."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tandem_plugin.errors import RequestError
from tandem_plugin.request import OFF
from tandem_plugin.rules import ResolvedRequest, TandemRules
from tandem_plugin.seeds import derive_seed

__all__ = ["SeedSource", "TandemParams", "resolve_requests"]

TandemParams: TypeAlias = int | str | Mapping[str, Any] | None
"""A tandem seed; a mapping such as ``{"seed": 7, "p": 0.3}``; ``"off"``; None for the defaults."""


class SeedSource:
    """Seeds for requests that bring none: fresh ones, or those that follow from a seed.

    seed: the base of a sequence that is the same in every run; None draws from the system.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._given = 0

    def next(self) -> int:
        """A tandem seed that was not given before."""
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
    """What each of ``prompts`` prompts asks for; None where the senior answers alone.

    One value is for all prompts. Its seed is that of the first one, and the others get seeds
    derived from it and their place, so that prompts do not share their draws. Raises
    :class:`RequestError` for parameters that the rules cannot honour or for another number of them.
    """
    if isinstance(tandem_params, Sequence) and not isinstance(tandem_params, str):
        if len(tandem_params) != prompts:
            raise RequestError("TP026", params=len(tandem_params), prompts=prompts)
        return [_resolved(rules, one, 0, seeds) for one in tandem_params]
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
        return rules.for_request(OFF)
    seeded = (
        dict(tandem_params) if "seed" in tandem_params else {**tandem_params, "seed": seeds.next()}
    )
    resolved = rules.for_request(seeded)
    if resolved is None or place == 0 or "seed" not in tandem_params:
        return resolved
    return replace(resolved, seed=derive_seed(resolved.seed, "prompt", place))
