"""The engine of one trainer in tandem: TRL starts it in its own process, or it is a server."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.runners import check_engine
from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.patching.wrapping import Delegate, replaced, wrap_once
from tandem_plugin.training.calls import Trajectory
from tandem_plugin.training.images import prompt_of_engine
from tandem_trl import lora
from tandem_trl.server import start_client

if TYPE_CHECKING:
    from trl.generation.vllm_generation import VLLMGeneration

_next: list[Callable[[Callable[[], None], Any], None]] = []
"""Starts this process's next engine in tandem; empty if that engine is not in tandem."""


_IMAGES = "multi_modal_data"
"""The key of a prompt's images, as TRL and vLLM name it."""


class TandemPrompt(list[int]):
    """A prompt's token ids, with its row's trajectory and the request of its next call.

    TRL's tool loop calls the engine again for some of the rows, without their numbers, and equal
    siblings have equal prompts. It extends a prompt by ``+``: the sum stays in its row. A pickled
    prompt has the request alone: the process that sends it to an engine needs no more.
    """

    def __init__(
        self, ids: Iterable[int], trajectory: Trajectory | None = None, request: Any = None
    ) -> None:
        super().__init__(ids)
        self.trajectory, self.request = trajectory, request

    def __add__(self, tokens: Any) -> TandemPrompt:  # type: ignore[override]
        return TandemPrompt(super().__add__(tokens), self.trajectory)

    def __reduce__(self) -> tuple[Any, ...]:
        return TandemPrompt, (list(self), None, self.request)


def answered(
    generate: Callable[..., Any],
    extra: Mapping[str, Any],
    prompts: Sequence[Any],
    images: Any = None,
    num_generations: int = 1,
    **options: Any,
) -> Any:
    """TRL's answers to prompts; each prompt becomes a call of its row's trajectory.

    extra: extra arguments of TRL's own sampling parameters. images: those of each prompt, or None.
    num_generations: how many siblings TRL would let one prompt stand for at a server; here each is
    sent by itself. Raises :class:`EngineError` for a prompt of no row, and like
    :meth:`Trajectory.call`.

    Touches: ``generate`` of one ``VLLMGeneration`` (TRL 1.16), whose second value is the token ids
    of each answer. Why: the process whose prompts these are may differ from the one that sends
    them. Goes when: TRL passes an engine sampling parameters for each prompt.
    """
    rows = [getattr(prompt, "trajectory", None) for prompt in prompts]
    trajectories = [row for row in rows if row is not None]
    if len(trajectories) < len(rows):
        raise EngineError("trl-prompt-without-row")
    calls = [
        row.call(prompt, extra, pictures)
        for row, prompt, pictures in zip(
            trajectories, prompts, images or [None] * len(prompts), strict=True
        )
    ]
    for prompt, call in zip(prompts, calls, strict=True):
        prompt.request = call.request
    answers = generate(prompts, images=images, num_generations=1, **options)
    for call, token_ids in zip(calls, answers[1], strict=True):
        call.returned(token_ids)
    return answers


class Engine(Protocol):
    """What a run reads of its engine."""

    def collective_rpc(self, method: str) -> Sequence[Any]:
        """What each worker returns for one of the names of ``tandem_plugin.engine.wire``."""


