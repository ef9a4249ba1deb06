"""The engine that TRL starts in its own process, in tandem, and its wrapper."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.junior import is_seniors_checkpoint
from tandem_plugin.engine.runners import check_engine
from tandem_plugin.patching.wrapping import Delegate, replaced, wrap_once
from tandem_plugin.training.trajectory import Trajectory

_next: list[Callable[[Callable[[], None], Any], None]] = []
"""Starts this process's next engine in tandem; empty if that engine is not in tandem."""

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The maximum ranks that vLLM accepts (``vllm.config.lora.MaxLoRARanks``)."""


class TandemEngine(Delegate):
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
    config: TandemConfig, arguments: Mapping[str, Any], started: Callable[[TandemEngine], None]
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

    def start(initialise: Callable[[], None], generation: Any) -> None:
        def in_tandem(llm: Callable[..., Any], **own: Any) -> TandemEngine:
            lora = {} if "enable_lora" in arguments else _lora_arguments(generation, own, config)
            given = {**own, **lora, **arguments}
            settings = {**config.settings(), "require": True}
            given["additional_config"] = {**given.get("additional_config", {}), "tandem": settings}
            engine = TandemEngine(llm(**given))
            check_engine(engine.llm_engine.vllm_config)
            if lora:
                generation.sync_weights = functools.partial(_send_adapter, generation, engine)
            started(engine)
            return engine

        with replaced(vllm_generation, "LLM", in_tandem):
            initialise()

    _next[:] = [start]
    wrap_once(vllm_generation.VLLMGeneration, "_init_vllm", _start_engine)


def _start_engine(initialise: Callable[[Any], None], generation: Any) -> None:
    own = functools.partial(initialise, generation)
    if _next and generation.mode == "colocate":
        _next.pop()(own, generation)
    else:
        own()


def _lora_arguments(
    generation: Any, own: Mapping[str, Any], config: TandemConfig
) -> dict[str, Any]:
    """Engine arguments to read adapters, if their base is the junior; otherwise TRL merges them."""
    adapter: Any = getattr(generation.model, "peft_config", {}).get("default")
    is_base = is_seniors_checkpoint(config.junior or own["model"], own["model"], None)
    if not is_base or config.max_drafts or own["quantization"] or own["enable_sleep_mode"]:
        return {}
    if generation._dist.is_fsdp or not _is_plain(adapter):
        return {}
    return {
        "enable_lora": True,
        "max_lora_rank": next(rank for rank in _RANKS if rank >= adapter.r),
    }


def _is_plain(adapter: Any) -> bool:
    """Whether vLLM can read the whole adapter: plain LoRA of layers other than heads."""
    if getattr(adapter, "r", None) is None or adapter.r > _RANKS[-1]:
        return False
    targets = adapter.target_modules
    names = {targets} if isinstance(targets, str) else set(targets or ())
    at_ends = any(end in name for name in names for end in ("lm_head", "embed"))
    special = ("modules_to_save", "use_dora", "rank_pattern", "alpha_pattern", "bias")
    return not at_ends and not any(getattr(adapter, n, None) not in _USUAL for n in special)


_USUAL: tuple[Any, ...] = (None, False, "none", {}, [])
"""PEFT's values for unset settings of an adapter."""


def _send_adapter(generation: Any, engine: TandemEngine) -> None:
    """Send the engine the current adapter, in place of ``sync_weights``."""
    from vllm.lora.request import LoRARequest

    version = 1 if engine.adapter is None else engine.adapter.lora_int_id + 1
    with tempfile.TemporaryDirectory(prefix="tandem-adapter-") as folder:
        with generation._dist.gather_params(list(generation.model.parameters())):
            # False: otherwise PEFT queries the Hub for the size of the embedding.
            generation.model.save_pretrained(folder, save_embedding_layers=False)
        engine.adapter = LoRARequest(f"senior-{version}", version, folder)
        engine.llm_engine.add_lora(engine.adapter)
    engine.reset_prefix_cache()
