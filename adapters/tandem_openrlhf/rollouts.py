"""Wrappers around an agent executor, and around the engine in each of its trajectories."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem_openrlhf.numbering import KeyedLabel
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import AuthorshipError, EngineError
from tandem_plugin.grading.rewards.openrlhf_response import GENERATED, Generated
from tandem_plugin.patching.wrapping import Delegate
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.authorship_wire import (
    AUTHORSHIP,
    ResponseAuthorship,
    bits_of,
    ranges_of,
)
from tandem_plugin.training.calls import (
    ClientDelegate,
    NarrowedResponse,
    Response,
    StartedCall,
    Trajectory,
)
from tandem_plugin.training.images import check_pictures
from tandem_plugin.training.response_authorship import Call

if TYPE_CHECKING:
    from openrlhf.utils.agent import AgentExecutorBase
    from transformers import PreTrainedTokenizerBase

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

    def begin(self, trajectory: Trajectory) -> None:
        """Note that a trajectory begins in this task."""
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

    def start(self, engines: Trajectory, prompt_ids: Sequence[int], extra: Any) -> StartedCall:
        """The next generate call; engines: the trajectory that owns the engine it goes through.

        Raises :class:`AuthorshipError` for a call of unknown trajectory unless all have one rule.
        """
        current = _RUNNING.get()
        if any(trajectory is current for trajectory in self.running):
            return current.call(prompt_ids, extra)  # type: ignore[union-attr]
        if len({_fingerprint(trajectory) for trajectory in self.running}) != 1:
            raise AuthorshipError("openrlhf-agent-keeps-engine")
        is_running = any(trajectory is engines for trajectory in self.running)
        place = engines if is_running else self.running[0]
        return replace(place.call(prompt_ids, extra), _calls=self.calls)

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


def _without(trajectory: Trajectory, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    return [neighbour for neighbour in trajectories if neighbour is not trajectory]


def _fingerprint(trajectory: Trajectory) -> str | None:
    return None if trajectory.rule is None else trajectory.rule.fingerprint


def _within(tokens: Sequence[int], calls: Sequence[Call]) -> list[Call]:
    text = np.array(tokens, dtype=np.int64)
    written = ((call, np.concatenate([call.prompt_ids, call.token_ids])) for call in calls)
    return [call for call, ids in written if np.array_equal(text[: len(ids)], ids)]


class TandemExecutor(Delegate):
    """Wraps OpenRLHF's executor or the user's: calls are in tandem, responses are narrowed."""

    def __init__(self, executor: AgentExecutorBase, config: TandemConfig) -> None:
        super().__init__(executor)
        self._config = config
        self._rules: TandemRules | None = None
        self._shared = SharedCalls()

    async def execute(
        self,
        *,
        label: Any,
        sampling_params: Any,
        hf_tokenizer: PreTrainedTokenizerBase,
        llm_engine: Any,
        **call: Any,
    ) -> dict[str, Any]:
        """One response to a prompt, as OpenRLHF requests it.

        Raises :class:`EngineError` if the engine or the process that sent the prompt is not in
        tandem, and like :func:`narrowed`.
        """
        rules = self._engines_rules(llm_engine, hf_tokenizer)
        label = KeyedLabel.checked(label)
        trajectory = label.trajectory(rules)
        GENERATED.set(Generated(hf_tokenizer))  # of this coroutine's task alone
        self._shared.begin(trajectory)
        try:
            response = await self._target.execute(
                label=label.label,
                # One serves all samples of a prompt.
                sampling_params=copy.deepcopy(sampling_params),
                hf_tokenizer=hf_tokenizer,
                llm_engine=RolloutActorInTandem(
                    llm_engine, trajectory, self._shared, self._config.images
                ),
                **call,
            )
            return narrowed(response, trajectory, self._shared)
        finally:
            self._shared.end(trajectory)

    def _engines_rules(self, engine: Any, tokenizer: PreTrainedTokenizerBase) -> TandemRules:
        if self._rules is None:
            from tandem_plugin.engine.runners import check_engine

            check_engine(engine.llm.vllm_config)
            self._rules = TandemRules.from_tokenizer(self._config, tokenizer)
        return self._rules


class RolloutActorInTandem(ClientDelegate):
    """Wraps OpenRLHF's rollout actor."""

    def __init__(
        self, actor: Any, trajectory: Trajectory, shared: SharedCalls, images: bool = False
    ) -> None:
        super().__init__(actor, trajectory)
        self._shared = shared
        self._images = images

    async def generate(
        self, prompt_token_ids: Sequence[int], sampling_params: Any, multi_modal_data: Any = None
    ) -> Any:
        """One response to these tokens, with its own draws.

        Raises like :func:`check_pictures`, and :class:`EngineError` if the engine read other tokens
        than OpenRLHF will train with, which has the tokens of each image.
        """
        pictures = (multi_modal_data or {}).get("image") or ()
        check_pictures(pictures, images=self._images, trainer="OpenRLHF")
        params = copy.deepcopy(sampling_params)
        call = self._shared.start(self._trajectory, prompt_token_ids, params.extra_args)
        params.extra_args = call.extra_args
        output = await self._target.generate(
            prompt_token_ids, params, multi_modal_data=multi_modal_data
        )
        if pictures and list(output.prompt_token_ids) != list(prompt_token_ids):
            sent, read = len(prompt_token_ids), len(output.prompt_token_ids)
            raise EngineError("image-prompt-differs", sent=sent, read=read)
        for sample in output.outputs:
            call.returned(sample.token_ids, sample.index)
        if (generated := GENERATED.get()) is not None:
            generated.prompt_ids = prompt_token_ids
            generated.response_ids = output.outputs[0].token_ids
        return output


