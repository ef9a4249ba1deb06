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
from tandem_plugin.errors import AuthorshipError
from tandem_plugin.grading.rewards.openrlhf_response import GENERATED, Generated
from tandem_plugin.patching.wrapping import Delegate
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.authorship_wire import (
    AUTHORSHIP,
    ResponseAuthorship,
    bits_of,
    ranges_of,
)
from tandem_plugin.training.calls import ClientDelegate, Response, StartedCall, Trajectory
from tandem_plugin.training.response_authorship import Call

if TYPE_CHECKING:
    from openrlhf.utils.agent import AgentExecutorBase
    from transformers import PreTrainedTokenizerBase

_RUNNING: ContextVar[Trajectory | None] = ContextVar("_RUNNING", default=None)
"""The trajectory whose task runs; None in threads that an agent starts, such as a server's."""


@dataclass
class SharedCalls:
    """The calls of an agent that keeps the first engine it is given, and serves all prompts by it.

    Which trajectory such a call belongs to is unknown until its tokens come back in a response.
    """

    running: list[Trajectory] = field(default_factory=list)
    """The trajectories of one executor that have begun and not ended."""
    calls: list[Call] = field(default_factory=list)
    """The calls that returned, and that no response contained yet."""

    def begin(self, trajectory: Trajectory) -> None:
        """Note that a trajectory begins in this task."""
        self.running.append(trajectory)
        _RUNNING.set(trajectory)

    def end(self, trajectory: Trajectory) -> None:
        """Note that a trajectory has ended; after the last, forget calls that none contained."""
        self.running = [one for one in self.running if one is not trajectory]
        if not self.running:
            self.calls = []

    def start(self, engines: Trajectory, prompt_ids: Sequence[int], extra: Any) -> StartedCall:
        """The next generate call; engines: the trajectory whose engine it goes through.

        Raises :class:`AuthorshipError` for a call of unknown trajectory unless all have one rule.
        """
        current = _RUNNING.get()
        if any(one is current for one in self.running):
            return current.call(prompt_ids, extra)  # type: ignore[union-attr]
        if len({one.rule and one.rule.fingerprint for one in self.running}) != 1:
            raise AuthorshipError("openrlhf-agent-keeps-engine")
        place = next((one for one in self.running if one is engines), self.running[0])
        return replace(place.call(prompt_ids, extra), _calls=self.calls)

    def within(self, tokens: Sequence[int]) -> list[Call]:
        """The calls whose prompt and whole answer the tokens of a response contain."""
        text = np.array(tokens, dtype=np.int64)
        written = ((call, np.concatenate([call.prompt_ids, call.token_ids])) for call in self.calls)
        return [call for call, whole in written if np.array_equal(text[: len(whole)], whole)]

    def remove(self, seeds: set[int]) -> None:
        """Remove the calls that a response contains, by their tandem seeds."""
        self.calls[:] = [call for call in self.calls if call.seed not in seeds]


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
                llm_engine=RolloutActorInTandem(llm_engine, trajectory, self._shared),
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

    def __init__(self, actor: Any, trajectory: Trajectory, shared: SharedCalls) -> None:
        super().__init__(actor, trajectory)
        self._shared = shared

    async def generate(
        self, prompt_token_ids: Sequence[int], sampling_params: Any, multi_modal_data: Any = None
    ) -> Any:
        """One response to these tokens, with its own draws."""
        own = copy.deepcopy(sampling_params)
        call = self._shared.start(self._trajectory, prompt_token_ids, own.extra_args)
        own.extra_args = call.extra_args
        output = await self._target.generate(
            prompt_token_ids, own, multi_modal_data=multi_modal_data
        )
        for sample in output.outputs:
            call.returned(sample.token_ids, sample.index)
        if (generated := GENERATED.get()) is not None:
            generated.prompt_ids = prompt_token_ids
            generated.response_ids = output.outputs[0].token_ids
        return output


def narrowed(
    response: Mapping[str, Any], trajectory: Trajectory, shared: SharedCalls
) -> dict[str, Any]:
    """A response whose action ranges contain only the senior's tokens, with its authorship facts.

    shared: calls that may be the response's too. The facts cover the prompt too. Rollout
    log-probabilities become zero outside the ranges. If the senior answered alone, nothing changes.
    Raises like :meth:`Trajectory.narrow`.
    """
    if trajectory.rule is None:
        return dict(response)
    tokens = list(response["observation_tokens"])
    trained = bits_of(response["action_ranges"], len(tokens))
    own = replace(trajectory, calls=[*trajectory.calls, *shared.within(tokens)])
    if trained.any() and not own.calls:
        raise AuthorshipError("openrlhf-response-without-call")
    made = Response((), tokens, trained, response.get("rollout_log_probs"))
    (kept,) = own.narrow([made])
    if kept.facts is not None:
        shared.remove({seed for seed, _, _ in kept.facts.segments})
    return {
        **response,
        "action_ranges": ranges_of(kept.mask),
        "rollout_log_probs": kept.log_probs,
        AUTHORSHIP: kept.wire,
    }


def response_length(facts: ResponseAuthorship, most: int) -> int:
    """OpenRLHF's response length of the whole response, truncated to ``most`` tokens.

    That is from the first trained token to the last one, feedback between turns included.
    """
    trained = np.flatnonzero(facts.trained_mask[1:most])  # the first token is not an action
    return int(trained[-1] - trained[0] + 1) if trained.size else 0
