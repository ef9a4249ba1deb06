"""The life of a generate call: its place in a run, what it is sent, what it returned, what is kept.

A trajectory begins at a :class:`Place`, from which the tandem seed of each of its calls follows.
:meth:`Trajectory.call` gives a call the extras to send, :meth:`StartedCall.returned` records its
tokens, and :meth:`Trajectory.narrow` turns the responses that an agent loop made of them into what
a trainer gets: masks of the senior's tokens, log-probabilities, and the facts behind both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.errors import AuthorshipError, RequestError
from tandem_plugin.patching.wrapping import Delegate
from tandem_plugin.request import OFF
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.seeds import derive_seed, sample_seed
from tandem_plugin.training.authorship_wire import (
    AUTHORSHIP,
    ResponseAuthorship,
    bits_of,
    ranges_of,
)
from tandem_plugin.training.images import check_pictures
from tandem_plugin.training.response_authorship import Call, author_response
from tandem_plugin.training.rows import Row
from tandem_plugin.training.validation import Answerer, rule_of

Phase = Literal["training", "validation"]
"""What a response is generated for."""

EXTRA = "tandem"
"""The name of a call's request among the extra arguments of its sampling parameters."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a response stands in a run: the same in every run of one configuration, resumed or not.

    numbers: what identifies the response in its phase, such as the step, its prompt's position and
    the number of its sample. Random identifiers, and those that need not be unique, do not belong
    here.
    """

    phase: Phase
    numbers: tuple[int | str, ...]

    def seed(self, base: int, call: int) -> int:
        """The tandem seed of a call, by its number from 0; base: the run's seed."""
        return derive_seed(base, self.phase, *self.numbers, call)


@dataclass(frozen=True, slots=True, eq=False)
class StartedCall:
    """A generate call on its way: its rule, its tandem seed, and a copy of what it was sent."""

    rule: Rule | None
    seed: int
    prompt_ids: NDArray[np.int64]
    extra: Mapping[str, Any]
    """Extra arguments of the loop's own."""
    _calls: list[Call]

    @property
    def request(self) -> dict[str, Any] | str:
        """What the engine must know of the call.

        The prompt's length lets a client resume an interrupted response, whose prompt then contains
        the response so far.
        """
        if self.rule is None:
            return OFF
        return self.rule.request(self.seed, len(self.prompt_ids)).to_wire()

    @property
    def extra_args(self) -> dict[str, Any]:
        """The call's ``SamplingParams.extra_args``, a new mapping: the loop's entries and tandem's.

        Siblings of a prompt may share the loop's sampling parameters, which must stay as they are.
        """
        return {**self.extra, EXTRA: self.request}

    def returned(self, token_ids: Sequence[int], index: int = 0) -> None:
        """Record the returned tokens; index: of the sample, for a call with ``n`` > 1."""
        if self.rule is not None:
            seed = sample_seed(self.seed, index)
            tokens = np.array(token_ids, dtype=np.int64)
            self._calls.append(Call(seed, self.prompt_ids, tokens))


@dataclass(frozen=True, slots=True)
class Response:
    """A response that an agent loop made of calls, tool outputs, and text it wrote itself."""

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    mask: ArrayLike
    """The tokens that the agent loop would train: true or 1, one entry per token."""
    log_probs: Sequence[float] | None = None
    """Of the engine, one per token; None if the loop returned none."""

    @classmethod
    def whole(
        cls,
        token_ids: Sequence[int],
        ranges: Sequence[tuple[int, int]],
        log_probs: Sequence[float] | None,
    ) -> Response:
        """Of a trainer whose responses contain their prompts; ranges: (start, stop) to train."""
        return cls((), token_ids, bits_of(ranges, len(token_ids)), log_probs)


