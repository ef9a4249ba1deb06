"""Every touch on vLLM's internals, each with what, which versions, why and when it can go.

Nothing here changes an engine that does not ask for tandem.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from tandem_plugin.wrapping import wrap_once

__all__ = [
    "asks_for_tandem",
    "copy_juniors_out_once",
    "draft_as_many_as_asked",
    "give_drafts_their_targets_ids",
    "keep_cpu_linear_weights",
    "let_workers_tell_of_drafts",
    "pack_cpu_linear_weights_anew",
    "register_architectures",
    "without_prefix",
    "wrap_beam_search",
    "wrap_engine_config",
    "wrap_model_check",
    "wrap_offline_beam_search",
    "wrap_request_admission",
    "wrap_samples",
]

logger = logging.getLogger(__name__)

PREFIX = "Tandem"
SPECULATIVE_PREFIX = PREFIX + "Speculative"


def without_prefix(architecture: str) -> str:
    """An architecture's plain name, from that of its tandem form as well."""
    return architecture.removeprefix(SPECULATIVE_PREFIX).removeprefix(PREFIX)


def asks_for_tandem(additional_config: Any) -> bool:
    """Whether an engine's ``additional_config`` asks for tandem.

    vLLM takes any object there, and other plugins put theirs.
    """
    return isinstance(additional_config, Mapping) and "tandem" in additional_config


def register_architectures() -> None:
    """Register tandem architectures, by string, for every architecture that vLLM knows.

    One for each mode of the engine, and one for the junior that drafts in the speculative mode.

    Touches: ``ModelRegistry.register_model`` (public) and ``MODELS_CONFIG_MAP``, vLLM's table of
    per-architecture settings, mirrored so that a senior keeps its own. Versions: 0.27 to 0.32.
    Why: worker processes look the architecture up by name and do not know which one will come.
    Goes when: vLLM lets a plugin name the model class of one engine (``model_class_overrides``
    reaches the oldest supported version).
    """
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    for architecture in list(ModelRegistry.models):
        tandem = PREFIX + architecture
        if architecture.startswith(PREFIX) or tandem in ModelRegistry.models:
            continue
        speculative = SPECULATIVE_PREFIX + architecture
        ModelRegistry.register_model(tandem, f"tandem_plugin.engine.composite:{tandem}")
        ModelRegistry.register_model(
            speculative, f"tandem_plugin.engine.speculative.senior:{speculative}"
        )
        if architecture in MODELS_CONFIG_MAP:
            MODELS_CONFIG_MAP[tandem] = MODELS_CONFIG_MAP[architecture]
            MODELS_CONFIG_MAP[speculative] = MODELS_CONFIG_MAP[architecture]
    junior = "tandem_plugin.engine.speculative.junior:TandemJunior"
    ModelRegistry.register_model("TandemJunior", junior)


def wrap_engine_config() -> None:
    """Let engine arguments that ask for tandem pass through :mod:`~tandem_plugin.engine.configure`.

    Touches: ``EngineArgs.create_engine_config``. Versions: 0.27 to 0.32. Why: the one place
    that every way into vLLM passes (Python, ``vllm serve``, verl, OpenRLHF), before the model
    configuration is made. Goes when: vLLM offers a hook that amends engine arguments.
    """
    from vllm.engine.arg_utils import EngineArgs

    def wrapper(create: Callable[..., Any], args: Any, *rest: Any, **options: Any) -> Any:
        if not asks_for_tandem(args.additional_config):
            return create(args, *rest, **options)
        from tandem_plugin.engine.configure import create_tandem_config

        return create_tandem_config(create, args, *rest, **options)

    wrap_once(EngineArgs, "create_engine_config", wrapper)


def wrap_request_admission() -> None:
    """Check what a request says about tandem before it enters a tandem engine.

    Touches: ``InputProcessor.process_inputs`` in the front-end process. Versions: 0.27 to 0.32.
    Why: a bad request must fail alone, with a sentence, and not in the worker, where an error ends
    the engine. Logits processors could validate on the V1 runner, but V2 does not have them.
    Goes when: vLLM offers request validation to plugins on both runners.
    """
    from vllm.v1.engine.input_processor import InputProcessor

    def wrapper(
        process: Callable[..., Any],
        processor: Any,
        request_id: str,
        prompt: Any,
        params: Any,
        *rest: Any,
        **options: Any,
    ) -> Any:
        if asks_for_tandem(processor.vllm_config.additional_config):
            from tandem_plugin.engine.admission import (
                check_begun,
                check_input,
                check_prompt,
                check_request,
            )

            asked = check_request(processor.vllm_config, params)
            check_input(asked, grows=bool(options.get("resumable")))
            request = process(processor, request_id, prompt, params, *rest, **options)
            check_prompt(processor.vllm_config, request.prompt_token_ids)
            check_begun(asked, getattr(params, "n", 1), request.prompt_token_ids)
            return request
        if "TANDEM_CONFIG" in os.environ:
            from tandem_plugin.engine.admission import check_nobody_asked

            check_nobody_asked()
        return process(processor, request_id, prompt, params, *rest, **options)

    wrap_once(InputProcessor, "process_inputs", wrapper)


