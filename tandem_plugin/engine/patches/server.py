"""The bodies that a server reads and writes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from tandem_plugin.engine.admitted import ADMITTED
from tandem_plugin.engine.wire_names import PREFIX
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["wrap_model_check", "wrap_system_fingerprint"]


def wrap_model_check() -> None:
    """Reject a body to a tandem engine's server that asks for tandem where vLLM would not see it.

    Touches: ``BaseServing._check_model``, to which every handler of text shows the parsed body
    first. Versions: 0.24 to 0.32. Why: bodies may hold fields that vLLM does not know, and the
    senior alone would answer with status 200. Goes when: vLLM rejects such fields.
    """
    from vllm.entrypoints.serve.engine.serving import BaseServing

    async def wrapper(check: Callable[..., Any], serving: Any, request: Any) -> Any:
        architecture = next(iter(serving.model_config.architectures), "")
        if architecture.startswith(PREFIX):
            ADMITTED.set([])
            ignored = getattr(request, "model_extra", None) or {}
            if reason := _misplaced(ignored, getattr(request, "vllm_xargs", None) or {}):
                return serving.create_error_response(reason)
        return await check(serving, request)

    wrap_once(BaseServing, "_check_model", wrapper)


def wrap_system_fingerprint() -> None:
    """Let a response say which seed and rules the engine went by, in ``system_fingerprint``.

    Touches: the attribute ``system_fingerprint`` of the class that completions and chat share,
    which vLLM sets once and stamps on each response and on a stream's last chunk: a property in its
    place; and the two generators of streams, which run in another task than their handler did.
    Versions: 0.24 (``OpenAIServing``) to 0.32 (``GenerateBaseServing``). Why: a proxy may drop the
    field of a request, and the response of the senior alone would look the same. Goes when: vLLM
    lets plugins add to responses.
    """
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

    try:
        from vllm.entrypoints.generate.base.serving import GenerateBaseServing as Serving
    except ImportError:  # before 0.27
        from vllm.entrypoints.openai.engine.serving import OpenAIServing as Serving

    def read(serving: Any) -> str | None:
        own: str | None = serving.__dict__.get("system_fingerprint")
        marks = dict.fromkeys(ADMITTED.get([]))  # one, however many prompts the body has
        return " ".join([*([] if own is None else [own]), *marks]) or None

    def write(serving: Any, value: str | None) -> None:
        serving.__dict__["system_fingerprint"] = value

    if not isinstance(getattr(Serving, "system_fingerprint", None), property):
        Serving.system_fingerprint = property(read, write)

    async def streamed(generate: Callable[..., Any], *args: Any, **more: Any) -> Any:
        ADMITTED.set([])
        async for event in generate(*args, **more):
            yield event

    wrap_once(OpenAIServingCompletion, "completion_stream_generator", streamed)
    wrap_once(OpenAIServingChat, "chat_completion_stream_generator", streamed)


def _misplaced(body: Mapping[str, Any], xargs: Mapping[str, Any]) -> str | None:
    """Why a body asks for tandem in vain; None where it does not.

    body: its fields that vLLM does not know. xargs: its ``vllm_xargs``.
    """
    for name in body:
        if name in _CONTAINERS or _is_like_tandem(name):
            return f"{name} is no field of the body itself: vLLM would ignore it, {_REMEDY}"
    for name in xargs:
        if name != "tandem" and (
            _is_like_tandem(name) or ("tandem" not in xargs and name in _KEYS)
        ):
            return f"vllm_xargs holds {name!r}, which nothing reads, {_REMEDY}"
    return None


def _is_like_tandem(name: str) -> bool:
    lower = name.lower()
    return lower.startswith("tandem") or bool(difflib.get_close_matches(lower, ["tandem"], 1, 0.8))


_CONTAINERS = ("extra_args", "extra_body", "sampling_params")
"""Where clients and vLLM's own Python interface put further fields, by mistake in a body."""

_KEYS = ("seed", "schedule", "fingerprint", "prompt_length")
"""Keys of the JSON that stands under ``tandem``."""

_REMEDY = (
    "and the senior alone would answer. Send tandem in vllm_xargs, as JSON in a string: "
    '"vllm_xargs": {"tandem": "{\\"seed\\": 7}"}.'
)