@dataclass(frozen=True, slots=True)
class NarrowedResponse:
    """What a trainer gets of a response: the loop's own values if the senior answered alone."""

    response_ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    """Bool ``[tokens]``: those to train, the senior's among those that the loop would train."""
    log_probs: Sequence[float] | None
    """Zero outside the mask; None if the loop returned none."""
    facts: ResponseAuthorship | None
    """None if the senior answered alone."""

    @property
    def mask_list(self) -> list[int]:
        """The mask as 0 and 1."""
        values: list[int] = self.mask.astype(int).tolist()
        return values

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(start, stop) of the tokens to train."""
        return ranges_of(self.mask)

    @property
    def columns(self) -> dict[str, Any]:
        """The facts as they are sent with the response, by their column; empty without any."""
        return {} if self.facts is None else {AUTHORSHIP: self.facts.to_wire()}

    def row(self, name: str, group: str) -> Row:
        """The response as a row of a batch. name: in error messages. group: of its siblings."""
        return Row(name, group, self.response_ids, self.mask, self.facts)


@dataclass(slots=True)
class Trajectory:
    """The generate calls of one agent loop.

    rule: None if the senior answers alone. seed_of_call: the tandem seed of each call, by its
    number from 0. junior: its name in the run's settings. images: whether prompts may have images.
    """

    rule: Rule | None
    seed_of_call: Callable[[int], int]
    junior: str | None = None
    images: bool = False
    calls: list[Call] = field(default_factory=list)
    """The calls that have returned."""
    started: int = 0

    @classmethod
    def at(
        cls,
        rules: TandemRules,
        *numbers: int | str,
        step: int,
        answerer: Answerer | None = None,
    ) -> Trajectory:
        """The response at a :class:`Place` of a run with these rules.

        step: the trainer's, which a schedule may depend on. answerer: of a validation prompt; None
        in training, where it is the team.
        """
        place = Place("training" if answerer is None else "validation", numbers)
        return cls(
            rule_of(rules, answerer or "team", step),
            partial(place.seed, rules.config.seed),
            rules.config.junior,
            rules.config.images,
        )

    def call(
        self,
        prompt_ids: ArrayLike,
        extra: Mapping[str, Any] | None = None,
        pictures: Iterable[Any] | None = None,
    ) -> StartedCall:
        """The next call, of this prompt, which is copied.

        extra: the ``extra_args`` of the loop's own sampling parameters. pictures: of the prompt.
        Raises :class:`RequestError` if the loop set ``tandem`` there itself, and like
        :func:`~tandem_plugin.training.images.check_pictures`.
        """
        check_pictures(pictures or (), images=self.images)
        if (loops_request := (extra or {}).get(EXTRA)) is not None:
            raise RequestError("agent-loop-sets-tandem", asked=loops_request)
        number, self.started = self.started, self.started + 1
        prompt = np.array(prompt_ids, dtype=np.int64)
        return StartedCall(self.rule, self.seed_of_call(number), prompt, extra or {}, self.calls)

    def wrote_last_of(self, text: Sequence[int]) -> bool:
        """Whether the last of these token ids, which begin with a prompt, is one of a call's."""
        return any(
            len(call.prompt_ids) < len(text)
            and [*call.prompt_ids, *call.token_ids][: len(text)] == [*text]
            for call in self.calls
        )

    def narrow(self, responses: Sequence[Response]) -> list[NarrowedResponse]:
        """Each response with the senior's tokens alone to train.

        responses: all that the loop made of this trajectory's calls. Raises like
        :func:`~tandem_plugin.training.response_authorship.author_response`, and
        :class:`AuthorshipError` if the number of log-probabilities differs from the tokens'.
        """
        is_only = len(responses) == 1
        return [
            self._narrowed(response, 0 if is_only else self.started + number)
            for number, response in enumerate(responses)
        ]

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

    def _narrowed(self, response: Response, spare: int) -> NarrowedResponse:
        """spare: the call with whose seed a response goes that has no trained token.

        Every row of a batch has its own seed, and such a response has none of a call's.
        """
        response_ids = np.array(response.response_ids, dtype=np.int64)
        facts = self.facts(response.prompt_ids, response_ids, response.mask)
        if facts is None:
            mask = np.array(response.mask).astype(np.bool_)
            return NarrowedResponse(response_ids, mask, response.log_probs, None)
        if not facts.segments:
            facts = replace(facts, seed=self.seed_of_call(spare))
        log_probs = _masked(response.log_probs, facts.mask)
        return NarrowedResponse(response_ids, facts.mask, log_probs, facts)


def _masked(log_probs: Sequence[float] | None, mask: NDArray[np.bool_]) -> list[float] | None:
    """Log-probabilities, zero where the mask is false; None if there are none."""
    if log_probs is None:
        return None
    if len(log_probs) != len(mask):
        raise AuthorshipError(
            "rollout-logprobs-count-differs", log_probs=len(log_probs), tokens=len(mask)
        )
    return [value if is_trained else 0.0 for value, is_trained in zip(log_probs, mask, strict=True)]


class ClientDelegate(Delegate):
    """Wraps a trainer's client in one trajectory: a subclass adds tandem to every call."""

    def __init__(self, client: Any, trajectory: Trajectory) -> None:
        super().__init__(client)
        self._trajectory = trajectory
