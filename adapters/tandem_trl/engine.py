"""The engine that TRL starts in its own process, in tandem, and its wrapper."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.runners import check_engine
from tandem_plugin.patching.wrapping import Delegate, replaced, wrap_once
from tandem_plugin.training.sampling import NEUTRAL, warn_of_changed_sampling
from tandem_plugin.training.trajectory import Trajectory
from tandem_trl import lora

if TYPE_CHECKING:
    from trl.generation.vllm_generation import VLLMGeneration

_next: list[Callable[[Callable[[], None], Any], None]] = []
"""Starts this process's next engine in tandem; empty if that engine is not in tandem."""


class LLMInTandem(Delegate):
    """Wraps TRL's ``vllm.LLM``: each prompt is sent with the request of its own trajectory."""

    def __init__(self, llm: Any) -> None:
        super().__init__(llm)
        self.trajectories: Sequence[Trajectory] = ()
        """The trajectories of the prompts of the next :meth:`generate`, in order."""
        self.adapter: Any = None
        """The senior's adapter, if its base is the junior."""

    def generate(
        self, prompts: Sequence[Mapping[str, Any]], sampling_params: Any, **options: Any
    ) -> Any:
        """As ``vllm.LLM.generate``, with a tandem seed for each prompt."""
        trajectories, self.trajectories = self.trajectories, ()
        if not trajectories:  # a call from elsewhere, which the engine rejects
            return self._target.generate(prompts, sampling_params=sampling_params, **options)
        extra = sampling_params.extra_args or {}
        calls = [
            trajectory.call(prompt["prompt_token_ids"], extra.get("tandem"))
            for trajectory, prompt in zip(trajectories, prompts, strict=True)
        ]
        params = [sampling_params.clone() for _ in calls]
        for own, call in zip(params, calls, strict=True):
            own.extra_args = {**extra, "tandem": call.request}
        outputs = self._target.generate(
            prompts, sampling_params=params, lora_request=self.adapter, **options
        )
        for call, output in zip(calls, outputs, strict=True):
            call.returned(output.outputs[0].token_ids)
        return outputs


def start_next_engine_in_tandem(
    config: TandemConfig, arguments: Mapping[str, Any], started: Callable[[LLMInTandem], None]
) -> None:
    """Let the next engine that TRL starts in this process run in tandem, and no later one.

    arguments: of ``vllm.LLM``, which override TRL's own. started: called with the engine once it is
    known to run in tandem; otherwise creating the trainer raises :class:`EngineError`. If adapters
    (LoRA) are trained and their base is the junior, the engine holds the base once.

    Touches: ``VLLMGeneration._init_vllm`` (TRL 1.16). Why: it accepts no further engine arguments
    for ``LLM``, and TRL sends an engine merged weights. Goes when: ``GRPOConfig`` accepts engine
    arguments, and TRL sends adapters.
    """
    from trl.generation import vllm_generation

    def start(initialise: Callable[[], None], generation: VLLMGeneration) -> None:
        warn_of_changed_sampling(_sampling(generation, arguments))

        def in_tandem(llm: Callable[..., Any], **own: Any) -> LLMInTandem:
            send, adapting = _how_to_send(generation, {**own, **arguments}, config)
            given = {**own, **adapting, **arguments}
            settings = {**config.settings(), "require": True}
            given["additional_config"] = {**given.get("additional_config", {}), "tandem": settings}
            engine = LLMInTandem(llm(**given))
            check_engine(engine.llm_engine.vllm_config)
            send(engine)
            started(engine)
            return engine

        with replaced(vllm_generation, "LLM", in_tandem):
            initialise()

    _next[:] = [start]
    wrap_once(vllm_generation.VLLMGeneration, "_init_vllm", _start_engine)


def _start_engine(initialise: Callable[[Any], None], generation: VLLMGeneration) -> None:
    own = functools.partial(initialise, generation)
    if _next and generation.mode == "colocate":
        _next.pop()(own, generation)
    else:
        own()


def _sampling(generation: VLLMGeneration, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """How TRL samples, by vLLM's names; arguments: of ``vllm.LLM``."""
    own = {name: getattr(generation, name, None) for name in NEUTRAL}
    options = {**own, **generation.generation_kwargs}
    if options["temperature"] == generation.temperature:
        del options["temperature"]
    options["logits_processors"] = arguments.get("logits_processors")
    if generation.structured_outputs_regex is not None:
        options["structured_outputs"] = generation.structured_outputs_regex
    return options


def _how_to_send(
    generation: VLLMGeneration, arguments: Mapping[str, Any], config: TandemConfig
) -> tuple[Callable[[LLMInTandem], None], dict[str, Any]]:
    """What prepares weight syncs of a started engine, and the arguments that the engine needs.

    arguments: of ``vllm.LLM``. Raises :class:`ConfigError` like :func:`lora.check_adapter`.
    """
    model = generation.model
    lora.check_adapter(model)
    if not lora.is_adapted(model):
        return lambda engine: None, {}
    why = "enable_lora is set"
    if "enable_lora" not in arguments:
        why = lora.why_merged(generation, arguments, config)
    if why:
        _say(generation, f"syncs send all weights with the adapter merged, because of {why}")
        return lambda engine: lora.send_merged(generation), {}
    _say(generation, "syncs send the adapter alone; the engine's base is also the junior")
    return functools.partial(lora.send_adapters, generation), lora.lora_arguments(model)


def _say(generation: VLLMGeneration, what: str) -> None:
    if generation.accelerator.is_main_process:
        print(f"tandem: {what}.", file=sys.stderr, flush=True)
