"""Wrappers around an agent executor, and around the engine in each of its trajectories."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tandem_openrlhf.numbering import KeyedLabel
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import AuthorshipError, EngineError
from tandem_plugin.patching.wrapping import Delegate
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.calls import ClientDelegate, Response, Trajectory
from tandem_plugin.training.shared_calls import SharedCalls

if TYPE_CHECKING:
    from openrlhf.utils.agent import AgentExecutorBase
    from transformers import PreTrainedTokenizerBase


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
        tandem, and like :func:`check_pixels` and :func:`narrowed`.
        """
        rules = self._engines_rules(llm_engine, hf_tokenizer)
        label = KeyedLabel.checked(label)
        trajectory = label.trajectory(rules)
        self._shared.begin(trajectory, hf_tokenizer)
        try:
            response = await self._target.execute(
                label=label.label,
                # One serves all samples of a prompt.
                sampling_params=copy.deepcopy(sampling_params),
                hf_tokenizer=hf_tokenizer,
                llm_engine=RolloutActorInTandem(llm_engine, trajectory, self._shared),
                **call,
            )
            check_pixels(response, hf_tokenizer)
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
        """One response to these tokens, with its own draws.

        Raises like :meth:`SharedCalls.start`, and :class:`EngineError` if the engine read other
        tokens than OpenRLHF will train with, which has the tokens of each image.
        """
        pictures = (multi_modal_data or {}).get("image") or ()
        params = copy.deepcopy(sampling_params)
        call = self._shared.start(self._trajectory, prompt_token_ids, params.extra_args, pictures)
        params.extra_args = call.extra_args
        output = await self._target.generate(
            prompt_token_ids, params, multi_modal_data=multi_modal_data
        )
        if pictures and list(output.prompt_token_ids) != list(prompt_token_ids):
            sent, read = len(prompt_token_ids), len(output.prompt_token_ids)
            raise EngineError("image-prompt-differs", sent=sent, read=read)
        self._shared.returned(call, output.outputs)
        return output


def check_pixels(response: Mapping[str, Any], processor: Any) -> None:
    """Raise :class:`AuthorshipError` for a response with tokens of images that has no pixels.

    processor: the tokenizer of OpenRLHF's engine, which knows an image's placeholder if it also
    processes images. OpenRLHF's actor would embed placeholders without pixels as words. Its model
    raises an error if there are some pixels, but not of every placeholder. Source:
    ``Actor.forward`` of OpenRLHF 0.11.2.
    """
    token_id = getattr(processor, "image_token_id", None)
    tokens = list(response["observation_tokens"])
    if token_id in tokens and not response.get("mm_train_inputs"):
        position = tokens.index(token_id)
        raise AuthorshipError("openrlhf-images-unreturned", token_id=token_id, position=position)


def narrowed(
    response: Mapping[str, Any], trajectory: Trajectory, shared: SharedCalls
) -> dict[str, Any]:
    """A response with its authorship facts; its action ranges contain only the senior's tokens.

    shared: calls that may be the response's too. The facts cover the prompt too. Rollout
    log-probabilities become zero outside the ranges. If the senior answered alone, nothing changes.
    Raises like :meth:`SharedCalls.narrow`.
    """
    answer_with_prompt = Response.whole(
        response["observation_tokens"],
        response["action_ranges"],
        response.get("rollout_log_probs"),
    )
    answer = shared.narrow(answer_with_prompt, trajectory)
    if answer is None:
        return dict(response)
    return {
        **response,
        "action_ranges": answer.ranges,
        "rollout_log_probs": answer.log_probs,
        **answer.columns,
    }


def response_length(trained: NDArray[np.bool_], most: int) -> int:
    """OpenRLHF's response length of the whole response, truncated to ``most`` tokens.

    That is from the first trained token to the last one, feedback between turns included. trained:
    bool ``[tokens]``, of the agent loop.
    """
    actions = np.flatnonzero(trained[1:most])  # the first token is not an action
    return int(actions[-1] - actions[0] + 1) if actions.size else 0
