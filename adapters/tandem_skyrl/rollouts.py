"""SkyRL's generators in tandem: each call with its own request, each mask the senior's part."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import EngineError, RequestError
from tandem_plugin.patching.subclasses import ForeignBase
from tandem_plugin.training.calls import ClientDelegate
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
        own = {**sampling, "extra_args": call.extra_args}
        output = await self._target.generate({**input_batch, "sampling_params": own}, **options)
        call.returned(output["response_ids"][0])
        return output


class TandemGenerator(ForeignBase):  # type: ignore[misc]
    """Before a class of SkyRL's generators, whose ``generate`` calls ``agent_loop``."""

    inference_engine_client: Any

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
        generation = self._tandem.begin(place, ids)
        own = copy.copy(self)  # asynchronous trainers generate several at once
        own._generation = generation
        quiet = {"disable_tqdm": True} if disable_tqdm else {}
        output: GeneratorOutput = await super(TandemGenerator, own).generate(input_batch, **quiet)
        await asyncio.to_thread(self._tandem.finish, generation, output)
        return output

    async def agent_loop(self, *arguments: Any, trajectory_id: Any = None, **options: Any) -> Any:
        """SkyRL's loop of one response, over a client of its own."""
        if self._generation is None or trajectory_id is None:
            raise EngineError("skyrl-loop-without-generation")
        trajectory = self._generation.trajectories[key_of(trajectory_id)]
        own = copy.copy(self)
        own.inference_engine_client = TandemClient(self.inference_engine_client, trajectory)
        return await super(TandemGenerator, own).agent_loop(
            *arguments, trajectory_id=trajectory_id, **options
        )