def narrowed(
    response: Mapping[str, Any], trajectory: Trajectory, shared: SharedCalls
) -> dict[str, Any]:
    """A response with its authorship facts; its action ranges contain only the senior's tokens.

    shared: calls that may be the response's too. The facts cover the prompt too. Rollout
    log-probabilities become zero outside the ranges. If the senior answered alone, nothing changes.
    Raises like :meth:`Trajectory.narrow`, and :class:`AuthorshipError` for a response that no call
    wrote, or one of the senior alone that a server's call in tandem wrote.
    """
    tokens = list(response["observation_tokens"])
    if trajectory.rule is None:
        if not trajectory.started:
            shared.of_others(trajectory, tokens)  # which the junior may have written
        return dict(response)
    trained = bits_of(response["action_ranges"], len(tokens))
    answer = Response((), tokens, trained, response.get("rollout_log_probs"))
    narrowed_response = _explained(answer, trajectory, shared)
    if narrowed_response.facts is not None:
        shared.remove({seed for seed, _, _ in narrowed_response.facts.segments})
    return {
        **response,
        "action_ranges": ranges_of(narrowed_response.mask),
        "rollout_log_probs": narrowed_response.log_probs,
        AUTHORSHIP: narrowed_response.wire,
    }


def _explained(response: Response, trajectory: Trajectory, shared: SharedCalls) -> NarrowedResponse:
    """A response of the trajectory's calls; calls in tasks of other trajectories only if needed.

    So the equal answers of two prompts stay apart where each agent awaits its calls, also in tasks
    that it starts.
    """
    candidates = replace(
        trajectory, calls=[*trajectory.calls, *shared.within(response.response_ids)]
    )
    try:
        return candidates.narrow([response])[0]
    except AuthorshipError:
        served = shared.of_others(trajectory, response.response_ids)
        if not (served or candidates.calls):
            raise AuthorshipError("openrlhf-response-without-call") from None
        if not served:
            raise
    return replace(candidates, calls=[*candidates.calls, *served]).narrow([response])[0]


def response_length(facts: ResponseAuthorship, most: int) -> int:
    """OpenRLHF's response length of the whole response, truncated to ``most`` tokens.

    That is from the first trained token to the last one, feedback between turns included.
    """
    trained = np.flatnonzero(facts.trained_mask[1:most])  # the first token is not an action
    return int(trained[-1] - trained[0] + 1) if trained.size else 0
