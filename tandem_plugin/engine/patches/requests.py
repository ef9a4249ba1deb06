"""Requests where vLLM takes them in: the engine's own, and those of its server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from tandem_plugin.engine.wire_names import PREFIX, asks_for_tandem
from tandem_plugin.errors import RequestError
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.request import RIGHT_FORM

__all__ = [
    "wrap_beam_search",
    "wrap_invalid_bodies",
    "wrap_model_check",
    "wrap_offline_beam_search",
    "wrap_request_admission",
    "wrap_samples",
]


def wrap_request_admission() -> None:
    """Check what a request says about tandem before it enters a tandem engine.

    The engine's request, which vLLM copies from the user's, then says in full what was resolved.
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
                check_input,
                check_prefix,
                check_prompt,
                check_request,
                say_in_full,
            )

            resolved = check_request(processor.vllm_config, params)
            check_input(resolved, grows=bool(options.get("resumable")))
            request = process(processor, request_id, prompt, params, *rest, **options)
            check_prompt(processor.vllm_config, request.prompt_token_ids)
            check_prefix(resolved, getattr(params, "n", 1), request.prompt_token_ids)
            say_in_full(processor.vllm_config, resolved, request.sampling_params)
            return request
        if "TANDEM_CONFIG" in os.environ:
            from tandem_plugin.engine.admission import check_nobody_asked

            check_nobody_asked()
        return process(processor, request_id, prompt, params, *rest, **options)

    wrap_once(InputProcessor, "process_inputs", wrapper)


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


def _refuse_beams(search: Callable[..., Any], owner: Any, *rest: Any, **options: Any) -> Any:
    engine = getattr(owner, "engine_client", None) or owner.llm_engine
    if asks_for_tandem(engine.vllm_config.additional_config):
        from tandem_plugin.engine.admission import refuse_beam_search

        refuse_beam_search()
    return search(owner, *rest, **options)


def wrap_model_check() -> None:
    """Refuse a body to a tandem engine's server that asks for what the engine would not do.

    That is ``tandem`` where vLLM would ignore it, and a wrong one in ``vllm_xargs``. Touches:
    ``BaseServing._check_model``, to which every handler of text shows the parsed body first, and
    its ``engine_client``. Versions: 0.24 to 0.32. Why: bodies may hold fields that vLLM does not
    know, and the senior alone would answer with status 200; in a stream an engine's refusal comes
    behind that status, and breaks those of ``/v1/responses`` off. Goes when: vLLM refuses unknown
    fields, and lets a plugin check a request before its response begins.
    """
    from vllm.entrypoints.serve.engine.serving import BaseServing

    async def wrapper(check: Callable[..., Any], serving: Any, request: Any) -> Any:
        architecture = next(iter(serving.model_config.architectures), "")
        if architecture.startswith(PREFIX) and (message := _refusal(serving, request)):
            return serving.create_error_response(message)
        return await check(serving, request)

    wrap_once(BaseServing, "_check_model", wrapper)


def _refusal(serving: Any, request: Any) -> str:
    """Why this body is refused; empty where it is not."""
    from tandem_plugin.engine.admission import check_arguments

    for path in _paths(getattr(request, "model_extra", None) or {}):
        if _asks(path[-1]):
            return (
                f"vLLM ignores the field {path[0]!r} of the body, and with it {'.'.join(path)!r}: "
                f"the senior alone would answer. {RIGHT_FORM}"
            )
    engine = getattr(serving, "engine_client", None)
    try:
        if engine is not None:
            check_arguments(engine.vllm_config, getattr(request, "vllm_xargs", None) or {})
    except RequestError as error:
        return str(error)
    return ""


def wrap_invalid_bodies() -> None:
    """Say the right form where a body gives ``tandem`` a value that vLLM's ``vllm_xargs`` rejects.

    Touches: ``validation_exception_handler`` where the server registers it, when that is imported.
    Versions: 0.24 to 0.32; not under ``python -m vllm.entrypoints.openai.api_server`` before 0.28,
    which answers in vLLM's own words. Why: a mapping is the commonest mistake, and vLLM answers
    with four errors of its parser. Goes when: ``vllm_xargs`` takes mappings.
    """
    for name in _REGISTER_HANDLERS:
        after_import(name, _wrap_handler)


_REGISTER_HANDLERS = (
    "vllm.entrypoints.serve.exception_handling.register",  # from 0.28
    "vllm.entrypoints.openai.api_server",
)


def _wrap_handler(module: ModuleType) -> None:
    if hasattr(module, "validation_exception_handler"):
        wrap_once(module, "validation_exception_handler", _answer_invalid)


async def _answer_invalid(handle: Callable[..., Any], request: Any, error: Any) -> Any:
    places = [one.get("loc", ()) for one in error.errors() if isinstance(one, dict)]
    names = [part for place in places for part in _behind("vllm_xargs", place)]
    if not any(isinstance(name, str) and _asks(name) for name in names):
        return await handle(request, error)
    from fastapi.responses import JSONResponse

    message = f"vLLM takes no mapping in vllm_xargs: {RIGHT_FORM}"
    content = {"message": message, "type": "BadRequestError", "param": "vllm_xargs", "code": 400}
    return JSONResponse({"error": content}, 400)


def _behind(name: str, place: tuple[Any, ...]) -> tuple[Any, ...]:
    """The part behind ``name`` in the place of an error, if there is one."""
    at = place.index(name) + 1 if name in place else len(place)
    return place[at : at + 1]


def _paths(fields: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The names of a body's fields, at any depth, each with those above it.

    Not of ``metadata``, whose keys OpenAI's API leaves to the user, nor of ``vllm_xargs``, which a
    batch of chats passes on though it does not declare it: the engine checks those.
    """
    apart = dict.fromkeys(("metadata", "vllm_xargs"))
    waiting: list[tuple[tuple[str, ...], Any]] = [((), {**fields, **apart})]
    while waiting:
        above, value = waiting.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                yield (*above, str(name))
                waiting.append(((*above, str(name)), inner))


def _asks(name: str) -> bool:
    return "tandem" in name.lower()
