"""The bodies of a server's requests: a tandem field reaches the engine, or is an error.

vLLM accepts unknown fields, and some endpoints drop known ones, so a client could ask for tandem
and get text of the senior alone with status 200. Two checks rule that out on every endpoint,
including those of later versions:

1. Before a handler sees the body, a field that resembles ``tandem`` in any but its one place is an
   error, and so is its place on an endpoint with a different one.
2. What stands in that place is remembered for the length of the request. Admission
   (:func:`~tandem_plugin.engine.admission.check_request`) rejects a request to the engine that
   arrives without it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote_plus

from tandem_plugin.engine.admission import sent_to_server
from tandem_plugin.engine.wire import PREFIX, asks_for_tandem
from tandem_plugin.errors import RequestError
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.request import resembles_tandem

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]

_USERS_KEYS = frozenset(
    {
        "metadata",
        "variables",  # of a stored prompt
        "chat_template_kwargs",
        "arguments",  # of a tool call
        *("parameters", "input_schema", "schema", "json", "guided_json", "structural_tag"),
    }
)
"""Fields whose keys belong to the user: labels, templates, JSON schemas and calls of tools."""

_MAPPINGS = frozenset({"vllm_xargs", "extra_args", "extra_body", "sampling_params"})
"""Fields that are mappings, in which a client may have put their JSON as text."""

_TOOL_INPUT = "input"
"""A mapping is the arguments of a tool call (Anthropic), a list is messages (OpenAI)."""


def wrap_bodies() -> None:
    """Check the bodies of requests to tandem engines, over HTTP and in batch files.

    Touches: ``FastAPI.build_middleware_stack`` and ``BaseServing._check_model``. Versions: 0.24 to
    0.32. Why: vLLM accepts unknown fields, and the senior alone would answer. Goes when: vLLM
    rejects them; each of the two below says more.
    """
    _wrap_middleware()
    _wrap_model_check()


def _wrap_middleware() -> None:
    """Let every HTTP body of a server with a tandem engine pass :class:`CheckedBodies`.

    Touches: ``FastAPI.build_middleware_stack``, called before a server's first request, perhaps
    again, and perhaps before the server has its engine; and ``app.state.engine_client``, which only
    vLLM's servers have. Versions: 0.24 to 0.32. Why: the raw body is the only form in which no
    endpoint has dropped a field. Goes when: vLLM lets a plugin add to ``--middleware``, or rejects
    unknown fields.
    """
    from fastapi import FastAPI
    from starlette.middleware import Middleware

    def wrapper(build: Callable[..., Any], app: Any) -> Any:
        if all(middleware.cls is not CheckedBodies for middleware in app.user_middleware):
            # Last is innermost: a client is authenticated before its body is read.
            app.user_middleware.append(Middleware(CheckedBodies))
        return build(app)

    wrap_once(FastAPI, "build_middleware_stack", wrapper)


def _wrap_model_check() -> None:
    """Reject a line of a batch file that has ``tandem`` where vLLM would ignore it.

    Touches: ``BaseServing._check_model``, which every text handler calls first with the parsed
    body. Versions: 0.24 to 0.32. Why: ``vllm run-batch`` calls the handlers without HTTP. Goes
    when: vLLM rejects unknown fields.
    """
    from vllm.entrypoints.serve.engine.serving import BaseServing

    async def wrapper(check: Callable[..., Any], serving: Any, request: Any) -> Any:
        architecture = next(iter(serving.model_config.architectures), "")
        unknown = dict(getattr(request, "model_extra", None) or {})
        unknown.pop("vllm_xargs", None)  # a batch of chats passes it on without declaring it
        if architecture.startswith(PREFIX) and (path := _misplaced(unknown, ())):
            return serving.create_error_response(str(_error(path)))
        return await check(serving, request)

    wrap_once(BaseServing, "_check_model", wrapper)


class CheckedBodies:
    """ASGI middleware that answers a body with a misplaced ``tandem`` with status 400."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not _is_in_tandem(scope["app"]):
            await self._app(scope, receive, send)
            return
        messages = await _body_messages(receive)
        body = _parsed(b"".join(message.get("body", b"") for message in messages))
        place = _place(scope["path"])
        query = dict.fromkeys(map(unquote_plus, _names(scope.get("query_string", b""))))
        if path := _misplaced(body, place) or _misplaced(query, place):
            await _answer(send, str(_error(path, place)))
            return
        remembered = sent_to_server.set(_inside(body, place))
        try:
            await self._app(scope, _replayed(messages, receive), send)
        finally:
            sent_to_server.reset(remembered)


def _names(query: bytes) -> list[str]:
    """The names of an address's query parameters; the text endpoints define none."""
    return [part.partition("=")[0] for part in query.decode("latin-1").split("&")]


def _is_in_tandem(app: Any) -> bool:
    engine = getattr(app.state, "engine_client", None)
    return engine is not None and asks_for_tandem(engine.vllm_config.additional_config)


def _place(path: str) -> tuple[str, ...]:
    """Where an endpoint takes the key ``tandem``."""
    if path.rstrip("/").endswith("/inference/v1/generate"):
        return ("sampling_params", "extra_args")
    return ("vllm_xargs",)


def _misplaced(body: object, place: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a field that resembles ``tandem`` outside of its place; empty if there is none.

    place: empty if it is not in the body. Keys in it are left to admission, and those that are the
    user's are skipped.
    """
    paths: dict[str, tuple[str, ...]] = {}  # of each name, one: a long chat repeats few of them
    waiting: list[tuple[tuple[str, ...], object]] = [((), body)]
    while waiting:
        above, value = waiting.pop()
        if isinstance(value, list):
            inside = above if above != place else (*above, "0")  # a list is no mapping there
            waiting += [(inside, item) for item in value if isinstance(item, dict | list)]
        elif isinstance(value, dict) and (above != place or not place):
            for name, inner in value.items():
                paths.setdefault(name, (*above, name))
                is_users = name in _USERS_KEYS or (name == _TOOL_INPUT and isinstance(inner, dict))
                if isinstance(inner, str) and name in _MAPPINGS:  # a mapping that was quoted
                    waiting.append(((*above, name, "0"), _parsed(inner.encode(errors="replace"))))
                elif not is_users and isinstance(inner, dict | list):
                    waiting.append(((*above, name), inner))
    return next((path for name, path in paths.items() if resembles_tandem(name)), ())


def _inside(body: object, place: tuple[str, ...]) -> Mapping[str, Any]:
    """The mapping in a body's place for tandem; empty if it has none."""
    for name in place:
        body = body.get(name) if isinstance(body, dict) else None
    return body if isinstance(body, dict) else {}


def _error(path: tuple[str, ...], place: tuple[str, ...] = ("vllm_xargs",)) -> RequestError:
    return RequestError("request-field-misplaced", path=".".join(path), place=".".join(place))


def _parsed(body: bytes) -> object:
    """A body's JSON; None for anything else, which vLLM's handlers then reject."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


async def _body_messages(receive: _Receive) -> list[_Message]:
    """All messages of a request's body."""
    messages = [await receive()]
    while messages[-1]["type"] == "http.request" and messages[-1].get("more_body"):
        messages.append(await receive())
    return messages


def _replayed(messages: list[_Message], receive: _Receive) -> _Receive:
    """A channel that gives these messages again, and then those that follow."""
    waiting = iter(messages)

    async def replay() -> _Message:
        for message in waiting:
            return message
        return await receive()

    return replay


async def _answer(send: _Send, message: str) -> None:
    """Send an error in the form of vLLM's own."""
    error = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
