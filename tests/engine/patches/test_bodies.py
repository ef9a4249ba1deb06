"""Bodies of requests, before a server's handlers: pure ASGI, without an engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tandem_plugin.engine.admission import sent_to_server
from tandem_plugin.engine.patches import bodies
from tandem_plugin.engine.patches.bodies import CheckedBodies

TANDEM = '{"seed": 7}'
XARGS = ("vllm_xargs",)


@pytest.mark.parametrize("place", [XARGS, ()])
@pytest.mark.parametrize(
    "body",
    [
        {"tandem": TANDEM},
        {"Tandem": TANDEM},
        {"vllm_xarg": {"tandem": TANDEM}},
        {"extra_body": {"vllm_xargs": {"tandem": TANDEM}}},
        {"sampling_params": {"extra_args": {"tandem": TANDEM}}},
        {"messages": [{"role": "user", "content": "x", "tandem": TANDEM}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "tadnem": TANDEM}]}]},
        {"stream_options": {"tandem_seed": 7}},
        {"tools": [{"type": "function", "tandem": TANDEM, "function": {"parameters": {}}}]},
        {"input": [{"role": "user", "tandem": TANDEM}]},
        [{"tandem": TANDEM}],
        {"vllm_xargs": [{"tandem": TANDEM}]},
        {"vllm_xargs": json.dumps({"tandem": TANDEM})},
        {"extra_body": json.dumps({"vllm_xargs": {"tandem": TANDEM}})},
        {"sampling_params": json.dumps({"extra_args": {"tandem": TANDEM}})},
    ],
)
def test_field_out_of_place_is_seen_at_every_depth(body: Any, place: tuple[str, ...]):
    assert bodies._misplaced(body, place)


@pytest.mark.parametrize(
    "body",
    [
        {"vllm_xargs": {"tandem": TANDEM}, "messages": [{"role": "user", "content": "tandem"}]},
        {"metadata": {"tandem": "the second run"}},
        {"tools": [{"function": {"parameters": {"properties": {"tandem": {}}}}}]},
        {"tools": [{"name": "bicycle", "input_schema": {"properties": {"tandem": {}}}}]},
        {"response_format": {"json_schema": {"schema": {"properties": {"tandem": {}}}}}},
        {"messages": [{"content": [{"type": "tool_use", "input": {"tandem": True}}]}]},
        {"messages": [{"tool_calls": [{"function": {"arguments": {"tandem": True}}}]}]},
        {"chat_template_kwargs": {"tandem": True}},
        "tandem",
        None,
    ],
)
def test_right_place_and_keys_of_the_user_are_left_alone(body: Any):
    assert not bodies._misplaced(body, XARGS)


class Handler:
    """An application that reads a body and says what was remembered of it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.remembered: list[Mapping[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        self.bodies.append(body)
        self.remembered.append(sent_to_server.get())
        await send({"type": "http.response.start", "status": 200, "headers": []})


def app(additional_config: Any) -> Any:
    """A server of vLLM's with an engine of this configuration."""
    config = SimpleNamespace(additional_config=additional_config)
    return SimpleNamespace(state=SimpleNamespace(engine_client=SimpleNamespace(vllm_config=config)))


IN_TANDEM = app({"tandem": {}})


def post(
    path: str, body: bytes, handler: Handler, server: Any = IN_TANDEM, query: bytes = b"a=1&b"
) -> list[Any]:
    """What a client gets whose body arrives in two parts."""
    parts = [
        {"type": "http.request", "body": body[:5], "more_body": True},
        {"type": "http.request", "body": body[5:]},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "app": server, "query_string": query}
    asyncio.run(CheckedBodies(handler)(scope, receive, send))
    return sent


PLACES = [
    ("/v1/completions", {"vllm_xargs": {"tandem": TANDEM}}),
    ("/root/v1/messages", {"vllm_xargs": {"tandem": TANDEM}}),
    ("/an/endpoint/of/next/year", {"vllm_xargs": {"tandem": TANDEM}}),
    ("/inference/v1/generate", {"sampling_params": {"extra_args": {"tandem": TANDEM}}}),
]


@pytest.mark.parametrize(("path", "body"), PLACES)
def test_body_reaches_its_handler_whole_and_its_tandem_is_remembered(path: str, body: Any):
    handler = Handler()
    assert post(path, json.dumps(body).encode(), handler)[0]["status"] == 200
    assert [json.loads(body) for body in handler.bodies] == [body]
    assert handler.remembered == [{"tandem": TANDEM}]
    assert not sent_to_server.get()


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/completions", PLACES[3][1]), ("/inference/v1/generate", PLACES[0][1])],
)
def test_place_of_another_endpoint_is_answered_with_the_right_one(path: str, body: Any):
    handler = Handler()
    start, answer = post(path, json.dumps(body).encode(), handler)
    assert (start["status"], handler.bodies) == (400, [])
    error = json.loads(answer["body"])["error"]
    assert "[request-field-misplaced]" in error["message"]
    assert error["code"] == 400
    place = "sampling_params.extra_args" if "generate" in path else "vllm_xargs"
    assert f"only in {place}." in error["message"]


@pytest.mark.parametrize(
    "query", [b"tandem=1", b"stream=1&Tandem_seed=7", b"%74andem={}", b"tadnem"]
)
def test_parameter_of_an_address_is_no_place_for_tandem(query: bytes):
    handler = Handler()
    start, answer = post("/v1/messages", b"{}", handler, query=query)
    assert (start["status"], handler.bodies) == (400, [])
    assert b"[request-field-misplaced]" in answer["body"]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe{}", b"[" * 100_000, b'{"vllm_xargs": 7}'])
def test_what_is_no_json_is_left_to_the_handler(body: bytes):
    handler = Handler()
    assert post("/v1/completions", body, handler)[0]["status"] == 200
    assert (handler.bodies, handler.remembered) == ([body], [{}])


@pytest.mark.parametrize("server", [app({}), app(None), SimpleNamespace(state=SimpleNamespace())])
def test_servers_of_others_are_left_alone(server: Any):
    handler = Handler()
    assert post("/v1/completions", b'{"tandem": 1}', handler, server)[0]["status"] == 200
    assert handler.remembered == [{}]


def test_middleware_is_added_once_and_innermost():
    fastapi = pytest.importorskip("fastapi")
    pytest.importorskip("vllm")
    from starlette.middleware.cors import CORSMiddleware

    bodies.wrap_bodies()
    served = fastapi.FastAPI()
    served.add_middleware(CORSMiddleware)
    for _ in range(2):
        served.build_middleware_stack()
    names = [middleware.cls.__name__ for middleware in served.user_middleware]
    assert names == ["CORSMiddleware", "CheckedBodies"]
