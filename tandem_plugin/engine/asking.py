"""What a user of Python asks of a tandem engine, turned into one wire form a prompt."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tandem_plugin.errors import RequestError
from tandem_plugin.request import OFF
from tandem_plugin.rules import Asked, TandemRules
from tandem_plugin.seeds import derive_seed

__all__ = ["Asking", "SeedSource", "ask"]

Asking: TypeAlias = int | str | Mapping[str, Any] | None
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


def ask(
    rules: TandemRules, asking: Asking | Sequence[Asking], prompts: int, seeds: SeedSource
) -> list[Asked | None]:
    """What each of ``prompts`` prompts asks for; None where the senior answers alone.

    One asking is for all prompts. Its seed is that of the first one, and the others get seeds
    derived from it and their place, so that prompts do not share their draws. Raises
    :class:`RequestError` for an asking that the rules cannot honour or for another number of them.
    """
    if isinstance(asking, Sequence) and not isinstance(asking, str):
        if len(asking) != prompts:
            raise RequestError(
                f"{len(asking)} tandem requests came with {prompts} prompts: give one for all, or "
                "one each."
            )
        return [_asked(rules, one, 0, seeds) for one in asking]
    return [_asked(rules, asking, place, seeds) for place in range(prompts)]


def _asked(rules: TandemRules, asking: Asking, place: int, seeds: SeedSource) -> Asked | None:
    if asking == OFF:
        return rules.for_request(OFF)
    if asking is None:
        asking = {}
    if not isinstance(asking, Mapping):
        asking = {"seed": asking}
    if asking.get("schedule") == OFF:
        return rules.for_request(OFF)
    seeded = dict(asking) if "seed" in asking else {**asking, "seed": seeds.next()}
    asked = rules.for_request(seeded)
    if asked is None or place == 0 or "seed" not in asking:
        return asked
    return replace(asked, seed=derive_seed(asked.seed, "prompt", place))
