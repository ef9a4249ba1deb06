"""The generate calls of one trajectory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.errors import RequestError
from tandem_plugin.patching.wrapping import Delegate
from tandem_plugin.request import OFF
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.seeds import derive_seed, sample_seed
from tandem_plugin.training.authorship_wire import ResponseAuthorship, ranges_of
from tandem_plugin.training.response_authorship import Call, author_response


@dataclass(frozen=True, slots=True, eq=False)
class StartedCall:
    """A generate call on its way: its rule, its tandem seed, and a copy of what it was sent."""

    rule: Rule | None
    seed: int
    prompt_ids: NDArray[np.int64]
    _calls: list[Call]

    @property
    def request(self) -> dict[str, Any] | str:
        """The call's ``SamplingParams.extra_args["tandem"]``.

        The prompt's length lets a client resume an interrupted response, whose prompt then contains
        the response so far.
        """
        if self.rule is None:
            return OFF
        return self.rule.request(self.seed, len(self.prompt_ids)).to_wire()

    def returned(self, token_ids: Sequence[int], index: int = 0) -> None:
        """Record the returned tokens; index: of the sample, for a call with ``n`` > 1."""
        if self.rule is not None:
            seed = sample_seed(self.seed, index)
            own = np.array(token_ids, dtype=np.int64)
            self._calls.append(Call(seed, self.prompt_ids, own))


@dataclass(slots=True)
class Trajectory:
    """The generate calls of one agent loop.

    rule: None if the senior answers alone. seed_of_call: the tandem seed of each call, by its
    number from 0. junior: its name in the run's settings.
    """

    rule: Rule | None
    seed_of_call: Callable[[int], int]
    junior: str | None = None
    calls: list[Call] = field(default_factory=list)
    """The calls that have returned."""
    started: int = 0

    @classmethod
    def begin(
        cls,
        rules: TandemRules,
        place: Sequence[int | str],
        step: int,
        by_team: bool = True,
    ) -> Trajectory:
        """A response of a run with these rules.

        place: identifies the response in every run of one configuration; the tandem seeds are
        derived from it and the run's seed. step: the trainer's. by_team: whether the junior writes.
        """
        return cls(
            rules.for_step(step) if by_team else None,
            partial(derive_seed, rules.config.seed, *place),
            rules.config.junior,
        )

    def call(self, prompt_ids: ArrayLike, asked: Any = None) -> StartedCall:
        """The next call, of this prompt, which is copied.

        asked: the loop's own ``extra_args["tandem"]``, which raises :class:`RequestError`.
        """
        if asked is not None:
            raise RequestError("agent-loop-sets-tandem", asked=asked)
        number, self.started = self.started, self.started + 1
        prompt = np.array(prompt_ids, dtype=np.int64)
        seed = self.seed_of_call(number)
        return StartedCall(self.rule, seed, prompt, self.calls)

    def facts(
        self, prompt_ids: ArrayLike, response_ids: ArrayLike, response_mask: ArrayLike
    ) -> ResponseAuthorship | None:
        """The authorship of a response; None if the senior answered alone.

        response_mask: the tokens that the agent loop would train. Raises like
        :func:`~tandem_plugin.training.response_authorship.author_response`.
        """
        if self.rule is None:
            return None
        authored = author_response(self.rule, self.calls, prompt_ids, response_ids, response_mask)
        return ResponseAuthorship(
            fingerprint=self.rule.fingerprint,
            settings=self.rule.settings(),
            seed=authored.segments[0][0] if authored.segments else self.seed_of_call(0),
            length=len(authored.senior),
            segments=authored.segments,
            senior=tuple(ranges_of(authored.senior)),
            unknown=tuple(ranges_of(authored.unknown)),
            trained=tuple(ranges_of(np.array(response_mask).astype(np.bool_))),
            junior=self.junior,
        )


class ClientDelegate(Delegate):
    """Wraps a trainer's client in one trajectory: a subclass adds tandem to every call."""

    def __init__(self, client: Any, trajectory: Trajectory) -> None:
        super().__init__(client)
        self._trajectory = trajectory