def wrap_beam_search() -> None:
    """Refuse the beam search that a request to a tandem engine's server asks for.

    Touches: ``BeamSearchOnlineMixin.beam_search`` (``use_beam_search`` over HTTP and in batch
    files). Versions: 0.24 to 0.32. Why: it makes requests of one token of its own, without what the
    user's says about tandem, so that the senior alone would answer. Goes when: it passes
    ``extra_args`` on, which the door then refuses.
    """
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin

    wrap_once(BeamSearchOnlineMixin, "beam_search", _refuse_beams)


def wrap_offline_beam_search() -> None:
    """Refuse ``LLM.beam_search`` of a tandem engine.

    Touches: ``BeamSearchOfflineMixin.beam_search``. Versions, why, goes when: as
    :func:`wrap_beam_search`, which every process can afford to import and this one's module not.
    """
    from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin

    wrap_once(BeamSearchOfflineMixin, "beam_search", _refuse_beams)


def wrap_model_check() -> None:
    """Refuse a body to a tandem engine's server that says ``tandem`` where vLLM would ignore it.

    Touches: ``BaseServing._check_model``, to which every handler of text shows the parsed body
    first. Versions: 0.24 to 0.32. Why: bodies may hold fields that vLLM does not know, and the
    senior alone would answer with status 200. Goes when: vLLM refuses such fields.
    """
    from vllm.entrypoints.serve.engine.serving import BaseServing

    async def wrapper(check: Callable[..., Any], serving: Any, request: Any) -> Any:
        ignored = getattr(request, "model_extra", None) or {}
        architecture = next(iter(serving.model_config.architectures), "")
        if "tandem" in ignored and architecture.startswith(PREFIX):
            return serving.create_error_response(_MISPLACED)
        return await check(serving, request)

    wrap_once(BaseServing, "_check_model", wrapper)


_MISPLACED = (
    "tandem is no field of the body itself: vLLM would ignore it, and the senior alone would "
    'answer. Send it in vllm_xargs, as JSON in a string: "vllm_xargs": {"tandem": '
    '"{\\"seed\\": 7}"}.'
)


def _refuse_beams(search: Callable[..., Any], owner: Any, *rest: Any, **options: Any) -> Any:
    engine = getattr(owner, "engine_client", None) or owner.llm_engine
    if asks_for_tandem(engine.vllm_config.additional_config):
        from tandem_plugin.engine.admission import refuse_beam_search

        refuse_beam_search()
    return search(owner, *rest, **options)


def wrap_samples() -> None:
    """Give each sample of a request with n > 1 a tandem seed of its own.

    Touches: ``ParentRequest.get_child_info``, where vLLM makes n requests of one, in the front-end
    process. Versions: 0.27 to 0.32. Why: samples of one seed would share their authors. Goes
    when: vLLM lets a plugin amend the parameters of a request's samples.
    """
    from vllm.v1.engine.parallel_sampling import ParentRequest

    def wrapper(child_info: Callable[..., Any], parent: Any, index: int) -> Any:
        request_id, params = child_info(parent, index)
        if "tandem" not in (params.extra_args or {}):
            return request_id, params
        from tandem_plugin.engine.admission import sample_params

        return request_id, sample_params(params, index)

    wrap_once(ParentRequest, "get_child_info", wrapper)


def keep_cpu_linear_weights() -> None:
    """Keep a linear layer's weight after vLLM's CPU build has packed it.

    Touches: ``layers.utils.dispatch_cpu_unquantized_gemm``, looked up there by linear layers.
    Versions: 0.27 to 0.32, CPU builds only. Why: the packed copy replaces the weight, so that a
    weight sync finds nothing to load into and fails. Costs the memory of one copy. Goes when: the
    CPU build can reload weights.
    """
    from vllm.model_executor.layers import utils

    def wrapper(dispatch: Callable[..., Any], layer: Any, remove_weight: bool) -> Any:
        return dispatch(layer, remove_weight=False)

    wrap_once(utils, "dispatch_cpu_unquantized_gemm", wrapper)


