"""One trajectory: what its generate calls ask for, and who wrote the responses made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.patching.standing import StandsBefore
from tandem_plugin.request import OFF
from tandem_plugin.rules import Rule
from tandem_plugin.seeds import sample_seed
from tandem_plugin.training.authored import Call, author_response
from tandem_plugin.training.facts import Facts
from tandem_plugin.training.ranges import ranges_of

__all__ = ["StandsBeforeClient", "StartedCall", "Trajectory"]


@dataclass(frozen=True, slots=True, eq=False)
class StartedCall:
    """A generate call on its way: its rule, its tandem seed, and a copy of what it was sent."""

    rule: Rule | None
    seed: int
    prompt_ids: NDArray[np.int64]
    _calls: list[Call]

    @property
    def request(self) -> dict[str, Any] | str:
        """What the call says to the engine, as ``SamplingParams.extra_args["tandem"]``.

        It names the prompt's length, so that a client may go on with a response that was
        interrupted: by a call that says the same, and has the response so far in its prompt.
        """
        if self.rule is None:
            return OFF
        return self.rule.request(self.seed, len(self.prompt_ids)).to_wire()

    def returned(self, token_ids: ArrayLike, index: int = 0) -> None:
        """Keep what came back. index: the sample's, of a call for several (``n`` > 1)."""
        if self.rule is not None:
            seed = sample_seed(self.seed, index)
            self._calls.append(Call(self.rule, seed, self.prompt_ids, token_ids))


@dataclass(slots=True)
class Trajectory:
    """The generate calls of one agent loop.

    rule: of every call; None where the senior answers alone. seed_of_call: the tandem seed of each
    call, by its number from 0. An adapter stands before the trainer's client, gives each call the
    request of :meth:`call`, and hands what it returned back to it.
    """

    rule: Rule | None
    seed_of_call: Callable[[int], int]
    calls: list[Call] = field(default_factory=list)
    """Those that have returned."""
    started: int = 0

    def call(self, prompt_ids: ArrayLike) -> StartedCall:
        """The next call, of this prompt; it is copied, since a loop may go on with its list."""
        number, self.started = self.started, self.started + 1
        prompt = np.array(prompt_ids, dtype=np.int64)
        return StartedCall(self.rule, self.seed_of_call(number), prompt, self.calls)

    def facts(
        self, prompt_ids: ArrayLike, response_ids: ArrayLike, response_mask: ArrayLike
    ) -> Facts | None:
        """What a response says of its authorship; its ``mask`` is what is left to train.

        response_mask: of the tokens that the agent loop would train. None where the senior
        answered alone. Raises :class:`AuthorshipError` where the calls do not explain the response
        (:func:`~tandem_plugin.training.authored.author_response`).
        """
        if self.rule is None:
            return None
        authored = author_response(self.calls, prompt_ids, response_ids, response_mask)
        return Facts(
            fingerprint=self.rule.fingerprint,
            settings=self.rule.settings(),
            seed=authored.segments[0][0] if authored.segments else self.seed_of_call(0),
            length=len(authored.senior),
            segments=authored.segments,
            senior=tuple(ranges_of(authored.senior)),
            trained=tuple(ranges_of(np.array(response_mask).astype(np.bool_))),
        )


class StandsBeforeClient(StandsBefore):
    """Stands before a trainer's client in one trajectory: a subclass adds tandem to every call."""

    def __init__(self, client: Any, trajectory: Trajectory) -> None:
        super().__init__(client)
        self._trajectory = trajectory
