"""The bodies that a server reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from tandem_plugin.engine.wire_names import PREFIX
from tandem_plugin.errors import RequestError
from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.request import RIGHT_FORM

__all__ = ["wrap_invalid_bodies", "wrap_model_check"]


def wrap_model_check() -> None:
    """Reject a request body with tandem fields that the engine would ignore.

    These are a misplaced ``tandem``, and an invalid one in ``vllm_xargs``. Touches:
    ``BaseServing._check_model``, which every text handler calls first with the parsed body, and its
    ``engine_client``. Versions: 0.24 to 0.32. Why: vLLM accepts unknown fields, and the senior
    alone would answer with status 200. In a stream, an engine's error arrives after that status,
    and breaks off streams of ``/v1/responses``. Goes when: vLLM rejects unknown fields, and lets a
    plugin check a request before its response begins.
    """
    from vllm.entrypoints.serve.engine.serving import BaseServing

    async def wrapper(check: Callable[..., Any], serving: Any, request: Any) -> Any:
        architecture = next(iter(serving.model_config.architectures), "")
        if architecture.startswith(PREFIX) and (message := _refusal(serving, request)):
            return serving.create_error_response(message)
        return await check(serving, request)

    wrap_once(BaseServing, "_check_model", wrapper)


def _refusal(serving: Any, request: Any) -> str:
    """Why this body is rejected; empty if it is accepted."""
    from tandem_plugin.engine.admission import check_arguments

    for path in _paths(getattr(request, "model_extra", None) or {}):
        if _asks(path[-1]):
            return (
                f"vLLM ignores the field {path[0]!r} of the body, including {'.'.join(path)!r}: "
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
    """Show the correct form if ``vllm_xargs`` has a ``tandem`` value that vLLM rejects.

    Touches: ``validation_exception_handler`` where the server registers it, when that is imported.
    Versions: 0.24 to 0.32; not under ``python -m vllm.entrypoints.openai.api_server`` before 0.28,
    which returns vLLM's own message. Why: a mapping is the most common mistake, and vLLM returns
    four parser errors for it. Goes when: ``vllm_xargs`` accepts mappings.
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

    message = f"vLLM does not accept a mapping in vllm_xargs: {RIGHT_FORM}"
    content = {"message": message, "type": "BadRequestError", "param": "vllm_xargs", "code": 400}
    return JSONResponse({"error": content}, 400)


def _behind(name: str, place: tuple[Any, ...]) -> tuple[Any, ...]:
    """The part after ``name`` in an error's location, if any."""
    at = place.index(name) + 1 if name in place else len(place)
    return place[at : at + 1]


def _paths(fields: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The names of a body's fields at any depth, each with its parents.

    Excludes ``metadata``, whose keys OpenAI's API leaves to the user, and ``vllm_xargs``, which a
    batch of chats passes on undeclared and the engine checks.
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
