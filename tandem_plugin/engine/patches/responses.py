"""The bodies that a server sends: each choice includes its request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["wrap_outputs", "wrap_responses"]

_FIELD = "tandem"
"""The key in a response's choice, and the attribute of vLLM's objects that carries it."""


def wrap_outputs() -> None:
    """Let each of the engine's outputs carry the tandem request that the engine applied.

    This is the engine's own request, as :func:`wrap_request_admission` admitted it and its workers
    replay it; for n > 1, each sample's. None for the senior alone. Touches:
    ``OutputProcessor.add_request`` and ``RequestState._new_completion_output`` in the front-end
    process. Versions: 0.24 to 0.32. Why: a server otherwise knows only the request body. Goes when:
    vLLM's outputs carry their sampling parameters.
    """
    from vllm.v1.engine.output_processor import OutputProcessor, RequestState

    def add_request(
        add: Callable[..., Any], processor: Any, request: Any, *rest: Any, **options: Any
    ) -> Any:
        added = add(processor, request, *rest, **options)
        admitted = (getattr(request.sampling_params, "extra_args", None) or {}).get("tandem")
        if isinstance(admitted, Mapping):
            setattr(processor.request_states[request.request_id], _FIELD, admitted)
        return added

    def new_output(make: Callable[..., Any], state: Any, *rest: Any, **options: Any) -> Any:
        output = make(state, *rest, **options)
        if (admitted := getattr(state, _FIELD, None)) is not None:
            setattr(output, _FIELD, admitted)
        return output

    wrap_once(OutputProcessor, "add_request", add_request)
    wrap_once(RequestState, "_new_completion_output", new_output)


def wrap_responses() -> None:
    """Let each choice of a completion or chat completion include its output's request.

    In a stream, this is the first event of a choice after the engine has reported it. Touches: of
    ``OpenAIServingCompletion``, ``request_output_to_completion_response`` and
    ``completion_stream_generator``; of ``OpenAIServingChat``, ``chat_completion_full_generator``
    and ``chat_completion_stream_generator``; of ``OpenAIServingChatBatch``,
    ``chat_completion_full_generator_batch``; each when a server imports it. Versions: 0.24 to 0.32.
    Why: a client must be able to distinguish a tandem response from the senior's alone, even if a
    proxy dropped its request. Goes when: vLLM lets a plugin add to a response.
    """
    for place, wrappers in _WRAPPERS.items():
        name, _, owner = place.partition(":")
        after_import(name, partial(_wrap_all, owner=owner, wrappers=wrappers))


def _wrap_all(module: ModuleType, owner: str, wrappers: Mapping[str, Callable[..., Any]]) -> None:
    for method, wrapper in wrappers.items():
        wrap_once(getattr(module, owner), method, wrapper)


class _Signatures:
    """The requests carried by the outputs of one response, by the choice's index."""

    def __init__(self, samples: int | None = None) -> None:
        """samples: samples per prompt; None for one prompt."""
        self._samples = samples or 0
        self.due: dict[int, Mapping[str, Any]] = {}
        """Requests that no event has included yet."""
        self._seen: set[int] = set()

    def note(self, output: Any, prompt: int = 0) -> None:
        """Keep the request of a ``RequestOutput``."""
        for completion in output.outputs:
            index = completion.index + prompt * self._samples
            admitted = getattr(completion, _FIELD, None)
            if admitted is not None and index not in self._seen:
                self._seen.add(index)
                self.due[index] = admitted

    async def noted(self, outputs: Any, prompt: int | None = None) -> AsyncIterator[Any]:
        """The outputs as they arrive; pairs of prompt and output if ``prompt`` is None."""
        async with aclosing(outputs):
            async for one in outputs:
                if prompt is None:
                    self.note(one[1], one[0])
                else:
                    self.note(one, prompt)
                yield one

    def sign(self, response: Any) -> Any:
        """Add the requests to the choices of a whole response; an error has none."""
        for choice in getattr(response, "choices", ()):
            if (admitted := self.due.get(choice.index)) is not None:
                setattr(choice, _FIELD, admitted)
        return response

    async def signed(self, events: Any) -> AsyncIterator[str]:
        """The events of a stream, with the request in the first possible event of each choice."""
        async with aclosing(events):
            async for event in events:
                yield self._signed(event) if self.due else event

    def _signed(self, event: str) -> str:
        start, brace, text = event.partition("{")
        if not brace:
            return event  # [DONE], or a comment that keeps the connection open
        body = json.loads(brace + text)
        for choice in body.get("choices") or ():
            if (admitted := self.due.pop(choice["index"], None)) is not None:
                choice[_FIELD] = admitted
        return f"{start}{json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _completion(
    make: Callable[..., Any], serving: Any, outputs: Any, request: Any, *rest: Any, **options: Any
) -> Any:
    signatures = _Signatures(request.n or 1)
    for prompt, output in enumerate(outputs):
        signatures.note(output, prompt)
    return signatures.sign(make(serving, outputs, request, *rest, **options))


def _completion_stream(
    stream: Callable[..., Any],
    serving: Any,
    request: Any,
    prompts: Any,
    outputs: Any,
    *rest: Any,
    **options: Any,
) -> AsyncIterator[str]:
    signatures = _Signatures(request.n or 1)
    return signatures.signed(
        stream(serving, request, prompts, signatures.noted(outputs), *rest, **options)
    )


async def _chat(
    respond: Callable[..., Any],
    serving: Any,
    request: Any,
    outputs: Any,
    *rest: Any,
    **options: Any,
) -> Any:
    signatures = _Signatures()
    return signatures.sign(
        await respond(serving, request, signatures.noted(outputs, 0), *rest, **options)
    )


def _chat_stream(
    stream: Callable[..., Any],
    serving: Any,
    request: Any,
    outputs: Any,
    *rest: Any,
    **options: Any,
) -> AsyncIterator[str]:
    signatures = _Signatures()
    return signatures.signed(
        stream(serving, request, signatures.noted(outputs, 0), *rest, **options)
    )


async def _chat_batch(
    respond: Callable[..., Any],
    serving: Any,
    request: Any,
    generators: Any,
    *rest: Any,
    **options: Any,
) -> Any:
    signatures = _Signatures(1)
    noted = [signatures.noted(outputs, prompt) for prompt, outputs in enumerate(generators)]
    return signatures.sign(await respond(serving, request, noted, *rest, **options))


_SERVING = "vllm.entrypoints.openai"
_WRAPPERS: dict[str, dict[str, Callable[..., Any]]] = {
    f"{_SERVING}.completion.serving:OpenAIServingCompletion": {
        "request_output_to_completion_response": _completion,
        "completion_stream_generator": _completion_stream,
    },
    f"{_SERVING}.chat_completion.serving:OpenAIServingChat": {
        "chat_completion_full_generator": _chat,
        "chat_completion_stream_generator": _chat_stream,
    },
    f"{_SERVING}.chat_completion.batch_serving:OpenAIServingChatBatch": {
        "chat_completion_full_generator_batch": _chat_batch,
    },
}
