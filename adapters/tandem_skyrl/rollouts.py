"""SkyRL's generators in tandem: each call with its own request, each mask the senior's part."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import EngineError, RequestError
from tandem_plugin.patching.subclasses import Mixin
from tandem_plugin.patching.wrapping import Delegate
from tandem_plugin.training.calls import ClientDelegate, Trajectory
from tandem_skyrl.batch import Generation, SkyRLRun, key_of

if TYPE_CHECKING:
    from skyrl.train.generators.base import GeneratorInput, GeneratorOutput


class TandemClient(ClientDelegate):
    """SkyRL's client of its engines within one trajectory: adds tandem to every call."""

    async def generate(self, input_batch: Mapping[str, Any], **options: Any) -> Any:
        """As ``InferenceEngineInterface.generate``, of one prompt."""
        prompts = input_batch["prompt_token_ids"]
        if len(prompts) != 1:
            raise RequestError("skyrl-call-of-several-prompts", prompts=len(prompts))
        sampling = input_batch.get("sampling_params") or {}
        call = self._trajectory.call(prompts[0], sampling.get("extra_args"))
        in_tandem = {**sampling, "extra_args": call.extra_args}
        output = await self._target.generate(
            {**input_batch, "sampling_params": in_tandem}, **options
        )
        call.returned(output["response_ids"][0])
        return output


class BatchClient(Delegate):
    """SkyRL's client within a generation by one call: a call in tandem for each of its prompts."""

    def __init__(self, client: Any, trajectories: Sequence[Trajectory]) -> None:
        super().__init__(client)
        self._clients = [TandemClient(client, trajectory) for trajectory in trajectories]

    async def generate(self, input_batch: Mapping[str, Any], **options: Any) -> Any:
        """As ``InferenceEngineInterface.generate``; the prompts are those of the trajectories."""
        count = len(self._clients)
        if len(input_batch["prompt_token_ids"]) != count:
            raise EngineError(
                "skyrl-batch-differs", prompts=len(input_batch["prompt_token_ids"]), count=count
            )
        calls = (
            client.generate(_part(input_batch, number), **options)
            for number, client in enumerate(self._clients)
        )
        outputs = await asyncio.gather(*calls)
        return {
            name: [value for output in outputs for value in output[name]]
            if isinstance(first, list)
            else first
            for name, first in outputs[0].items()
        }


_OF_PROMPTS = (
    "prompts",
    "prompt_token_ids",
    "session_ids",
    "mm_features",
    "routed_experts_prompt_starts",
)
"""The fields of SkyRL's ``InferenceEngineInput`` that have a value for each prompt."""


def _part(input_batch: Mapping[str, Any], number: int) -> dict[str, Any]:
    """One prompt of a batch."""
    return {
        name: value[number : number + 1] if name in _OF_PROMPTS and value is not None else value
        for name, value in input_batch.items()
    }


class TandemGenerator(Mixin):
    """Before a class of SkyRL's generators, whose ``generate`` calls ``agent_loop``."""

    inference_engine_client: Any
    tokenizer: Any
    use_conversation_multi_turn: bool

    def __init__(self, *arguments: Any, tandem: SkyRLRun, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._tandem = tandem
        self._generation: Generation | None = None

    async def generate(
        self, input_batch: GeneratorInput, disable_tqdm: bool = False
    ) -> GeneratorOutput:
        """A generation whose masks have the senior's tokens alone.

        Raises :class:`EngineError` for engines that are not in tandem and for prompts without their
        place in the run, and like :meth:`SkyRLRun.finish`.
        """
        self._tandem.prove(are_awake=True)
        place, ids = input_batch.get("batch_metadata"), input_batch.get("trajectory_ids")
        generation = self._tandem.begin(place, ids, input_batch.get("env_extras"))
        generator = copy.copy(self)  # asynchronous trainers generate several at once
        generator._generation = generation
        quiet = {"disable_tqdm": True} if disable_tqdm else {}
        output: GeneratorOutput = await super(TandemGenerator, generator).generate(
            input_batch, **quiet
        )
        await asyncio.to_thread(self._tandem.finish, generation, output)
        return output

    async def agent_loop(self, *arguments: Any, trajectory_id: Any = None, **options: Any) -> Any:
        """SkyRL's loop of one response, with a separate client."""
        if self._generation is None or trajectory_id is None:
            raise EngineError("skyrl-loop-without-generation")
        trajectory = self._generation.trajectories[key_of(trajectory_id)]
        generator = copy.copy(self)
        generator.inference_engine_client = TandemClient(self.inference_engine_client, trajectory)
        output = await super(TandemGenerator, generator).agent_loop(
            *arguments, trajectory_id=trajectory_id, **options
        )
        is_one_message = not getattr(self, "use_conversation_multi_turn", True)
        if is_one_message and trajectory.rule is not None:
            leave_out_added_end(output, trajectory, self.tokenizer.eos_token_id)
        return output

    async def generate_batched(self, *arguments: Any, **options: Any) -> GeneratorOutput:
        """SkyRL's generation by one call, which the engines get prompt by prompt."""
        if self._generation is None:
            raise EngineError("skyrl-loop-without-generation")
        trajectories = self._generation.trajectories
        generator = copy.copy(self)
        generator.inference_engine_client = BatchClient(
            self.inference_engine_client,
            [trajectories[key_of(trajectory_id)] for trajectory_id in self._generation.ids],
        )
        output: GeneratorOutput = await super(TandemGenerator, generator).generate_batched(
            *arguments, **options
        )
        return output


def leave_out_added_end(output: Any, trajectory: Trajectory, end: int) -> None:
    """Do not train the end of sequence that SkyRL adds to turns of one message.

    After a stop string no model wrote it. output: SkyRL's of one agent loop, which may have kept
    only some of its trajectory's calls. end: the tokenizer's end of sequence.
    """
    if not output.response_ids or output.response_ids[-1] != end:
        return
    if not trajectory.wrote_last_of([*output.prompt_ids, *output.response_ids]):
        output.loss_mask[-1] = 0
