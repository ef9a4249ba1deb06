"""The calls of an agent that serves several trajectories by one engine: whose each of them is.

An agent that awaits its calls makes them in its own trajectory's task. One that starts a server
makes calls for any.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.grading.rewards.openrlhf_response import Generated
from tandem_plugin.training.calls import NarrowedResponse, Response, StartedCall, Trajectory
from tandem_plugin.training.response_authorship import Call

_RUNNING: ContextVar[Trajectory | None] = ContextVar("_RUNNING", default=None)
"""The trajectory of the running task or of the task that began it; None in an agent's threads.

A server that an agent starts as a task has the trajectory in which it was started: its calls may be
of any other.
"""


@dataclass(slots=True)
class Ended:
    """A trajectory that has ended, and those that ran then: its calls left may be theirs."""

    trajectory: Trajectory
    waiting: list[Trajectory]


@dataclass
class SharedCalls:
    """The calls of an agent that keeps the first engine it is given, and serves all prompts by it.

    Which trajectory such a call belongs to is unknown until its tokens come back in a response.
    """

    running: list[Trajectory] = field(default_factory=list)
    """The trajectories of one executor that have begun and not ended."""
    calls: list[Call] = field(default_factory=list)
    """The calls of no trajectory that returned, and that no response contained yet."""
    ended: list[Ended] = field(default_factory=list)

    def begin(self, trajectory: Trajectory, tokenizer: Any | None = None) -> None:
        """Note that a trajectory begins in this task.

        tokenizer: the one that decodes it; None if nothing grades its text.
        """
        if tokenizer is not None:
            Generated.begin(tokenizer)
        self.running.append(trajectory)
        _RUNNING.set(trajectory)

    def end(self, trajectory: Trajectory) -> None:
        """Note that a trajectory has ended; forget calls that no running one may contain."""
        self.running = _without(trajectory, self.running)
        for ended in self.ended:
            ended.waiting = _without(trajectory, ended.waiting)
        self.ended = [ended for ended in self.ended if ended.waiting]
        if not self.running:
            self.calls = []
        elif trajectory.started:  # a call may be on its way still
            self.ended.append(Ended(trajectory, self.running))

    def start(
        self,
        engines: Trajectory,
        prompt_ids: Sequence[int],
        extra: Any,
        pictures: Sequence[Any] = (),
    ) -> StartedCall:
        """The next generate call; engines: the trajectory that owns the engine it goes through.

        Raises :class:`AuthorshipError` for a call of unknown trajectory unless all have one rule,
        and like :meth:`Trajectory.call`.
        """
        current = _RUNNING.get()
        if any(trajectory is current for trajectory in self.running):
            return current.call(prompt_ids, extra, pictures)  # type: ignore[union-attr]
        if len({_fingerprint(trajectory) for trajectory in self.running}) != 1:
            raise AuthorshipError("openrlhf-agent-keeps-engine")
        is_running = any(trajectory is engines for trajectory in self.running)
        place = engines if is_running else self.running[0]
        return replace(place.call(prompt_ids, extra, pictures), _calls=self.calls)

    @staticmethod
    def returned(call: StartedCall, samples: Sequence[Any]) -> None:
        """Record the tokens that a call returned; samples: vLLM's ``CompletionOutput``s."""
        for sample in samples:
            call.returned(sample.token_ids, sample.index)
        Generated.returned(call.prompt_ids.tolist(), samples[0].token_ids)

    def within(self, tokens: Sequence[int]) -> list[Call]:
        """The calls of no trajectory with prompt and answer among the tokens of a response."""
        return _within(tokens, self.calls)

    def of_others(self, trajectory: Trajectory, tokens: Sequence[int]) -> list[Call]:
        """The same of the calls in other trajectories' tasks, which a server there may have made.

        Raises :class:`AuthorshipError` if such a trajectory has a different rule.
        """
        ended = [ended.trajectory for ended in self.ended]
        served = []
        for neighbour in _without(trajectory, [*self.running, *ended]):
            calls = _within(tokens, neighbour.calls)
            if calls and _fingerprint(neighbour) != _fingerprint(trajectory):
                raise AuthorshipError("openrlhf-agent-keeps-engine")
            served += calls
        return served

    def remove(self, seeds: set[int]) -> None:
        """Remove the calls that a response contains, by their tandem seeds."""
        trajectories = [*self.running, *(ended.trajectory for ended in self.ended)]
        for calls in (self.calls, *(trajectory.calls for trajectory in trajectories)):
            calls[:] = [call for call in calls if call.seed not in seeds]

    def narrow(self, response: Response, trajectory: Trajectory) -> NarrowedResponse | None:
        """A response of a trajectory with the senior's tokens alone to train, prompt included.

        None if the senior answered alone. Raises like :meth:`Trajectory.narrow`, and
        :class:`AuthorshipError` for a response that no call wrote, or one of the senior alone that
        a server's call in tandem wrote.
        """
        if trajectory.rule is None:
            if not trajectory.started:  # the junior may have written it elsewhere
                self.of_others(trajectory, response.response_ids)
            return None
        narrowed = self._explained(response, trajectory)
        if narrowed.facts is not None:
            self.remove({seed for seed, _, _ in narrowed.facts.segments})
        return narrowed

    def _explained(self, response: Response, trajectory: Trajectory) -> NarrowedResponse:
        """A response of the trajectory's calls, and only if needed of those in others' tasks.

        So the equal answers of two prompts stay apart where each agent awaits its calls, also in
        tasks that it starts.
        """
        candidates = replace(
            trajectory, calls=[*trajectory.calls, *self.within(response.response_ids)]
        )
        try:
            return candidates.narrow([response])[0]
        except AuthorshipError:
            served = self.of_others(trajectory, response.response_ids)
            if not (served or candidates.calls):
                raise AuthorshipError("openrlhf-response-without-call") from None
            if not served:
                raise
        return replace(candidates, calls=[*candidates.calls, *served]).narrow([response])[0]


def _without(trajectory: Trajectory, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    return [neighbour for neighbour in trajectories if neighbour is not trajectory]


def _fingerprint(trajectory: Trajectory) -> str | None:
    return None if trajectory.rule is None else trajectory.rule.fingerprint


def _within(tokens: Sequence[int], calls: Sequence[Call]) -> list[Call]:
    text = np.array(tokens, dtype=np.int64)
    written = ((call, np.concatenate([call.prompt_ids, call.token_ids])) for call in calls)
    return [call for call, ids in written if np.array_equal(text[: len(ids)], ids)]