def pack_cpu_linear_weights_anew(model: Any, loaded: Any) -> None:
    """Let the linear layers that weights were loaded into compute with these weights.

    loaded: the names of the parameters, as ``load_weights`` returns them; all where it says
    nothing. Touches: ``cpu_linear``, a layer's function over the packed copy of its weight, and
    ``dispatch_cpu_unquantized_gemm``, which makes it. Versions: 0.27 to 0.32, CPU builds only. Why:
    the copy is made when weights are processed after loading, which OpenRLHF's sync leaves out, so
    that the layer would go on with the old ones. Goes when: as :func:`keep_cpu_linear_weights`.
    """
    packed = [module for module in model.modules() if "cpu_linear" in vars(module)]
    if not packed:
        return
    from vllm.model_executor.layers import utils

    parameters = dict(model.named_parameters(remove_duplicate=False))
    names = parameters.keys() if loaded is None else loaded
    changed = {id(parameters[name]) for name in names if name in parameters}
    for module in packed:
        if id(module.weight) in changed:
            utils.dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def give_drafts_their_targets_ids() -> None:
    """Let a junior draft whose vocabulary is padded to another length than the senior's.

    Touches: ``SpeculativeConfig.verify_equal_vocab_size_if_draft_model`` and the number of token
    ids in the draft's ``model_arch_config``, by which the speculator sizes its buffers; the junior
    gives its logits over as many. Versions: 0.32. Why: vLLM's draft models must have as many ids
    as their targets, padding included. Goes when: they need no more.
    """
    from vllm.config import SpeculativeConfig

    def wrapper(verify: Callable[..., Any], speculative: Any) -> Any:
        target, draft = speculative.target_model_config, speculative.draft_model_config
        architectures = getattr(getattr(target, "hf_config", None), "architectures", None) or [""]
        if draft is not None and architectures[0].startswith(SPECULATIVE_PREFIX):
            draft.model_arch_config.vocab_size = target.get_vocab_size()
        return verify(speculative)

    wrap_once(SpeculativeConfig, "verify_equal_vocab_size_if_draft_model", wrapper)


def draft_as_many_as_asked() -> None:
    """Let the junior draft as many tokens in a round as the scheduler asks for.

    Touches: ``StandaloneARSpeculator.propose`` and its ``num_speculative_steps``. Versions: 0.32.
    Why: the scheduler's number reaches ``propose``, which drafts the most there can be and lets the
    runner throw the rest away. Goes when: the speculator stops at ``num_speculative_tokens``.
    """
    from vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator import StandaloneARSpeculator

    def wrapper(propose: Callable[..., Any], speculator: Any, *args: Any, **options: Any) -> Any:
        most, asked = speculator.num_speculative_steps, options.get("num_speculative_tokens")
        if not asked or asked >= most or not hasattr(speculator.model, "draft_only"):
            return propose(speculator, *args, **options)
        speculator.model.draft_only(asked)
        speculator.num_speculative_steps = asked
        try:
            requests = len(propose(speculator, *args, **options))
        finally:
            speculator.num_speculative_steps = most
        return speculator.draft_tokens[:requests]

    wrap_once(StandaloneARSpeculator, "propose", wrapper)


TELL_OF_DRAFTS = "tandem_drafted"
"""What ``collective_rpc`` asks the workers of a speculative engine for: their counters."""


def let_workers_tell_of_drafts() -> None:
    """Let ``collective_rpc("tandem_drafted")`` return each worker's counters of drafting.

    Touches: ``WorkerBase``, which gets one method more. Versions: 0.32. Why: a worker's numbers
    reach the front end by ``collective_rpc`` alone, which takes functions only where
    ``VLLM_ALLOW_INSECURE_SERIALIZATION`` is set, and names of the worker's methods everywhere
    (``worker_extension_cls`` is taken by trainers). Goes when: vLLM lets a model state add to its
    statistics.
    """
    from vllm.v1.worker.worker_base import WorkerBase

    from tandem_plugin.engine.speculative.rounds import drafted_by

    setattr(WorkerBase, TELL_OF_DRAFTS, drafted_by)


def copy_juniors_out_once() -> None:
    """Let a frozen junior go through sleeps of level 2 by one copy on the host.

    Touches: ``Worker.sleep`` and ``Worker.wake_up`` of vLLM's GPU worker. Versions: 0.24 to 0.32.
    Why: they copy every buffer to the host at each sleep and back at each wake-up, and so the whole
    junior, which never changes; and its tensors that are neither parameters nor buffers they lose.
    Workers with a sleep of their own still find the junior among the model's buffers. Goes when:
    vLLM lets a model say how its weights go through a sleep.
    """
    from vllm.v1.worker.gpu_worker import Worker

    def sleep(original: Callable[..., Any], worker: Any, level: int = 1) -> Any:
        if level == 2:
            for copy in _host_copies(worker):
                copy.hold()
        return original(worker, level)

    def wake_up(original: Callable[..., Any], worker: Any, tags: Any = None) -> Any:
        result = original(worker, tags)
        if tags is None or "weights" in tags:
            for copy in _host_copies(worker):
                copy.restore()
        return result

    wrap_once(Worker, "sleep", sleep)
    wrap_once(Worker, "wake_up", wake_up)


def _host_copies(worker: Any) -> list[Any]:
    """The host copies of the juniors in a worker: of its model, of its draft model, or none."""
    models = [worker.model_runner.model]
    if hasattr(worker, "get_draft_model"):
        models.append(worker.get_draft_model())
    copies = [getattr(model, "tandem_host_copy", None) for model in models]
    return [copy for copy in copies if copy is not None]
