"""Wrappers around an agent executor, and around the engine in each of its trajectories."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tandem_openrlhf.numbering import KeyedLabel
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.grading.rewards.openrlhf_response import GENERATED, Generated
from tandem_plugin.patching.wrapping import Delegate
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.authorship_wire import (
    AUTHORSHIP,
    ResponseAuthorship,
    bits_of,
    ranges_of,
)
from tandem_plugin.training.rows import masked_log_probs
from tandem_plugin.training.trajectory import ClientDelegate, Trajectory


class TandemExecutor(Delegate):
    """Wraps OpenRLHF's executor or the user's: calls are in tandem, responses are narrowed."""

    def __init__(self, executor: Any, config: TandemConfig) -> None:
        super().__init__(executor)
        self._config = config
        self._rules: TandemRules | None = None

    async def execute(
        self, *, label: Any, sampling_params: Any, hf_tokenizer: Any, llm_engine: Any, **call: Any
    ) -> dict[str, Any]:
        """One response to a prompt, as OpenRLHF requests it.

        Raises :class:`EngineError` if the engine or the process that sent the prompt is not in
        tandem, and like :func:`narrowed`.
        """
        rules = self._engines_rules(llm_engine, hf_tokenizer)
        label = KeyedLabel.checked(label)
        trajectory = label.trajectory(rules)
        GENERATED.set(Generated(hf_tokenizer))  # of this coroutine's task alone
        response = await self._target.execute(
            label=label.label,
            sampling_params=copy.deepcopy(sampling_params),  # one serves all samples of a prompt
            hf_tokenizer=hf_tokenizer,
            llm_engine=RolloutActorInTandem(llm_engine, trajectory),
            **call,
        )
        return narrowed(response, trajectory)

    def _engines_rules(self, engine: Any, tokenizer: Any) -> TandemRules:
        if self._rules is None:
            from tandem_plugin.engine.runners import check_engine

            check_engine(engine.llm.vllm_config)
            self._rules = TandemRules(self._config, Vocabulary.from_tokenizer(tokenizer))
        return self._rules


class RolloutActorInTandem(ClientDelegate):
    """Wraps OpenRLHF's rollout actor."""

    async def generate(
        self, prompt_token_ids: Sequence[int], sampling_params: Any, multi_modal_data: Any = None
    ) -> Any:
        """One response to these tokens, with its own draws."""
        own = copy.deepcopy(sampling_params)
        extra = own.extra_args or {}
        call = self._trajectory.call(prompt_token_ids, extra.get("tandem"))
        own.extra_args = {**extra, "tandem": call.request}
        output = await self._target.generate(
            prompt_token_ids, own, multi_modal_data=multi_modal_data
        )
        for sample in output.outputs:
            call.returned(sample.token_ids, sample.index)
        if (generated := GENERATED.get()) is not None:
            generated.prompt_ids = prompt_token_ids
            generated.response_ids = output.outputs[0].token_ids
        return output


def narrowed(response: Mapping[str, Any], trajectory: Trajectory) -> dict[str, Any]:
    """A response whose action ranges contain only the senior's tokens, with its authorship facts.

    The facts cover the prompt too. Rollout log-probabilities become zero outside the ranges. If the
    senior answered alone, nothing changes. Raises like :meth:`Trajectory.facts`.
    """
    if trajectory.rule is None:
        return dict(response)
    tokens = list(response["observation_tokens"])
    facts = trajectory.facts((), tokens, bits_of(response["action_ranges"], len(tokens)))
    assert facts is not None  # there is a rule
    return {
        **response,
        "action_ranges": ranges_of(facts.mask),
        "rollout_log_probs": masked_log_probs(response.get("rollout_log_probs"), facts.mask),
        AUTHORSHIP: facts.to_wire(),
    }


def response_length(facts: ResponseAuthorship, most: int) -> int:
    """OpenRLHF's response length of the whole response, truncated to ``most`` tokens.

    That is from the first trained token to the last one, feedback between turns included.
    """
    trained = np.flatnonzero(facts.trained_mask[1:most])  # the first token is not an action
    return int(trained[-1] - trained[0] + 1) if trained.size else 0
