"""What a server's responses say of their requests, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.engine.patches import responses

WIRE = {"seed": 7, "fingerprint": "x"}


def output(index: int, wire: dict[str, Any] | None = None) -> Any:
    """A ``RequestOutput`` of one sample; without ``wire``, as an engine makes the senior's."""
    said = {} if wire is None else {"tandem": wire}
    return SimpleNamespace(outputs=[SimpleNamespace(index=index, **said)])


def stream_of(given: list[tuple[int, Any]], ended: list[str]) -> Any:
    """A completion's stream: one event for each output, as vLLM writes it."""

    async def outputs() -> AsyncIterator[tuple[int, Any]]:
        try:
            for one in given:
                yield one
        finally:
            ended.append("outputs")

    async def events(serving: Any, request: Any, prompts: Any, results: Any) -> AsyncIterator[str]:
        async for prompt, result in results:
            index = result.outputs[0].index + prompt * request.n
            body = {"choices": [{"index": index, "text": 'é "x"\n'}]}
            yield f"data: {json.dumps(body, ensure_ascii=False)}\n\n"
        yield "data: [DONE]\n\n"

    return responses._completion_stream(events, None, SimpleNamespace(n=2), [], outputs())


async def all_of(stream: AsyncIterator[str]) -> list[str]:
    return [event async for event in stream]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.booleans()), max_size=12))
def test_first_event_of_each_choice_in_tandem_says_its_request(places: list[tuple[int, int, bool]]):
    teams = {(prompt, sample): team for prompt, sample, team in places}
    given = [
        (prompt, output(sample, WIRE | {"seed": 2 * prompt + sample} if team else None))
        for prompt, sample, _ in places
        for team in [teams[prompt, sample]]
    ]
    *events, done = asyncio.run(all_of(stream_of(given, [])))
    assert done == "data: [DONE]\n\n"
    assert all(event.startswith("data: {") and event.endswith("}\n\n") for event in events)
    said: dict[int, list[Any]] = {}
    for choice in (json.loads(event[6:])["choices"][0] for event in events):
        assert choice["text"] == 'é "x"\n'
        said.setdefault(choice["index"], []).append(choice.get("tandem"))
    for (prompt, sample), team in teams.items():
        first, *rest = said[2 * prompt + sample]
        assert first == (WIRE | {"seed": 2 * prompt + sample} if team else None)
        assert rest == [None] * len(rest)


def test_stream_that_is_abandoned_ends_the_engines_generator():
    """At once: the engine would go on writing for nobody."""

    async def abandon() -> list[str]:
        ended: list[str] = []
        stream: Any = stream_of([(0, output(0, WIRE))] * 3, ended)
        await anext(stream)
        await stream.aclose()
        for _ in range(3):
            await asyncio.sleep(0)
        return [*ended]

    assert asyncio.run(abandon()) == ["outputs"]


def test_an_error_in_the_place_of_a_response_is_passed_on():
    error = SimpleNamespace(error="no")

    async def refuse(serving: Any, request: Any, results: Any) -> Any:
        return error

    async def outputs() -> AsyncIterator[Any]:
        yield output(0, WIRE)

    assert asyncio.run(responses._chat(refuse, None, SimpleNamespace(), outputs())) is error