class LLMInTandem(Delegate):
    """Wraps TRL's ``vllm.LLM``: each prompt is sent with the request of its trajectory."""

    def __init__(self, llm: Any) -> None:
        super().__init__(llm)
        self.adapter: Any = None
        """The senior's adapter, if its base is the junior."""

    def generate(
        self, prompts: Sequence[Mapping[str, Any]], sampling_params: Any, **options: Any
    ) -> Any:
        """As ``vllm.LLM.generate``, with the request of each prompt, if it has one.

        Raises :class:`EngineError` if the engine read other tokens than TRL will train with.
        """
        params = [sampling_params.clone() for _ in prompts]
        for sampling, prompt in zip(params, prompts, strict=True):
            request = getattr(prompt["prompt_token_ids"], "request", None)
            if request is not None:  # otherwise a call from elsewhere, which the engine rejects
                sampling.extra_args = {**(sampling.extra_args or {}), "tandem": request}
        plain = [self._sent(prompt) for prompt in prompts]
        outputs = self._target.generate(
            plain, sampling_params=params, lora_request=self.adapter, **options
        )
        for output, prompt in zip(outputs, prompts, strict=True):
            if _IMAGES in prompt and list(output.prompt_token_ids) != prompt["prompt_token_ids"]:
                sent, read = len(prompt["prompt_token_ids"]), len(output.prompt_token_ids)
                raise EngineError("image-prompt-differs", sent=sent, read=read)
        return outputs

    def _sent(self, prompt: Mapping[str, Any]) -> dict[str, Any]:
        """A prompt as vLLM takes it.

        TRL has expanded each image's placeholder, and vLLM would expand the first once more.
        """
        token_ids = list(prompt["prompt_token_ids"])
        if _IMAGES in prompt:
            token_ids = prompt_of_engine(token_ids, self._target.llm_engine.vllm_config)
        return {**prompt, "prompt_token_ids": token_ids}


def start_next_engine_in_tandem(
    config: TandemConfig,
    arguments: Mapping[str, Any],
    check: Callable[[Any, Mapping[str, Any]], None],
    started: Callable[[Any, Engine | None], None],
) -> None:
    """Let the next engine of TRL's in this process be in tandem, and no later one.

    arguments: of ``vllm.LLM``, which override TRL's own. check: called before, with the trainer's
    model and how TRL samples, by vLLM's names. started: called with TRL's
    ``VLLMGeneration`` and its engine once that is known to be in tandem, or with None in processes
    that do not talk to the server; otherwise creating the trainer raises :class:`EngineError`. If
    adapters (LoRA) are trained and their base is the junior, an engine in this process holds the
    base once.

    Touches: ``VLLMGeneration._init_vllm`` (TRL 1.16). Why: it accepts no further engine arguments
    for ``LLM``, and no other client of a server; and TRL sends an engine merged weights. Goes when:
    ``GRPOConfig`` accepts engine arguments, and TRL sends adapters.
    """
    from trl.generation import vllm_generation

    def start(initialise: Callable[[], None], generation: VLLMGeneration) -> None:
        check(generation.model, _sampling(generation, arguments))
        if generation.mode == "server":
            if arguments:
                raise ConfigError("trl-engine-of-server", names=", ".join(arguments))
            started(generation, start_client(initialise, generation, config))
            if lora.is_adapted(generation.model):
                lora.send_merged(generation)
            return

        def in_tandem(llm: Callable[..., Any], **options: Any) -> LLMInTandem:
            send, adapting = _how_to_send(generation, {**options, **arguments}, config)
            of_engine = {**options, **adapting, **arguments}
            settings = {**config.settings(), "require": True}
            of_engine["additional_config"] = {
                **of_engine.get("additional_config", {}),
                "tandem": settings,
            }
            engine = LLMInTandem(llm(**of_engine))
            check_engine(engine.llm_engine.vllm_config)
            send(engine)
            started(generation, engine)
            return engine

        with replaced(vllm_generation, "LLM", in_tandem):
            initialise()

    _next[:] = [start]
    wrap_once(vllm_generation.VLLMGeneration, "_init_vllm", _start_engine)


def _start_engine(initialise: Callable[[Any], None], generation: VLLMGeneration) -> None:
    create = functools.partial(initialise, generation)
    if _next:
        _next.pop()(create, generation)
    else:
        create()


def _sampling(generation: VLLMGeneration, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """How TRL samples, by vLLM's names, among others; arguments: of ``vllm.LLM``."""
    options = {**vars(generation), **generation.generation_kwargs}
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

    arguments: of ``vllm.LLM``.
    """
    model = generation.model
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


def _say(generation: VLLMGeneration, sentence: str) -> None:
    if generation.accelerator.is_main_process:
        print(f"tandem: {sentence}.", file=sys.stderr, flush=True)
