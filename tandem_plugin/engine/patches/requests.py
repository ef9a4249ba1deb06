"""How requests enter an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.wire import asks_for_tandem
from tandem_plugin.files.trainers import trainers_of_engine
from tandem_plugin.patching.wrapping import wrap_once


def wrap_request_admission() -> None:
    """Check a request's tandem parameters before it enters a tandem engine.

    The engine's request, which vLLM copies from the user's, then contains all resolved values.
    Touches: ``InputProcessor.process_inputs`` in the front-end process. Versions: 0.27 to 0.32.
    Why: an invalid request must fail alone, with a clear error, and not in the worker, where an
    error stops the engine. Logits processors could validate on the V1 runner, but V2 has none. Goes
    when: vLLM offers request validation to plugins on both runners.
    """
    from vllm.v1.engine.input_processor import InputProcessor

    def wrapper(
        process: Callable[..., Any],
        processor: Any,
        request_id: str,
        prompt: Any,
        params: Any,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        if asks_for_tandem(processor.vllm_config.additional_config):
            from tandem_plugin.engine.admission import (
                check_images,
                check_input,
                check_prefix,
                check_prompt,
                check_request,
                write_resolved,
            )
            from tandem_plugin.engine.generation_ends import end_at_either

            resolved = check_request(processor.vllm_config, params)
            check_input(resolved, grows=bool(options.get("resumable")))
            request = process(processor, request_id, prompt, params, *arguments, **options)
            token_ids = request.prompt_token_ids
            check_prompt(processor.vllm_config, token_ids)
            check_images(processor.vllm_config, resolved, token_ids or (), request.mm_features)
            check_prefix(resolved, getattr(params, "n", 1), request.prompt_token_ids)
            write_resolved(resolved, request.sampling_params)
            end_at_either(processor.vllm_config, resolved, request.sampling_params)
            return request
        if trainers_of_engine():
            from tandem_plugin.engine.admission import check_settings_are_read

            check_settings_are_read()
        return process(processor, request_id, prompt, params, *arguments, **options)

    wrap_once(InputProcessor, "process_inputs", wrapper)


def wrap_samples() -> None:
    """Give each sample of a request with n > 1 its own tandem seed.

    Touches: ``ParentRequest.get_child_info``, where vLLM splits a request into n, in the front-end
    process. Versions: 0.27 to 0.32. Why: samples with one seed would share their authors. Goes
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


def wrap_beam_search() -> None:
    """Reject beam search in a request to a tandem engine's server.

    Touches: ``BeamSearchOnlineMixin.beam_search`` (``use_beam_search`` over HTTP and in batch
    files). Versions: 0.24 to 0.32. Why: it creates its own one-token requests without the user's
    tandem parameters, so the senior alone would answer. Goes when: it passes ``extra_args`` on,
    which admission then rejects.
    """
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin

    wrap_once(BeamSearchOnlineMixin, "beam_search", _refuse_beams)


def wrap_offline_beam_search() -> None:
    """Reject ``LLM.beam_search`` of a tandem engine.

    Touches: ``BeamSearchOfflineMixin.beam_search``. Versions, why, goes when: as
    :func:`wrap_beam_search`, whose module, unlike this one's, is cheap to import everywhere.
    """
    from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin

    wrap_once(BeamSearchOfflineMixin, "beam_search", _refuse_beams)


def _refuse_beams(search: Callable[..., Any], owner: Any, *arguments: Any, **options: Any) -> Any:
    engine = getattr(owner, "engine_client", None) or owner.llm_engine
    if asks_for_tandem(engine.vllm_config.additional_config):
        from tandem_plugin.engine.admission import refuse_beam_search

        refuse_beam_search()
    return search(owner, *arguments, **options)
